"""How good predictions and their confidence are.

Metrics of ``confidence`` (n,) and ``correct`` (n,) serve any classifier; those of a posterior need
all of its probabilities. Values are fractions, never percent. `bootstrap_interval` puts an
interval on each of them: ``bootstrap_interval(expected_calibration_error, confidence, correct,
seed=0)``.
"""

from nearsure.metrics.bootstrap import Interval, bootstrap_interval
from nearsure.metrics.calibration_error import (
    Binning,
    Bins,
    bin_by_confidence,
    calibration_floor,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from nearsure.metrics.scores import (
    RiskCoverageCurve,
    accuracy,
    area_under_risk_coverage,
    brier_score,
    error_detection_auroc,
    negative_log_likelihood,
    risk_coverage_curve,
    row_brier_scores,
    row_negative_log_likelihoods,
)

__all__ = [
    "Binning",
    "Bins",
    "Interval",
    "RiskCoverageCurve",
    "accuracy",
    "area_under_risk_coverage",
    "bin_by_confidence",
    "bootstrap_interval",
    "brier_score",
    "calibration_floor",
    "classwise_calibration_error",
    "debiased_calibration_error",
    "error_detection_auroc",
    "expected_calibration_error",
    "maximum_calibration_error",
    "negative_log_likelihood",
    "risk_coverage_curve",
    "row_brier_scores",
    "row_negative_log_likelihoods",
]
