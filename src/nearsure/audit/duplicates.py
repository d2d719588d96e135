"""Points that are nearly the same and yet labelled differently."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.audit.support_points import support_points
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors

# A tenth of the usual distance to the nearest neighbour, squared.
RELATIVE_THRESHOLD = 0.01


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Pairs of nearly identical points; `near_duplicates_across_classes` makes it.

    Parameters
    ----------
    ids : array of shape (n_pairs, 2)
        The two points, in the order of their rows; each pair once, nearest first.
    codes : array of shape (n_pairs, 2)
        Their class codes, which differ.
    sq_distances : array of shape (n_pairs,)
        Squared distance of the two.
    threshold : float
        The largest squared distance that counted as nearly identical.
    """

    ids: AnyArray
    codes: IntArray
    sq_distances: FloatArray
    threshold: float

    def __len__(self) -> int:
        return len(self.sq_distances)


def near_duplicates_across_classes(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    relative_threshold: float = RELATIVE_THRESHOLD,
) -> NearDuplicates:
    """Find pairs that are nearly the same point but differ in their label.

    One of the two labels is wrong, or the two classes cannot be told apart there. A pair is seen
    only where one of the two is among the k nearest of the other: with more than k copies of a
    point, some pairs may be missing.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    ids : array of shape (n,), optional
        Identity of each point, by which `neighbors` names it; by default its row number.
    relative_threshold : float
        Two points are nearly identical up to this many times the median squared distance between
        a point and its nearest neighbour. The default of 0.01 is a tenth of that distance. With 0,
        only exact duplicates count; so too in a gallery where most points have one.

    Returns
    -------
    NearDuplicates

    Examples
    --------
    >>> neighbors = Neighbors(
    ...     [[0.001, 4.0], [0.001, 4.0], [1.0, 4.0], [1.0, 5.0]],
    ...     [[1, 0], [0, 0], [1, 0], [0, 1]],
    ...     ids=[[1, 2], [0, 2], [3, 0], [2, 1]],
    ... )
    >>> near_duplicates_across_classes(neighbors, [0, 1, 0, 1]).ids
    array([[0, 1]])
    """
    points = support_points(neighbors, codes, ids)
    if not 0 <= relative_threshold < np.inf:
        raise InvalidInputError(
            f"relative_threshold must be a finite number >= 0. Got {relative_threshold} instead."
        )
    nearest = neighbors.sq_distances[neighbors.counts > 0, 0]
    threshold = float(relative_threshold * np.median(nearest)) if nearest.size else 0.0
    sq_distances = neighbors.sq_distances[neighbors.valid]
    found = (sq_distances <= threshold) & (
        points.codes[points.asking] != points.codes[points.asked]
    )
    pairs = np.sort(np.column_stack([points.asking[found], points.asked[found]]), axis=1)
    sq_distances = sq_distances[found]
    # Both may have found each other, at distances that an engine rounded differently.
    nearest_first = np.lexsort((sq_distances, pairs[:, 1], pairs[:, 0]))
    pairs, once = np.unique(pairs[nearest_first], axis=0, return_index=True)
    sq_distances = sq_distances[nearest_first][once]
    ranked = np.argsort(sq_distances, kind="stable")
    rows = pairs[ranked]
    return NearDuplicates(points.ids[rows], points.codes[rows], sq_distances[ranked], threshold)
