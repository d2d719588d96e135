"""Calibration errors: bins of confidence, and the gap between confidence and accuracy."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.bootstrap import bounded
from nearsure.posterior import Posterior
from nearsure.validation import (
    check_confidence,
    check_labels,
    check_positive_integer,
    check_scored,
    generator_of,
)

# Rows grouped by confidence: the histogram under every calibration error.
#
# Both kinds of bins are closed on the left and open on the right, [low, high), except the last,
# which holds 1.0 too. That is the convention of ``numpy.histogram`` and of torchmetrics;
# scikit-learn's ``calibration_curve`` and the code of Guo et al. (2017) close the other side. The
# two differ only for confidences exactly on an edge, but those are common here: the votes of 20
# neighbours are multiples of 1/20, and four of them are multiples of 1/15.


Binning: TypeAlias = Literal["width", "mass"]

# Six votes of 1/15 add up to 0.39999999999999997, and float32 keeps 0.7 as 0.69999999. A confidence
# short of an edge by less than this counts as on the edge.
EDGE_TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows grouped by confidence.

    Attributes
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Ascending from 0 to 1; bin ``i`` is ``[edges[i], edges[i + 1])``, the last one closed.
    counts : ndarray of shape (n_bins,)
        Rows in each bin.
    mean_confidence : ndarray of shape (n_bins,)
        Mean confidence of each bin's rows; NaN where the bin is empty.
    accuracy : ndarray of shape (n_bins,)
        Fraction of each bin's rows that are right; NaN where the bin is empty.
    """

    edges: FloatArray
    counts: IntArray
    mean_confidence: FloatArray
    accuracy: FloatArray

    def __post_init__(self) -> None:
        shapes = {self.counts.shape, self.mean_confidence.shape, self.accuracy.shape}
        if shapes != {(len(self.edges) - 1,)} or (np.diff(self.edges) < 0).any():
            raise InvalidInputError(
                f"Bins must have n_bins + 1 ascending edges and one count, mean confidence and "
                f"accuracy for each bin. Got {len(self.edges)} edges and shapes "
                f"{sorted(shapes)} instead: build them with bin_by_confidence."
            )

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def gap(self) -> FloatArray:
        """Mean confidence minus accuracy, (n_bins,): positive where over-confident."""
        return self.mean_confidence - self.accuracy

    @property
    def weights(self) -> FloatArray:
        """Fraction of all rows that each bin holds, (n_bins,)."""
        return self.counts / float(self.counts.sum())


def bin_by_confidence(
    confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 15, binning: Binning = "width"
) -> Bins:
    """Group rows by confidence.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each prediction, in [0, 1].
    correct : array-like of shape (n,)
        Whether each prediction is right: boolean, or 0 and 1.
    n_bins : int, default=15
        Number of bins.
    binning : {"width", "mass"}, default="width"
        ``"width"``: exactly ``n_bins`` bins of equal width; some may be empty. ``"mass"``: bins of
        equally many rows, the first ``n % n_bins`` one row larger, none of them empty. Equal
        confidences are never split: all go to the bin in which the first of them falls, so that
        the result does not depend on the order of the rows; ties may therefore leave fewer than
        ``n_bins`` bins.

    Returns
    -------
    Bins
        Edges, counts, mean confidence and accuracy of each bin.

    Notes
    -----
    Bins are ``[low, high)`` and the last holds 1.0 too. With equal width, a confidence below an
    edge by less than 1e-7 counts as on the edge, so that rounding of sums or of float32 does not
    decide the bin.

    Examples
    --------
    >>> bins = bin_by_confidence([0.1, 0.5, 0.9, 1.0], [0, 0, 1, 1], n_bins=2)
    >>> bins.edges.tolist(), bins.counts.tolist()
    ([0.0, 0.5, 1.0], [1, 3])
    >>> bins.accuracy.round(3).tolist()
    [0.0, 0.667]
    """
    confidence, correct = check_scored(confidence, correct)
    edges, assignment = assign_bins(confidence, n_bins=n_bins, binning=binning)
    total = len(edges) - 1
    counts = np.bincount(assignment, minlength=total).astype(np.int64)
    occupied = counts > 0
    mean_confidence = np.full(total, np.nan)
    bin_accuracy = np.full(total, np.nan)
    sums = np.bincount(assignment, weights=confidence, minlength=total)
    hits = np.bincount(assignment, weights=correct, minlength=total)
    mean_confidence[occupied] = sums[occupied] / counts[occupied]
    bin_accuracy[occupied] = hits[occupied] / counts[occupied]
    return Bins(edges, counts, mean_confidence, bin_accuracy)


