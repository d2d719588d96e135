"""Error detection: how well confidence tells right from wrong."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from nearsure.metrics.traits import declare
from nearsure.metrics.validation import check_scored


@declare(0.0, 1.0)
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
