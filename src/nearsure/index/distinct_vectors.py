"""Equal vectors, of which a search needs to see one.

Thousands of copies of one vector are equally far from every query, and those of them that belong
to an answer are those with the smallest ids: known without a look at their distances.
"""

from typing import Self

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray

BLOCK = 8192
# Rows listed at a time, so that many that are equally far do not take much memory.
LISTED_BLOCK = 1 << 18


class DistinctVectors:
    """The rows of each distinct vector.

    Parameters
    ----------
    firsts : array of shape (n_rows,)
        For each row the first row that holds the same vector.
    ids : array of shape (n_rows,)
        The ids of the rows.

    Attributes
    ----------
    first_rows : array of shape (n_distinct,)
        Of each distinct vector, the row with the smallest id.
    sizes : array of shape (n_distinct,)
        How many rows hold it.

    Examples
    --------
    >>> distinct = DistinctVectors.of(np.array([[1.0], [5.0], [1.0], [1.0]]), ids=np.arange(4))
    >>> distinct.first_rows, distinct.sizes
    (array([0, 1]), array([3, 1]))
    >>> distinct.nearest_rows(np.array([[2.0, 6.0]]), np.array([[1, 0]]), k=3)
    (array([[2., 6., 6.]]), array([[1, 0, 2]]))
    """

    def __init__(self, firsts: IntArray, ids: IntArray) -> None:
        self._rows = np.lexsort((ids, firsts))
        is_start = np.diff(firsts[self._rows], prepend=-1) > 0
        self._starts = np.flatnonzero(is_start)
        self._ids = ids[self._rows]
        self.first_rows: IntArray = self._rows[self._starts]
        self.sizes: IntArray = np.diff(self._starts, append=len(firsts))

    @classmethod
    def of(cls, vectors: AnyArray, ids: IntArray) -> Self:
        """The distinct ones among some vectors."""
        return cls(first_of_equals(vectors, fingerprints(vectors)), ids)

    def nearest_rows(
        self, sq_distances: FloatArray, places: IntArray, k: int
    ) -> tuple[FloatArray, IntArray]:
        """From the nearest distinct vectors to the k nearest rows.

        Parameters
        ----------
        sq_distances, places : array of shape (n, min(k, n_distinct))
            Of the nearest distinct vectors, in the order of `first_rows`: ascending; equal ones by
            the smallest ids of their rows.
        k : int
            How many rows, at most as many as there are.

        Returns
        -------
        sq_distances, rows : array of shape (n, k)
            Ascending; equal ones by their ids.
        """
        nearest, rows = np.empty((len(places), k)), np.empty((len(places), k), np.int64)
        step = max(1, LISTED_BLOCK // k**2)
        for start in range(0, len(places), step):
            block = slice(start, start + step)
            nearest[block], rows[block] = self._listed(sq_distances[block], places[block], k)
        return nearest, rows

    def _listed(
        self, sq_distances: FloatArray, places: IntArray, k: int
    ) -> tuple[FloatArray, IntArray]:
        sizes = self.sizes[places]
        # Rows of one distance mix, whichever vector they hold: only what is nearer counts.
        is_farther = np.ones(places.shape, np.bool_)
        is_farther[:, 1:] = sq_distances[:, 1:] > sq_distances[:, :-1]
        n_before = np.cumsum(sizes, axis=1) - sizes
        n_nearer = np.maximum.accumulate(np.where(is_farther, n_before, 0), axis=1)
        n_listed = np.where(n_nearer < k, np.minimum(sizes, k), 0)
        ends = np.cumsum(n_listed).reshape(n_listed.shape)
        at = np.repeat(self._starts[places] - (ends - n_listed), n_listed.ravel())
        at += np.arange(len(at))
        listed = np.repeat(sq_distances, n_listed.ravel())
        if not is_farther.all():
            distance_numbers = np.repeat(np.cumsum(is_farther), n_listed.ravel())
            at = at[np.lexsort((self._ids[at], distance_numbers))]
        chosen = (ends[:, :1] - n_listed[:, :1]) + np.arange(k)
        return listed[chosen], self._rows[at[chosen]]


def fingerprints(vectors: AnyArray) -> IntArray:
    """A number for each float32 or float64 vector, equal for equal ones and hardly ever for others.

    Examples
    --------
    >>> one, two, three = fingerprints(np.array([[1, 2], [1, 3], [1, 2]], np.float32))
    >>> one == three, one == two
    (np.True_, np.False_)
    """
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    factors = np.random.default_rng(0).integers(2**63, size=bits.shape[1], dtype=np.uint64)
    sums = np.empty(len(bits), np.uint64)
    for start in range(0, len(bits), BLOCK):
        block = slice(start, start + BLOCK)
        sums[block] = (bits[block] * factors).sum(axis=1)
    return sums.view(np.int64)


def first_of_equals(vectors: AnyArray, prints: IntArray) -> IntArray:
    """For each row, the first row that holds the same vector.

    Parameters
    ----------
    vectors : array of shape (n, dimension), float32 or float64
    prints : array of shape (n,)
        Their `fingerprints`.

    Examples
    --------
    >>> vectors = np.array([[1, 2], [3, 4], [1, 2], [3, 4]], np.float32)
    >>> first_of_equals(vectors, fingerprints(vectors))
    array([0, 1, 0, 1])
    """
    _, first, inverse = np.unique(prints, return_index=True, return_inverse=True)
    firsts: IntArray = first[inverse]
    others = np.flatnonzero(firsts != np.arange(len(prints)))
    unequal = others[(vectors[others] != vectors[firsts[others]]).any(axis=1)]
    firsts[unequal] = unequal
    return firsts
