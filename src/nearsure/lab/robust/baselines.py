"""Which calibrated baseline NED is set beside."""

from collections.abc import Sequence

from nearsure.errors import InvalidInputError
from nearsure.lab.robust.methods import METHODS, Method
from nearsure.lab.robust.outcomes import Outcome
from nearsure.rules import RuleName

# 1NN says the same of every query once it is calibrated: a rate, not a confidence.
BASELINE_RULES: tuple[RuleName, ...] = ("knn", "dudani", "gou")
CALIBRATED_BASELINES = tuple(
    method for method in METHODS if method.rule in BASELINE_RULES and method.calibration != "raw"
)


def best_baseline(outcomes: Sequence[Outcome]) -> Method:
    """The calibrated kNN, Dudani or Gou with the lowest mean ECE over some outcomes.

    It is chosen on the very queries that it is then shown on, which favours it a little.

    Parameters
    ----------
    outcomes : sequence of Outcome
        At least one.
    """
    if not outcomes:
        raise InvalidInputError("There must be an outcome to choose a baseline by. Got none.")

    def total_ece(method: Method) -> float:
        return sum(outcome.of(method).ece.estimate for outcome in outcomes)

    return min(CALIBRATED_BASELINES, key=total_ece)
