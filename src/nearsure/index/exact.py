"""Exact nearest neighbours: faiss proposes, float64 decides, and a bound certifies.

faiss computes in float32 and, depending on batch size, by |q|^2 + |z|^2 - 2 q.z, which is a few
percent off for data far from the origin. So its distances only propose candidates, a few more than
asked for; the candidates' distances are then computed anew as sums of squared differences in
float64. Whether a point that was not proposed could still belong to the answer follows from a bound
on faiss's rounding error; the rare query where it could is searched again with more candidates.
Thousands of copies of one vector would make that every query: then each distinct vector is searched
once, and its rows with the smallest ids are the answer. The answer therefore depends on the vectors
alone: not on batch size or thread count, and on a common offset only as far as the vectors
themselves are rounded by it.

Vectors can be added and removed. Ids stay with them, and the answer still depends on vectors and
ids alone: not on what came and went before.
"""

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index.batch_proposals import FEWEST_QUERIES, MOST_QUERIES, propose_together
from nearsure.index.conditioned_vectors import ConditionedVectors
from nearsure.index.distinct_vectors import DistinctVectors
from nearsure.index.growing_rows import RowMoves, moves_into_holes
from nearsure.index.stable_ids import StableIds, integer_ids

SPARE_CANDIDATES = 6
# So many copies of a vector are found by asking for more candidates. Of more, one is searched for:
# which are equal is looked at when that has failed, or for so many queries that it costs less.
FEW_COPIES = 4 * SPARE_CANDIDATES
MANY_OPEN = 128
# Queries that faiss sees at a time: few enough for a keyboard interrupt to be heard between them,
# and many, as it computes the norms of all support vectors anew each time.
QUERY_BLOCK = 8192
# Differences computed at a time, so that a block of them stays in the processor's cache.
DIFFERENCE_BLOCK = 1 << 18
FLOAT32_ROUNDING = 2.0**-24
SMALLEST_FLOAT32 = 2.0**-126
# The square of a length up to which no part of an approximate distance overflows.
SAFE_SQUARE = 2.0**124
LONGEST_UNSPLIT_DOT = 8192


