"""From what an engine lists to what nearsure reads: refined, sorted, cut and counted."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.engines.contract import Found
from nearsure.errors import InvalidInputError

# Engines rank in single precision. This many more than k are asked for and ranked anew in double
# precision, so that near ties at the k-th place come out as exact search has them.
SPARE_CANDIDATES = 8


@dataclass(frozen=True, eq=False)
class Hits:
    """Neighbours of several queries in one list, in any order.

    Parameters
    ----------
    queries : array of shape (n_hits,)
        Row number of the query that each hit answers.
    ids : array of shape (n_hits,)
        Int64 or strings.
    labels : array of shape (n_hits,), optional
        Int64 or strings.
    vectors : array of shape (n_hits, dimension), optional
        The points themselves, from which distances are computed anew.
    sq_distances : array of shape (n_hits,), optional
        Squared Euclidean distances; needed where there are no vectors.
    """

    queries: IntArray
    ids: AnyArray
    labels: AnyArray | None = None
    vectors: AnyArray | None = None
    sq_distances: FloatArray | None = None


def found_from_hits(queries: AnyArray, hits: Hits, k: int) -> Found:
    """The k nearest hits of each query, in the form that the contract asks for.

    Parameters
    ----------
    queries : array of shape (n, dimension)
        The queries, as they were given.
    hits : Hits
        What the engine listed; a query may have any number of hits, also none.
    k : int
        How many to keep.

    Examples
    --------
    >>> queries, places = np.zeros((2, 1)), np.array([[3.0], [1.0], [1.0]])
    >>> hits = Hits(np.array([0, 0, 0]), ids=np.array([7, 9, 8]), vectors=places)
    >>> found = found_from_hits(queries, hits, k=2)
    >>> found.sq_distances, found.ids, found.counts
    (array([[ 1.,  1.],
           [inf, inf]]), array([[ 8,  9],
           [-1, -1]]), array([2, 0]))
    """
    sq_distances = _sq_distances(queries, hits)
    order = np.lexsort((hits.ids, sq_distances, hits.queries))
    rows = hits.queries[order]
    n_hits = np.bincount(rows, minlength=len(queries))
    firsts = np.cumsum(n_hits) - n_hits
    places = np.arange(len(rows)) - firsts[rows]
    kept = places < k
    order, rows, places = order[kept], rows[kept], places[kept]

    def table(values: AnyArray, missing: float | str) -> AnyArray:
        filled = np.full((len(queries), k), missing, values.dtype)
        filled[rows, places] = values[order]
        return filled

    return Found(
        table(sq_distances, np.inf),
        table(hits.ids, nothing_of(hits.ids)),
        np.minimum(n_hits, k),
        None if hits.labels is None else table(hits.labels, nothing_of(hits.labels)),
    )


def nothing_of(values: AnyArray) -> int | str:
    """What stands where there is no id or label: -1 among integers, "" among strings."""
    return -1 if values.dtype.kind in "iu" else ""


def _sq_distances(queries: AnyArray, hits: Hits) -> FloatArray:
    if hits.vectors is None:
        if hits.sq_distances is None:
            raise InvalidInputError("Hits must have vectors or sq_distances. Got neither.")
        return np.maximum(np.asarray(hits.sq_distances, np.float64), 0.0)
    exact = np.empty(len(hits.ids))
    # Some hundred at a time: the differences of all, in double precision, would take much memory.
    for start in range(0, len(exact), 8192):
        part = slice(start, start + 8192)
        differences = np.subtract(hits.vectors[part], queries[hits.queries[part]], dtype=np.float64)
        exact[part] = np.einsum("nm,nm->n", differences, differences)
    return exact
