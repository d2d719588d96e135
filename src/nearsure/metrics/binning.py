"""Rows grouped by confidence: the histogram under every calibration error.

Both kinds of bins are closed on the left and open on the right, [low, high), except the last,
which holds 1.0 too. That is the convention of ``numpy.histogram`` and of torchmetrics;
scikit-learn's ``calibration_curve`` and the code of Guo et al. (2017) close the other side. The
two differ only for confidences exactly on an edge, but those are common here: the votes of 20
neighbours are multiples of 1/20, and four of them are multiples of 1/15.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_positive_integer, check_scored

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
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
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
    first_of_bin = np.flatnonzero(np.diff(mass_bins(_first_of_ties(ordered), len(ordered), n_bins)))
    inner = ordered[first_of_bin + 1]
    edges = np.concatenate(([0.0], inner, [1.0]))
    return edges, np.searchsorted(inner, confidence, side="right").astype(np.int64)


def width_bins(confidence: FloatArray, n_bins: int) -> IntArray:
    """Return the equal-width bin of each confidence."""
    inner = np.arange(1, n_bins) / n_bins - EDGE_TOLERANCE
    return np.searchsorted(inner, confidence, side="right").astype(np.int64)


def mass_bins(ranks: IntArray, n_rows: int, n_bins: int) -> IntArray:
    """Return the equal-mass bin of each rank in 0..n_rows - 1, lowest confidence first."""
    size, larger = divmod(n_rows, n_bins)
    in_larger = larger * (size + 1)  # rows in the bins that hold one row more
    return np.where(
        ranks < in_larger,
        ranks // (size + 1),
        larger + (ranks - in_larger) // max(size, 1),
    )


def check_binning(binning: str) -> None:
    """Raise unless ``binning`` is one of the two kinds."""
    if binning not in get_args(Binning):
        raise InvalidInputError(
            f"The 'binning' parameter must be 'width' or 'mass'. Got {binning!r} instead."
        )


def _first_of_ties(ordered: FloatArray) -> IntArray:
    return np.searchsorted(ordered, ordered, side="left").astype(np.int64)
