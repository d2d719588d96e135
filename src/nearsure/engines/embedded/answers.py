"""From rows and float32 distances to what the contract asks for, at little cost."""

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.engines.contract import Found


def found_of(
    sq_distances: FloatArray, ids: IntArray, labels: IntArray, k: int, *, sorted_ties: bool
) -> Found:
    """An answer of full rows, each cut or padded to k.

    Parameters
    ----------
    sq_distances, ids, labels : array of shape (n, n_found)
        Ascending in each row; n_found is at most k. They are the answer's from now on.
    k : int
        How many were asked for.
    sorted_ties : bool
        Whether equal distances are in the order of ids already.

    Examples
    --------
    >>> tied = np.array([[0.5, 2.0, 2.0]]), np.array([[4, 9, 7]]), np.array([[0, 1, 2]])
    >>> found = found_of(*tied, 3, sorted_ties=False)
    >>> found.ids, found.labels
    (array([[4, 7, 9]]), array([[0, 2, 1]]))
    """
    n, n_found = ids.shape
    if not sorted_ties:
        is_tied = sq_distances[:, 1:] == sq_distances[:, :-1]
        # One look at all; ties are rare, and only their rows are put in order.
        if is_tied.any():
            rows = np.flatnonzero(is_tied.any(axis=1))
            order = np.lexsort((ids[rows], sq_distances[rows]), axis=1)
            ids[rows] = np.take_along_axis(ids[rows], order, axis=1)
            labels[rows] = np.take_along_axis(labels[rows], order, axis=1)
    if n_found < k:
        sq_distances = _padded(sq_distances, k, np.inf)
        ids, labels = _padded(ids, k, -1), _padded(labels, k, -1)
    return Found(sq_distances, ids, np.full(n, n_found), labels)


def nothing_found(n: int, k: int) -> Found:
    """The answer of an engine without points."""
    nobody = np.full((n, k), -1)
    return Found(np.full((n, k), np.inf), nobody, np.zeros(n, np.int64), nobody.copy())


def _padded(values: AnyArray, k: int, nothing: float) -> AnyArray:
    padded = np.full((len(values), k), nothing, values.dtype)
    padded[:, : values.shape[1]] = values
    return padded
