"""Maximum calibration error: the gap of the worst bin."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.metrics.binning import Binning, bin_by_confidence
from nearsure.metrics.traits import declare


@declare(0.0, 1.0)
def maximum_calibration_error(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
) -> float:
    """Return the maximum calibration error (MCE).

    The largest absolute gap between mean confidence and accuracy of an occupied bin. A bin of one
    row counts as much as a bin of a thousand, so with equal width the value is often that of the
    emptiest bin; equal mass is steadier.

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
        :func:`~nearsure.metrics.bin_by_confidence`.

    Returns
    -------
    float
        The error, a fraction in [0, 1].

    References
    ----------
    Naeini, Cooper, Hauskrecht: Obtaining Well Calibrated Probabilities Using Bayesian Binning.
    AAAI 2015.

    Examples
    --------
    >>> maximum_calibration_error([0.25, 0.75, 0.75, 0.75], [1, 1, 1, 1])
    0.75
    """
    bins = bin_by_confidence(confidence, correct, n_bins=n_bins, binning=binning)
    return float(np.nanmax(np.abs(bins.gap)))
