"""The points of a gallery, checked, with each neighbour known by its row."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors


@dataclass(frozen=True, eq=False)
class SupportPoints:
    """Every point of a support set, with the points that stand around it.

    Parameters
    ----------
    ids : array of shape (n,)
        Identity of each point.
    codes : array of shape (n,)
        Class code of each point.
    asking, asked : array of shape (n_entries,)
        Rows of a point and of one of its neighbours, for each neighbour that is not padding, in
        the order of ``neighbors.sq_distances[neighbors.valid]``.
    """

    ids: AnyArray
    codes: IntArray
    asking: IntArray
    asked: IntArray


def checked_codes(neighbors: Neighbors, codes: ArrayLike) -> IntArray:
    """Class codes of the points that were searched; an error if they are no such thing."""
    found = np.asarray(codes)
    if found.shape != (len(neighbors),) or found.dtype.kind not in "iu" or found.min() < 0:
        raise InvalidInputError(
            f"codes must be one integer class code >= 0 for each of the {len(neighbors)} points. "
            f"Got an array of {found.dtype} of shape {found.shape} instead, or a negative code. "
            "classes, codes = numpy.unique(gallery_labels, return_inverse=True) makes them."
        )
    return found.astype(np.int64, copy=False)


def support_points(
    neighbors: Neighbors, codes: ArrayLike, ids: ArrayLike | None = None
) -> SupportPoints:
    """Find the row of each neighbour, and check that the neighbours are those of this gallery.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all support points, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    ids : array of shape (n,), optional
        Their identities, by which the neighbours name them; by default the row numbers.

    Examples
    --------
    >>> points = support_points(Neighbors([[1.0], [1.0]], [[5], [4]], [[8], [9]]), [4, 5], [9, 8])
    >>> points.asking, points.asked
    (array([0, 1]), array([1, 0]))
    """
    codes = checked_codes(neighbors, codes)
    if neighbors.ids is None:
        raise InvalidInputError(
            "neighbors must have ids, by which they are known among the points. Got none: pass "
            "ids= to the constructor of Neighbors; search_leaving_one_out gives them."
        )
    own = np.arange(len(codes)) if ids is None else np.asarray(ids)
    _check_own_ids(own, neighbors.ids, len(neighbors))
    asking = np.repeat(np.arange(len(codes)), neighbors.counts)
    asked = _rows_of(neighbors.ids[neighbors.valid], own)
    if (asking == asked).any():
        raise InvalidInputError(
            "neighbors must not hold a point among its own neighbours. "
            f"Got {np.sum(asking == asked)} such entries: leave_one_out removes them."
        )
    n_stale = int((neighbors.labels[neighbors.valid] != codes[asked]).sum())
    if n_stale:
        raise InvalidInputError(
            "neighbors must carry the same labels as codes. "
            f"Got {n_stale} neighbours whose label is not the code of the point of that id."
        )
    return SupportPoints(own, codes, asking, asked)


def _check_own_ids(own: AnyArray, neighbor_ids: AnyArray, n_points: int) -> None:
    if own.shape != (n_points,):
        raise InvalidInputError(
            f"ids must be one id for each of the {n_points} points. "
            f"Got an array of shape {own.shape} instead."
        )
    if (own.dtype.kind in "iu") != (neighbor_ids.dtype.kind in "iu"):
        raise InvalidInputError(
            f"ids must be of the kind of the neighbours' ids, {neighbor_ids.dtype}. "
            f"Got {own.dtype} instead; without ids= they are row numbers."
        )
    n_distinct = len(np.unique(own))
    if n_distinct < n_points:
        raise InvalidInputError(
            f"ids must differ from point to point. Got {n_distinct} ids for {n_points} points."
        )


def _rows_of(wanted: AnyArray, own: AnyArray) -> IntArray:
    order = np.argsort(own)
    places = np.minimum(np.searchsorted(own[order], wanted), len(own) - 1)
    rows = order[places]
    unknown = own[rows] != wanted
    if unknown.any():
        raise InvalidInputError(
            "neighbors must name points of this gallery alone, by the ids of the points. "
            f"Got {np.sum(unknown)} others, such as {wanted[unknown][0]!r}: audit all support "
            "points together, and pass ids= where ids are not row numbers."
        )
    return rows