class ExactIndex:
    """Exact search by squared Euclidean distance over vectors held in memory.

    Parameters
    ----------
    vectors : array of shape (n_support, n_features), float32 or float64
        The support vectors. They are kept, not copied, until the first change, and must not change
        otherwise. Where searches come across many copies of one, the distinct ones are copied.
    ids : array of shape (n_support,), optional
        Distinct 64-bit integers that stay with the vectors; by default their row numbers.
    next_id : int, optional
        Where ids of added vectors count on from, if none are given; by default from the largest
        id + 1.

    Examples
    --------
    >>> index = ExactIndex(np.array([[0.0, 0.0], [3.0, 4.0]]))
    >>> index.search(np.array([[0.0, 1.0]]), k=2)
    (array([[ 1., 18.]]), array([[0, 1]]))
    >>> index.add(np.array([[0.0, 3.0]]))
    array([2])
    >>> _ = index.remove(index.rows_of([0]))
    >>> index.search(np.array([[0.0, 1.0]]), k=2)
    (array([[ 4., 18.]]), array([[2, 1]]))
    """

    def __init__(
        self, vectors: AnyArray, ids: ArrayLike | None = None, *, next_id: int | None = None
    ) -> None:
        self._ids = StableIds(len(vectors), ids, next_id)
        self._held = ConditionedVectors(vectors)
        self._forget_copies()

    @property
    def vectors(self) -> AnyArray:
        """The vectors, shape (n_support, n_features). The next change may change what it holds."""
        return self._held.vectors

    @property
    def ids(self) -> IntArray:
        """The id of each row, shape (n_support,). The next change may change what it holds."""
        return self._ids.values

    @property
    def next_id(self) -> int:
        """The id that the next vector gets if none is given: the largest ever used + 1."""
        return self._ids.next_id

    def ids_of(self, rows: IntArray) -> IntArray:
        """The ids of rows, in the shape of `rows`."""
        return self._ids.of(rows)

    def rows_of(self, ids: ArrayLike) -> IntArray:
        """Row numbers, until the next removal, of the vectors with these ids, shape (n,)."""
        return self._ids.rows_of(ids)

    def add(self, vectors: ArrayLike, ids: ArrayLike | None = None) -> IntArray:
        """Add vectors, behind the last row, in time that does not depend on how many there are.

        Parameters
        ----------
        vectors : array of shape (n, n_features)
            The new vectors. They are kept in the precision of the index.
        ids : array of shape (n,), optional
            Their ids, which no vector of the index has; by default they count on from the largest
            that was ever used.

        Returns
        -------
        ids : array of shape (n,)
            The ids of the new vectors.
        """
        added = self._addable(vectors)
        new_ids = self._ids.new(len(added), ids)
        self._ids.reserve(len(added))
        self._held.append(added)
        self._ids.append(new_ids)
        self._forget_copies()
        return new_ids

    def remove(self, rows: ArrayLike) -> RowMoves:
        """Remove rows, in time that does not depend on how many there are: the last fill the holes.

        Parameters
        ----------
        rows : array of shape (n,)
            Distinct row numbers; `rows_of` gives those of ids. At least one row must be left.

        Returns
        -------
        RowMoves
            How other rows moved, for whatever is kept beside the index.
        """
        removed = integer_ids(rows, name="rows")
        moves = moves_into_holes(len(self), removed)
        if not moves.n_left:
            raise InvalidInputError(
                f"At least one vector must be left. Got {len(removed)} rows to remove, which are "
                "all of them."
            )
        self._held.remove(moves)
        self._ids.remove(removed, moves)
        self._forget_copies()
        return moves

    def _addable(self, vectors: ArrayLike) -> AnyArray:
        added = np.asarray(vectors)
        if added.ndim != 2 or added.shape[1] != self.vectors.shape[1]:  # noqa: PLR2004
            raise InvalidInputError(
                f"vectors must have the shape (n, {self.vectors.shape[1]}). "
                f"Got an array of shape {added.shape} instead."
            )
        if added.dtype.kind not in "fiu":
            raise InvalidInputError(f"vectors must be numbers. Got {added.dtype} instead.")
        with np.errstate(over="ignore"):
            added = added.astype(self.vectors.dtype, copy=False)
        if not np.isfinite(added).all():
            raise InvalidInputError(
                f"vectors must be finite in {added.dtype}, the precision of the gallery. "
                "Got NaN, infinity or larger numbers instead."
            )
        return added

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: AnyArray, k: int) -> tuple[FloatArray, IntArray]:
        """Find the k nearest support vectors of each query.

        Parameters
        ----------
        queries : array of shape (n, n_features), float32 or float64
            The queries.
        k : int
            How many neighbours, at most the number of support vectors.

        Returns
        -------
        sq_distances : array of shape (n, k)
            Squared Euclidean distances, ascending; equal ones in the order of their ids.
        ids : array of shape (n, k)
            Ids of the support vectors.
        """
        sq_distances, rows = self.search_rows(queries, k)
        return sq_distances, self.ids_of(rows)

    def search_rows(self, queries: AnyArray, k: int) -> tuple[FloatArray, IntArray]:
        """`search`, with row numbers in place of ids; equal distances are in the order of ids, too.

        They are good for looking up what is kept beside the index, until the next removal.
        """
        self._check(queries, k)
        if self._distinct is not None:
            return self._distinct.search_rows(queries, k)
        sq_distances = np.empty((len(queries), k))
        found = np.empty((len(queries), k), np.int64)
        open_rows = np.arange(len(queries))
        n_candidates = k + SPARE_CANDIDATES
        while open_rows.size and 2 * n_candidates < len(self):
            still_open = [
                self._settle(queries, rows, n_candidates, sq_distances, found)
                for rows in _blocks(open_rows, QUERY_BLOCK)
            ]
            open_rows = np.concatenate(still_open)
            if open_rows.size >= MANY_OPEN or (open_rows.size and n_candidates >= k + FEW_COPIES):
                distinct = self._find_copies()
                if distinct is not None:
                    nearest = distinct.search_rows(queries[open_rows], k)
                    sq_distances[open_rows], found[open_rows] = nearest
                    return sq_distances, found
            n_candidates = k + 4 * (n_candidates - k)
        # What is left, if anything, is compared with every vector.
        for rows in _blocks(open_rows, max(1, DIFFERENCE_BLOCK // len(self))):
            every = np.broadcast_to(np.arange(len(self)), (len(rows), len(self)))
            sq_distances[rows], found[rows] = self._nearest_of(queries[rows], every, k)
        return sq_distances, found

    def _forget_copies(self) -> None:
        self._distinct: _DistinctIndex | None = None
        self._looked_for_copies = False

    def _find_copies(self) -> "_DistinctIndex | None":
        """The distinct vectors, if there are many copies; looked for once after each change."""
        if not self._looked_for_copies:
            distinct = DistinctVectors.of(self.vectors, self.ids)
            if distinct.sizes.max() > FEW_COPIES:
                self._distinct = _DistinctIndex(self, distinct)
            self._looked_for_copies = True
        return self._distinct

    def _check(self, queries: AnyArray, k: int) -> None:
        if queries.ndim != 2 or queries.shape[1] != self.vectors.shape[1]:  # noqa: PLR2004
            raise InvalidInputError(
                f"queries must have the shape (n, {self.vectors.shape[1]}). "
                f"Got an array of shape {queries.shape} instead."
            )
        if not 1 <= k <= len(self):
            raise InvalidInputError(
                f"k must lie in [1, {len(self)}], the number of support vectors. Got {k} instead."
            )

    def _settle(
        self,
        queries: AnyArray,
        rows: IntArray,
        n_candidates: int,
        sq_distances: FloatArray,
        found: IntArray,
    ) -> IntArray:
        """Fill in the answers of some rows, and give back the rows where more might be missing."""
        asked = queries[rows[0] : rows[-1] + 1]
        if len(asked) > len(rows):
            asked = queries[rows]
        conditioned = self._held.conditioning.apply(asked)
        candidates, farthest = self._propose(conditioned, n_candidates)
        nearest, nearest_rows = self._nearest_of(asked, candidates, sq_distances.shape[1])
        sq_distances[rows], found[rows] = nearest, nearest_rows
        return rows[~self._nothing_missing(conditioned, nearest[:, -1], farthest)]

    def _nearest_of(
        self, queries: AnyArray, candidates: IntArray, k: int
    ) -> tuple[FloatArray, IntArray]:
        """The k nearest among the candidates of each query, by their exact distances."""
        exact = self._exact_sq_distances(queries, candidates)
        if self._ids.ascending:
            # The candidates are in the order of their ids, so a stable sort breaks ties by id.
            nearest = np.argsort(exact, axis=1, kind="stable")[:, :k]
        else:
            nearest = np.lexsort((self._ids.of(candidates), exact), axis=1)[:, :k]
        return (
            np.take_along_axis(exact, nearest, axis=1),
            np.take_along_axis(candidates, nearest, axis=1),
        )

    def _propose(self, queries: AnyArray, n_candidates: int) -> tuple[IntArray, FloatArray]:
        """Candidate rows, ascending, and the approximate distance of the farthest of them."""
        if len(queries) == 1:
            # One matrix-vector product is twice as fast as faiss, which scans row by row.
            with np.errstate(over="ignore", invalid="ignore"):
                approximate = self._held.sq_norms - 2 * (self._held.proposing @ queries[0])
                approximate += queries[0] @ queries[0]
            candidates = np.argpartition(approximate, n_candidates - 1)[None, :n_candidates]
            farthest = approximate[candidates[:, -1]]
        elif (together := self._propose_together(queries, n_candidates)) is not None:
            candidates, farthest = together
        else:
            distances, candidates = faiss.knn(queries, self._held.proposing, n_candidates)
            farthest = distances[:, -1]
        candidates.sort(axis=1)
        farthest = farthest.astype(np.float64)
        # faiss gives the row -1 where it saw too few points that are not infinitely far.
        farthest[candidates[:, 0] < 0] = np.inf
        return candidates, farthest

    def _propose_together(
        self, queries: AnyArray, n_candidates: int
    ) -> tuple[IntArray, FloatArray] | None:
        if not FEWEST_QUERIES <= len(queries) <= MOST_QUERIES:
            return None
        held = self._held
        return propose_together(queries, held.proposing, held.sq_norms, n_candidates)

    def _nothing_missing(
        self, queries: AnyArray, kth_sq_distance: FloatArray, farthest: FloatArray
    ) -> BoolArray:
        """Whether each query's answer is certain; `queries` are conditioned.

        Every point that was not proposed has at least the approximate distance `farthest`. A dot
        product of m terms errs by at most m roundings of |q||z|, and a distance therefore by
        (m + some) u (|q| + |z|)^2, or by as many of the smallest float32 where it underflows. Only
        points with |z| <= |q| + d_k can belong to the answer. What has overflowed proves nothing,
        nor does anything where such a point could have.
        """
        scale, roundings = self._held.conditioning.scale, queries.shape[1] + 16
        norms = np.sqrt(np.einsum("nm,nm->n", queries, queries, dtype=np.float64))
        with np.errstate(over="ignore"):
            scaled_kth = kth_sq_distance / scale / scale
            sq_reach = (2 * norms + np.sqrt(scaled_kth)) ** 2
            error = roundings * (FLOAT32_ROUNDING * sq_reach + SMALLEST_FLOAT32)
        certain: BoolArray = (
            np.isfinite(farthest) & (sq_reach < SAFE_SQUARE) & (scaled_kth + error < farthest)
        )
        return certain

    def _exact_sq_distances(self, queries: AnyArray, candidates: IntArray) -> FloatArray:
        n, n_candidates = candidates.shape
        exact = np.empty((n, n_candidates))
        columns = min(n_candidates, max(1, DIFFERENCE_BLOCK // self.vectors.shape[1]))
        step = max(1, DIFFERENCE_BLOCK // (columns * self.vectors.shape[1]))

        def fill(first: int, last: int) -> None:
            # Memory that is kept, and few and large operations: fresh pages and threads that wait
            # for each other would cost more than the arithmetic.
            vectors = np.empty((step, columns, self.vectors.shape[1]), self.vectors.dtype)
            differences = np.empty(vectors.shape)
            for start in range(first, last, step):
                rows = slice(start, min(start + step, last))
                for left in range(0, n_candidates, columns):
                    block = candidates[rows, left : left + columns]
                    there = np.s_[: block.shape[0], : block.shape[1]]
                    # "clip" never clips here, but "raise" would copy once more.
                    np.take(self.vectors, block, axis=0, out=vectors[there], mode="clip")
                    np.subtract(
                        vectors[there],
                        queries[rows, None, :],
                        out=differences[there],
                        dtype=np.float64,
                    )
                    _sums_of_squares(differences[there], out=exact[rows, left : left + columns])

        n_workers = min(faiss.omp_get_max_threads(), n // step)
        if n_workers < 2:  # noqa: PLR2004
            fill(0, n)
        else:
            bounds = np.linspace(0, n, n_workers + 1).astype(int)
            with ThreadPoolExecutor(n_workers) as pool:
                list(pool.map(fill, bounds[:-1], bounds[1:]))
        return exact


class _DistinctIndex:
    """Each distinct vector of an index once, to be searched in place of all of them.

    The k nearest rows hold some of the k nearest distinct vectors, where equally near vectors come
    in the order of their smallest ids.
    """

    def __init__(self, index: ExactIndex, distinct: DistinctVectors) -> None:
        rows = distinct.first_rows
        self._distinct = distinct
        self._index = ExactIndex(index.vectors[rows], index.ids_of(rows))

    def search_rows(self, queries: AnyArray, k: int) -> tuple[FloatArray, IntArray]:
        found = self._index.search_rows(queries, min(k, len(self._index)))
        return self._distinct.nearest_rows(*found, k)


def _blocks(rows: IntArray, size: int) -> list[IntArray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _sums_of_squares(differences: FloatArray, out: FloatArray) -> None:
    # BLAS is twice as fast, but splits long vectors over threads and then sums in another order.
    if differences.shape[-1] <= LONGEST_UNSPLIT_DOT:
        np.vecdot(differences, differences, out=out)
    else:
        np.einsum("nkm,nkm->nk", differences, differences, out=out)
