"""Scores of single predictions: accuracy, Brier, likelihood, detection of errors."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.bootstrap import bounded
from nearsure.posterior import Posterior
from nearsure.validation import check_correct, check_labels, check_open_fraction, check_scored


@bounded(0.0, 1.0)
def accuracy(correct: ArrayLike) -> float:
    """Return the fraction of rows that are right.

    Parameters
    ----------
    correct : array-like of shape (n,)
        Whether each prediction is right: boolean, or 0 and 1.

    Returns
    -------
    float
        The accuracy, in [0, 1].

    Examples
    --------
    >>> accuracy([True, True, False, True])
    0.75
    """
    return float(check_correct(correct).mean())


@bounded(0.0, 2.0)
def brier_score(posterior: Posterior, labels: ArrayLike) -> float:
    """Return the multiclass Brier score: the mean over rows of the sum over classes.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes. A code that the row's posterior does not hold, or that is no class of it
        at all, is a class of probability 0: the row scores the sum of its squares plus 1.

    Returns
    -------
    float
        The score, in [0, 2]; 0 is best. With two classes it is twice the binary Brier score, as
        scikit-learn's ``brier_score_loss(..., scale_by_half=False)``.

    References
    ----------
    Brier: Verification of Forecasts Expressed in Terms of Probability. Monthly Weather Review
    78(1), 1950.

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(
    ...     np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.75, 0.25, 1.0]), n_classes=3
    ... )
    >>> brier_score(posterior, [0, 2])  # (1/16 + 1/16) and (1 + 1)
    1.0625
    """
    return float(np.mean(row_brier_scores(posterior, labels)))


def row_brier_scores(posterior: Posterior, labels: ArrayLike) -> FloatArray:
    """Return the Brier score of each row.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes, as in :func:`brier_score`.

    Returns
    -------
    ndarray of shape (n,)
        The sum over classes of (probability - [class is true])^2, in [0, 2].

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(
    ...     np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.75, 0.25, 1.0]), n_classes=3
    ... )
    >>> row_brier_scores(posterior, [0, 2]).tolist()
    [0.125, 2.0]
    """
    true_codes = check_labels(labels, n_rows=len(posterior))
    is_true = posterior.codes == true_codes[posterior.rows]
    scores = np.bincount(
        posterior.rows, (posterior.probabilities - is_true) ** 2, minlength=len(posterior)
    )
    has_true = np.bincount(posterior.rows, is_true, minlength=len(posterior))
    # A true class without an entry has probability 0 and adds (0 - 1)^2.
    return scores + (1.0 - has_true)


@bounded(0.0, inf)
def negative_log_likelihood(
    posterior: Posterior, labels: ArrayLike, *, floor: float | None = None
) -> float:
    """Return the mean over rows of -log p(true class), in nats.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes. A code that the row's posterior does not hold, or that is no class of it
        at all, is a class of probability 0.
    floor : float, optional
        Smallest probability that is scored, in (0, 1). By default nothing is raised to a floor, and
        **one row whose true class has probability 0 makes the result infinite**. That is common
        for nearest neighbours: the true class need not be among them. With a floor the value
        depends on it, so report the two together.

    Returns
    -------
    float
        The mean, at least 0; infinity if a true class has probability 0 and there is no floor.

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(
    ...     np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.75, 0.25, 1.0]), n_classes=3
    ... )
    >>> round(negative_log_likelihood(posterior, [1, 1]), 4)  # log(4) / 2
    0.6931
    >>> negative_log_likelihood(posterior, [1, 2])
    inf
    >>> round(negative_log_likelihood(posterior, [1, 2], floor=1e-3), 4)
    4.147
    """
    return float(np.mean(row_negative_log_likelihoods(posterior, labels, floor=floor)))


def row_negative_log_likelihoods(
    posterior: Posterior, labels: ArrayLike, *, floor: float | None = None
) -> FloatArray:
    """Return -log p(true class) of each row, in nats.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes, as in :func:`negative_log_likelihood`.
    floor : float, optional
        Smallest probability that is scored, in (0, 1).

    Returns
    -------
    ndarray of shape (n,)
        At least 0; infinity where the true class has probability 0 and there is no floor.

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(np.array([0, 1]), np.array([1]), np.array([1.0]), n_classes=2)
    >>> row_negative_log_likelihoods(posterior, [0]).tolist()
    [inf]
    """
    probability = posterior.probability_of(check_labels(labels, n_rows=len(posterior)))
    if floor is not None:
        probability = np.maximum(probability, check_open_fraction("floor", floor))
    surprise = np.full(len(posterior), inf)
    possible = probability > 0
    surprise[possible] = -np.log(probability[possible]) + 0.0  # + 0.0 turns -0.0 into 0.0
    return surprise


@bounded(0.0, 1.0)
def error_detection_auroc(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the area under the ROC curve of confidence as a detector of right predictions.

    The chance that a right prediction drawn at random has a higher confidence than a wrong one,
    equal confidences counting one half. It does not depend on the accuracy, nor on calibration.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each prediction, in [0, 1].
    correct : array-like of shape (n,)
        Whether each prediction is right: boolean, or 0 and 1.

    Returns
    -------
    float
        The area in [0, 1], or NaN if all predictions are right or all are wrong: there is then
        no pair to compare. That is an ordinary outcome in a table of many small data sets, or in
        a bootstrap resample, so it is a value and not an error;
        :func:`~nearsure.metrics.bootstrap_interval` counts such resamples.

    References
    ----------
    Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in
    Neural Networks. ICLR 2017.

    Examples
    --------
    >>> error_detection_auroc([0.9, 0.8, 0.7, 0.6], [True, False, True, False])
    0.75
    >>> error_detection_auroc([0.9, 0.8], [True, True])
    nan
    """
    confidence, correct = check_scored(confidence, correct)
    n_right = int(correct.sum())
    n_wrong = len(correct) - n_right
    if n_right == 0 or n_wrong == 0:
        return float("nan")
    # Mann and Whitney: the rank sum of the right rows less its smallest possible value.
    rank_sum = float(np.sum(rankdata(confidence)[correct]))
    return (rank_sum - n_right * (n_right + 1) / 2) / (n_right * n_wrong)


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


@bounded(0.0, 1.0)
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