def assign_bins(
    confidence: FloatArray, *, n_bins: int, binning: Binning
) -> tuple[FloatArray, IntArray]:
    """Return the edges (n_bins + 1,) and the bin of each row (n,) of checked confidences."""
    n_bins = check_positive_integer("n_bins", n_bins)
    check_binning(binning)
    if binning == "width":
        # Not linspace: i / n is the float nearest to the fraction, as a share of votes is.
        edges = np.arange(n_bins + 1) / n_bins
        return edges, width_bins(confidence, n_bins)
    ordered = np.sort(confidence)
    inner = ordered[find_bin_starts(find_runs(ordered), len(ordered), n_bins)[1:]]
    edges = np.concatenate(([0.0], inner, [1.0]))
    return edges, np.searchsorted(inner, confidence, side="right").astype(np.int64)


def find_runs(ordered: FloatArray) -> IntArray:
    """Return the first row of each run of equal confidences, (n_distinct,), of sorted ones."""
    return np.flatnonzero(np.diff(ordered, prepend=-1.0)).astype(np.int64)


def find_bin_starts(runs: IntArray, n_rows: int, n_bins: int) -> IntArray:
    """Return the first row of each equal-mass bin, ascending from 0; at most n_bins of them.

    The first ``n_rows % n_bins`` bins are one row larger, and a run of equal confidences goes whole
    to the bin that its first row is in.

    Parameters
    ----------
    runs : array of shape (n_distinct,)
        What `find_runs` gave.
    n_rows, n_bins : int
        Rows in all, and how many bins are wanted.
    """
    size, n_larger = divmod(n_rows, n_bins)
    bins = np.arange(min(n_bins, n_rows))
    first_run = np.searchsorted(runs, bins * size + np.minimum(bins, n_larger))
    return runs[np.unique(first_run[first_run < len(runs)])]


def width_bins(confidence: FloatArray, n_bins: int) -> IntArray:
    """Return the equal-width bin of each confidence."""
    inner = np.arange(1, n_bins) / n_bins - EDGE_TOLERANCE
    return np.searchsorted(inner, confidence, side="right").astype(np.int64)


def mass_bins(ranks: IntArray, n_rows: int, n_bins: int) -> IntArray:
    """Return the equal-mass bin of each rank in 0..n_rows - 1, lowest confidence first."""
    size, larger = divmod(n_rows, n_bins)
    in_larger = larger * (size + 1)  # rows in the bins that hold one row more
    return np.where(
        ranks < in_larger, ranks // (size + 1), larger + (ranks - in_larger) // max(size, 1)
    )


def check_binning(binning: str) -> None:
    """Raise unless ``binning`` is one of the two kinds."""
    if binning not in get_args(Binning):
        raise InvalidInputError(
            f"The 'binning' parameter must be 'width' or 'mass'. Got {binning!r} instead."
        )


@bounded(0.0, 1.0)
def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 15, binning: Binning = "width"
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


@bounded(0.0, 1.0)
def maximum_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 15, binning: Binning = "width"
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


