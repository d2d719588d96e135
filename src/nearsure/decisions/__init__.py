"""What may be done with an answer: act on it alone, or offer a few classes instead of one.

`choose_threshold` finds the confidence from which answers may be accepted automatically;
`fit_conformal` and `prediction_sets` give sets of classes that hold the true one as often as asked.
"""

from nearsure.decisions.conformal import (
    ConformalFit,
    PredictionSets,
    ScoreName,
    fit_conformal,
    prediction_sets,
)
from nearsure.decisions.thresholds import (
    AcceptThreshold,
    PromiseState,
    RestsOn,
    TargetKind,
    at_least_p_value,
    choose_threshold,
    lower_bound,
    upper_bound,
)
from nearsure.decisions.unknown_classes import UnknownClasses

__all__ = [
    "AcceptThreshold",
    "ConformalFit",
    "PredictionSets",
    "PromiseState",
    "RestsOn",
    "ScoreName",
    "TargetKind",
    "UnknownClasses",
    "at_least_p_value",
    "choose_threshold",
    "fit_conformal",
    "lower_bound",
    "prediction_sets",
    "upper_bound",
]
