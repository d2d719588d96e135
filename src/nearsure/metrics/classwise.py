"""Classwise calibration error: every class's probability held against its frequency."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.binning import Binning, check_binning, mass_bins, width_bins
from nearsure.metrics.traits import declare
from nearsure.metrics.validation import check_labels, check_positive_integer
from nearsure.posterior import Posterior


@declare(0.0, 1.0)
def classwise_calibration_error(
    posterior: Posterior,
    labels: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
) -> float:
    """Return the mean over classes of the ECE of the class's probability.

    For each class, the probability that the n rows give it, zeros included, is the confidence, and
    whether it is the true class is the outcome. Time and memory grow with the entries of the
    posterior and with ``n_classes * n_bins``, never with ``n * n_classes``.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries over ``posterior.n_classes`` classes.
    labels : array-like of shape (n,)
        True class codes. A code outside ``0 .. n_classes - 1`` is a class never seen: the row
        counts as a miss for every class.
    n_bins : int, default=15
        Number of bins.
    binning : {"width", "mass"}, default="width"
        Bins of equal width or of equally many rows; see
        :func:`~nearsure.metrics.bin_by_confidence`. With many classes most rows give a class
        probability 0; as ties they are one bin of mass.

    Returns
    -------
    float
        The error, a fraction in [0, 1]. As most probabilities of many classes are rightly 0, it
        shrinks about as 1 / n_classes: compare it only at the same number of classes.

    References
    ----------
    Kull et al.: Beyond Temperature Scaling: Obtaining Well-calibrated Multi-class Probabilities
    with Dirichlet Calibration. NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(
    ...     np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.75, 0.25, 1.0]), n_classes=2
    ... )
    >>> classwise_calibration_error(posterior, [0, 1])
    0.125
    """
    true_codes = check_labels(labels, n_rows=len(posterior))
    n_bins = check_positive_integer("n_bins", n_bins)
    check_binning(binning)
    if posterior.n_classes < 1:
        raise InvalidInputError(
            "The 'posterior' parameter must have at least one class. Got 0 classes instead: the "
            "mean over classes is not defined."
        )
    # A stored 0 is the same as no entry.
    stored = posterior.probabilities > 0
    codes, rows = posterior.codes[stored], posterior.rows[stored]
    probabilities = posterior.probabilities[stored]
    if binning == "width":
        bins = width_bins(probabilities, n_bins)
    else:
        bins = _mass_bins_by_class(codes, probabilities, len(posterior), n_bins)

    # A class's ECE is (1/n) sum over bins |sum of probability - number of hits|: the counts of the
    # bins cancel, so the rows of probability 0 matter only where the class is true.
    is_true = codes == true_codes[rows]
    excess = np.bincount(
        codes * n_bins + bins,
        probabilities - is_true,
        minlength=posterior.n_classes * n_bins,
    )
    missed = np.ones(len(posterior), np.bool_)
    missed[rows[is_true]] = False
    missed &= (true_codes >= 0) & (true_codes < posterior.n_classes)
    np.subtract.at(excess, true_codes[missed] * n_bins, 1.0)  # probability 0 is in the first bin
    return float(np.abs(excess).sum() / (len(posterior) * posterior.n_classes))


def _mass_bins_by_class(
    codes: IntArray, probabilities: FloatArray, n_rows: int, n_bins: int
) -> IntArray:
    """Return the equal-mass bin of each positive entry among the n_rows values of its class."""
    order = np.lexsort((probabilities, codes))
    sorted_codes, sorted_probabilities = codes[order], probabilities[order]
    places = np.arange(len(order))
    starts_class = np.diff(sorted_codes, prepend=-1) != 0
    starts_tie = starts_class | (np.diff(sorted_probabilities, prepend=-1.0) != 0)
    first_of_class = np.maximum.accumulate(np.where(starts_class, places, 0))
    first_of_tie = np.maximum.accumulate(np.where(starts_tie, places, 0))
    n_zeros = n_rows - np.bincount(codes)[sorted_codes]
    bins = np.empty(len(order), np.int64)
    bins[order] = mass_bins(n_zeros + first_of_tie - first_of_class, n_rows, n_bins)
    return bins
