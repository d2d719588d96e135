"""Expected calibration error: the mean gap between confidence and accuracy."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.metrics.binning import Binning, bin_by_confidence
from nearsure.metrics.traits import declare


@declare(0.0, 1.0)
def expected_calibration_error(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
) -> float:
    """Return the expected calibration error (ECE).

    The mean over rows of the absolute gap between mean confidence and accuracy of the row's bin.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each prediction, in [0, 1].
    correct : array-like of shape (n,)
        Whether each prediction is right: boolean, or 0 and 1.
    n_bins : int, default=15
        Number of bins.
    binning : {"width", "mass"}, default="width"
        Bins of equal width or of equally many rows; see
        :func:`~nearsure.metrics.bin_by_confidence`, also for confidences on an edge.

    Returns
    -------
    float
        The error, a fraction in [0, 1].

    See Also
    --------
    calibration_floor : What a perfectly calibrated forecaster would get on as many rows.
    debiased_calibration_error : The same with its upward bias taken off.

    References
    ----------
    Naeini, Cooper, Hauskrecht: Obtaining Well Calibrated Probabilities Using Bayesian Binning.
    AAAI 2015. Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks. ICML 2017.

    Examples
    --------
    >>> expected_calibration_error([0.75, 0.75, 0.75, 0.75], [True, True, False, False])
    0.25
    """
    bins = bin_by_confidence(confidence, correct, n_bins=n_bins, binning=binning)
    return float(np.nansum(bins.weights * np.abs(bins.gap)))
