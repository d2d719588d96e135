"""The numbers at the top, each with an interval and a sentence for people who do not know it."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from nearsure.comparison import RuleResult
from nearsure.metrics import (
    area_under_risk_coverage,
    bootstrap_interval,
    debiased_calibration_error,
    error_detection_auroc,
    row_negative_log_likelihoods,
)
from nearsure.report.answered import Answered
from nearsure.report.document import Estimate, Metric
from nearsure.report.plain import estimate_of, plain_number, share_of

# A true class that is not among the neighbours has probability 0, whose logarithm is infinite.
LEAST_PROBABILITY = 0.001


def headline_metrics(
    answered: Answered, own: RuleResult, *, seed: int, n_resamples: int
) -> tuple[Metric, ...]:
    """Accuracy, calibration, ranking, and what fits where queries may be unknown.

    Parameters
    ----------
    answered : Answered
        The queries.
    own : RuleResult
        What the comparison of methods has measured of the classifier.
    seed, n_resamples : int
        Of the bootstrap.
    """
    resampled = partial(_resampled, seed=seed, n_resamples=n_resamples)
    confidence, correct = answered.confidence, answered.correct
    losses = row_negative_log_likelihoods(
        answered.prediction.posterior, answered.codes, floor=LEAST_PROBABILITY
    )
    return (
        Metric(
            "accuracy",
            "Accuracy",
            share_of(int(correct.sum()), len(correct)),
            lower_is_better=False,
            percent=True,
            meaning="Share of the answers that are right.",
        ),
        Metric(
            "mean_confidence",
            "Mean confidence",
            resampled(np.mean, confidence, bounds=(0.0, 1.0)),
            lower_is_better=False,
            percent=True,
            meaning="What the answers claim on average; it should equal the accuracy.",
        ),
        Metric(
            "ece",
            "Calibration error (ECE)",
            estimate_of(own.ece),
            lower_is_better=True,
            percent=True,
            meaning="How far confidence lies from accuracy, averaged over 15 bins. A perfectly "
            "calibrated method would show its floor by chance. The interval is for the true "
            "error, without what chance adds to this estimate, and may lie below it.",
            floor=plain_number(own.ece_floor),
        ),
        Metric(
            "debiased_ece",
            "Debiased ECE",
            resampled(debiased_calibration_error, confidence, correct),
            lower_is_better=True,
            percent=True,
            meaning="The calibration error less an estimate of what chance adds to it; it may be "
            "below 0.",
        ),
        Metric(
            "brier",
            "Brier score",
            estimate_of(own.brier),
            lower_is_better=True,
            percent=False,
            meaning="Squared error of all class probabilities, from 0 to 2: accuracy and "
            "calibration in one.",
        ),
        Metric(
            "nll",
            "Log loss",
            resampled(np.mean, losses, bounds=(0.0, -np.log(LEAST_PROBABILITY))),
            lower_is_better=True,
            percent=False,
            meaning="Mean of -log p(true class); a probability below "
            f"{LEAST_PROBABILITY} counts as {LEAST_PROBABILITY}.",
        ),
        Metric(
            "aurc",
            "Area under risk-coverage",
            resampled(area_under_risk_coverage, confidence, correct),
            lower_is_better=True,
            percent=True,
            meaning="Share of wrong answers among those accepted, averaged over all thresholds.",
        ),
        Metric(
            "error_auroc",
            "Error detection (AUROC)",
            resampled(error_detection_auroc, confidence, correct),
            lower_is_better=False,
            percent=True,
            meaning="How often a right answer is surer than a wrong one; 50% is chance.",
        ),
        *_unknown_metrics(answered, resampled),
    )


def _unknown_metrics(answered: Answered, resampled: Callable[..., Estimate]) -> tuple[Metric, ...]:
    """What fits where queries are, or are expected to be, of classes that the gallery lacks."""
    known, prediction = answered.known, answered.prediction
    found: list[Metric] = []
    if not known.all() and known.any():
        found.append(
            Metric(
                "known_accuracy",
                "Accuracy on known classes",
                share_of(int(answered.correct.sum()), int(known.sum())),
                lower_is_better=False,
                percent=True,
                meaning="Share of right answers among queries of classes that the gallery has.",
            )
        )
    if prediction.p_known is None or prediction.verdicts is None:
        return tuple(found)
    refused = prediction.verdicts == "unknown"
    if not known.all():
        found.append(
            Metric(
                "unknown_caught",
                "Unknowns recognised",
                share_of(int(refused[~known].sum()), int((~known).sum())),
                lower_is_better=False,
                percent=True,
                meaning="Share of the queries of other classes that are called unknown.",
            )
        )
    if known.any():
        found.append(
            Metric(
                "known_refused",
                "Known queries called unknown",
                share_of(int(refused[known].sum()), int(known.sum())),
                lower_is_better=True,
                percent=True,
                meaning="Share of the queries of the gallery's classes that are called unknown.",
            )
        )
    if known.any() and not known.all():
        found.append(
            Metric(
                "unknown_auroc",
                "Unknown detection (AUROC)",
                resampled(error_detection_auroc, prediction.p_known, known),
                lower_is_better=False,
                percent=True,
                meaning="How often a known query has a higher p(known) than an unknown one; 50% is "
                "chance.",
            )
        )
    return tuple(found)


def _resampled(
    metric: Callable[..., float],
    *data: ArrayLike,
    seed: int,
    n_resamples: int,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    return estimate_of(
        bootstrap_interval(metric, *data, seed=seed, n_resamples=n_resamples, bounds=bounds)
    )
