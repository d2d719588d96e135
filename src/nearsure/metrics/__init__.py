"""How good predictions and their confidence are.

Metrics of ``confidence`` (n,) and ``correct`` (n,) serve any classifier; those of a posterior need
all of its probabilities. Values are fractions, never percent. `bootstrap_interval` puts an
interval on each of them: ``bootstrap_interval(expected_calibration_error, confidence, correct,
seed=0)``.
"""

from nearsure.metrics.binning import Binning, Bins, bin_by_confidence
from nearsure.metrics.bootstrap import Interval, bootstrap_interval
from nearsure.metrics.brier import brier_score, row_brier_scores
from nearsure.metrics.classwise import classwise_calibration_error
from nearsure.metrics.correctness import accuracy
from nearsure.metrics.debiased import debiased_calibration_error
from nearsure.metrics.error_detection import error_detection_auroc
from nearsure.metrics.expected import expected_calibration_error
from nearsure.metrics.floor import calibration_floor
from nearsure.metrics.likelihood import negative_log_likelihood, row_negative_log_likelihoods
from nearsure.metrics.maximum import maximum_calibration_error
from nearsure.metrics.risk_coverage import (
    RiskCoverageCurve,
    area_under_risk_coverage,
    risk_coverage_curve,
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