@bounded(-1.0, 1.0, plug_in=expected_calibration_error)
def debiased_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 15, binning: Binning = "width"
) -> float:
    r"""Return the expected calibration error with its upward bias estimated and taken off.

    The accuracy of a bin scatters around its true value, and an absolute gap turns that scatter
    into error: the plug-in ECE of few rows is too large. As Kumar et al. do, the accuracy of each
    bin is taken as normal around the observed one, and the excess of the expected absolute gap
    over the observed one is subtracted. They sample that expectation; here it is exact.

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
        The estimate, a fraction. It is below 0 when the observed gaps are smaller than chance
        alone would make them, and it is not clipped: that would bring the bias back.

    Notes
    -----
    With gap :math:`\mu_b` and standard error :math:`\sigma_b = \sqrt{a_b (1 - a_b) / n_b}` of
    bin b, the estimate is
    :math:`\sum_b \frac{n_b}{n} (2 |\mu_b| - \mathrm{E} |N(\mu_b, \sigma_b^2)|)`, where
    :math:`\mathrm{E} |N(\mu, \sigma^2)| = \sigma \sqrt{2 / \pi} e^{-\mu^2 / 2 \sigma^2} +
    \mu (1 - 2 \Phi(-\mu / \sigma))` is the mean of the folded normal distribution. A bin whose
    rows are all right or all wrong, hence also a bin of one row, has standard error 0 and is left
    uncorrected: with few rows per bin the correction is too small.

    The correction is of first order. Where a bin's true gap is 0, it takes off
    :math:`\sqrt{2} - 1`, 41 %, of the bias; at 0.7 standard errors all of it; beyond, it takes
    off too much, by at most 0.09 standard errors, so that past 1.3 the plain error is closer.

    References
    ----------
    Kumar, Liang, Ma: Verified Uncertainty Calibration. NeurIPS 2019, appendix on the debiased
    estimator.

    Examples
    --------
    >>> confidence, correct = [0.6] * 50, [True] * 25 + [False] * 25
    >>> round(expected_calibration_error(confidence, correct), 3)
    0.1
    >>> round(debiased_calibration_error(confidence, correct), 3)
    0.095
    """
    bins = bin_by_confidence(confidence, correct, n_bins=n_bins, binning=binning)
    occupied = bins.counts > 0
    share = bins.accuracy[occupied]
    gap = np.abs(bins.gap[occupied])
    sigma = np.sqrt(share * (1.0 - share) / bins.counts[occupied])
    return float(np.sum(bins.weights[occupied] * (2.0 * gap - _mean_folded_normal(gap, sigma))))


def _mean_folded_normal(mu: FloatArray, sigma: FloatArray) -> FloatArray:
    """E|X| of X ~ N(mu, sigma^2), elementwise for mu >= 0; mu itself where sigma is 0."""
    mean = mu.copy()
    spread = sigma > 0
    z = mu[spread] / sigma[spread]
    density = np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi)
    mean[spread] = 2.0 * sigma[spread] * density + mu[spread] * (1.0 - 2.0 * ndtr(-z))
    return mean


@bounded(0.0, 1.0)
def classwise_calibration_error(
    posterior: Posterior, labels: ArrayLike, *, n_bins: int = 15, binning: Binning = "width"
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
        codes * n_bins + bins, probabilities - is_true, minlength=posterior.n_classes * n_bins
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


# Draws held in memory at once; the result does not depend on it.
MAX_DRAWS = 1 << 21


@bounded(0.0, 1.0)
def calibration_floor(
    confidence: ArrayLike,
    *,
    seed: int | np.random.Generator,
    n_bins: int = 15,
    binning: Binning = "width",
    n_simulations: int = 1000,
) -> float:
    """Return the expected ECE of a perfectly calibrated forecaster with these confidences.

    Even if every confidence were exactly the chance of being right, the ECE of finitely many rows
    would not be 0. An observed ECE is evidence only as far as it exceeds this floor.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each prediction, in [0, 1].
    seed : int or numpy.random.Generator
        Source of the simulated outcomes.
    n_bins : int, default=15
        Number of bins.
    binning : {"width", "mass"}, default="width"
        Bins of equal width or of equally many rows; see
        :func:`~nearsure.metrics.bin_by_confidence`.
    n_simulations : int, default=1000
        Simulated data sets. Each draws ``correct ~ Bernoulli(confidence)`` once per row.

    Returns
    -------
    float
        Mean ECE of the simulations, a fraction in [0, 1].

    Notes
    -----
    Rows are sorted first, so with an int seed the result does not depend on their order.

    References
    ----------
    Vaicenavicius et al.: Evaluating Model Calibration in Classification. AISTATS 2019, which
    simulates the same distribution (consistency resampling) for a test of calibration.

    Examples
    --------
    >>> calibration_floor([0.5] * 100, seed=0) > 0.03
    True
    >>> calibration_floor([0.0, 1.0], seed=0)
    0.0
    """
    n_simulations = check_positive_integer("n_simulations", n_simulations)
    ordered = np.sort(check_confidence(confidence))
    _, assignment = assign_bins(ordered, n_bins=n_bins, binning=binning)
    starts = np.flatnonzero(np.diff(assignment, prepend=-1))
    expected_hits = np.add.reduceat(ordered, starts)
    rng = generator_of(seed)
    total = 0.0
    per_chunk = max(1, MAX_DRAWS // len(ordered))
    for first in range(0, n_simulations, per_chunk):
        size = (min(per_chunk, n_simulations - first), len(ordered))
        hits = np.add.reduceat(rng.random(size) < ordered, starts, axis=1, dtype=np.int64)
        total += float(np.abs(hits - expected_hits).sum())
    return total / (n_simulations * len(ordered))
