"""How widely each class lies about its members, measured on neighbours and shrunk."""

import numpy as np

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors


def class_scale_ratios(
    neighbors: Neighbors, codes: IntArray, *, n_classes: int
) -> tuple[FloatArray, FloatArray]:
    """Scale of each class over the mean scale, and what it is without each point itself.

    A point's scale is its squared distance to the nearest other member of its class; where none
    is among its neighbours, that to its farthest neighbour, which is not farther. A class's scale
    is the mean of its points', shrunk towards that of all: n_j points count n_j, and the mean of
    all counts as many as the spread within classes is larger than that between them (variances,
    by moments). Classes that differ by no more than chance all get 1.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of n support points.
    codes : array of shape (n,)
        Their class codes.
    n_classes : int
        Number of classes, above every code.

    Returns
    -------
    ratios : array of shape (n_classes,)
        1 for a class without a known scale: of one member or none.
    own_ratios : array of shape (n,)
        The ratio of each point's own class, measured on its other points.

    Examples
    --------
    Two points of class 0 are near each other, two of class 1 are far:

    >>> pairs = Neighbors([[1.0], [1.0], [9.0], [9.0]], [[0], [0], [1], [1]])
    >>> class_scale_ratios(pairs, np.array([0, 0, 1, 1]), n_classes=2)[0]
    array([0.2, 1.8])
    """
    if codes.min() < 0 or codes.max() >= n_classes:
        raise InvalidInputError(
            f"codes must lie in [0, {n_classes}), the number of classes. "
            f"Got {codes.min()} to {codes.max()} instead."
        )
    scales = _point_scales(neighbors, codes)
    # A lone member has nothing to be near to, and a row of padding no distance at all.
    known = (np.bincount(codes, minlength=n_classes)[codes] > 1) & (neighbors.counts > 0)
    scales = np.where(known, scales, 0.0)
    counts = _class_sums(known.astype(np.float64), codes, n_classes)
    sums = _class_sums(scales, codes, n_classes)
    overall = sums.sum() / max(counts.sum(), 1.0)
    if overall == 0:
        return np.ones(n_classes), np.ones(len(codes))
    prior_points = _prior_points(scales, codes, known, counts, sums)
    if np.isinf(prior_points):
        return np.ones(n_classes), np.ones(len(codes))
    ratios = _shrunk(sums / overall, counts, prior_points)
    own_ratios = _shrunk(
        (sums[codes] - scales) / overall, np.where(known, counts[codes] - 1.0, 0.0), prior_points
    )
    # A class of exact duplicates has the scale 0; a kernel needs some width.
    smallest = ratios[ratios > 0].min()
    return np.maximum(ratios, smallest), np.maximum(own_ratios, smallest)


def _point_scales(neighbors: Neighbors, codes: IntArray) -> FloatArray:
    own = neighbors.labels == codes[:, None]
    last = np.maximum(neighbors.counts - 1, 0)
    column = np.where(own.any(axis=1), own.argmax(axis=1), last)
    return np.take_along_axis(neighbors.sq_distances, column[:, None], axis=1)[:, 0]


def _class_sums(entries: FloatArray, codes: IntArray, n_classes: int) -> FloatArray:
    return np.asarray(np.bincount(codes, entries, minlength=n_classes), np.float64)


def _shrunk(sums: FloatArray, counts: FloatArray, prior_points: float) -> FloatArray:
    weight = counts + prior_points
    return np.divide(sums + prior_points, weight, out=np.ones_like(weight), where=weight > 0)


def _prior_points(
    scales: FloatArray, codes: IntArray, known: BoolArray, counts: FloatArray, sums: FloatArray
) -> float:
    """Variance within classes over that between: the points that the overall mean counts as.

    The unbiased estimators of one-way analysis of variance, for classes of unequal size.
    """
    present = counts > 0
    n, n_present = counts.sum(), int(present.sum())
    if n_present < 2 or n <= n_present:  # noqa: PLR2004
        return np.inf
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=present)
    within = np.where(known, scales - means[codes], 0.0)
    within_variance = float(np.vecdot(within, within)) / (n - n_present)
    effective_size = (n - np.square(counts).sum() / n) / (n_present - 1)
    between_square = float((counts * np.square(means - sums.sum() / n)).sum()) / (n_present - 1)
    between_variance = (between_square - within_variance) / effective_size
    return within_variance / between_variance if between_variance > 0 else np.inf
