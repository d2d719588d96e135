"""Risk against coverage: what abstaining on the least confident rows buys."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.traits import declare
from nearsure.metrics.validation import check_scored


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Selective risk for every threshold on the confidence, highest threshold first.

    Attributes
    ----------
    coverage : ndarray of shape (m,)
        Fraction of rows with confidence of at least the threshold; ascending, ends at 1.
    risk : ndarray of shape (m,)
        Fraction of those rows that are wrong.
    threshold : ndarray of shape (m,)
        The m distinct confidences, descending.
    """

    coverage: FloatArray
    risk: FloatArray
    threshold: FloatArray

    def __post_init__(self) -> None:
        if not self.coverage.shape == self.risk.shape == self.threshold.shape:
            raise InvalidInputError(
                f"A risk-coverage curve must have one coverage, risk and threshold per point. Got "
                f"shapes {self.coverage.shape}, {self.risk.shape} and {self.threshold.shape} "
                f"instead: build it with risk_coverage_curve."
            )

    def __len__(self) -> int:
        return len(self.coverage)


def risk_coverage_curve(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverageCurve:
    """Return the selective risk for every threshold on the confidence.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each prediction, in [0, 1].
    correct : array-like of shape (n,)
        Whether each prediction is right: boolean, or 0 and 1.

    Returns
    -------
    RiskCoverageCurve
        One point for each distinct confidence: rows of equal confidence are accepted together, as
        a threshold cannot tell them apart, so the order of the rows does not matter.

    References
    ----------
    El-Yaniv, Wiener: On the Foundations of Noise-free Selective Classification. JMLR 2010.

    Examples
    --------
    >>> curve = risk_coverage_curve([0.9, 0.6, 0.6, 0.2], [1, 1, 0, 0])
    >>> curve.coverage.tolist(), curve.threshold.tolist()
    ([0.25, 0.75, 1.0], [0.9, 0.6, 0.2])
    >>> curve.risk.round(3).tolist()
    [0.0, 0.333, 0.5]
    """
    accepted, errors, threshold = _accepted_and_errors(*check_scored(confidence, correct))
    return RiskCoverageCurve(accepted / accepted[-1], errors / accepted, threshold)


@declare(0.0, 1.0)
def area_under_risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the area under the risk-coverage curve (AURC); smaller is better.

    The mean of the selective risk over the coverages 1/n, 2/n, ..., 1. Where rows of equal
    confidence could be accepted in any order, the mean is also over all those orders, so that the
    order of the rows does not matter and a constant confidence has the overall error rate as area.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each prediction, in [0, 1].
    correct : array-like of shape (n,)
        Whether each prediction is right: boolean, or 0 and 1.

    Returns
    -------
    float
        The area, a fraction in [0, 1]. It depends on the accuracy as well as on the ranking.

    References
    ----------
    Geifman, Uziel, El-Yaniv: Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers.
    ICLR 2019.

    Examples
    --------
    >>> area_under_risk_coverage([0.9, 0.8], [True, False])  # risks 0 and 1/2
    0.25
    >>> area_under_risk_coverage([0.7, 0.7], [True, False])
    0.5
    """
    accepted, errors, _ = _accepted_and_errors(*check_scored(confidence, correct))
    # Within a group of ties the expected number of errors grows linearly with each row accepted.
    ranks = np.arange(1, accepted[-1] + 1, dtype=np.float64)
    expected_errors = np.interp(ranks, np.append(0.0, accepted), np.append(0.0, errors))
    return float(np.mean(expected_errors / ranks))


def _accepted_and_errors(
    confidence: FloatArray, correct: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows accepted, errors among them and threshold, for each distinct confidence."""
    threshold, group = np.unique(confidence, return_inverse=True)
    rows = np.bincount(group)
    wrong = np.bincount(group, weights=~np.asarray(correct))
    accepted = np.cumsum(rows[::-1]).astype(np.float64)
    return accepted, np.cumsum(wrong[::-1]), threshold[::-1]
