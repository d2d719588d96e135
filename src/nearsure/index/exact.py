"""Exact nearest neighbours: faiss proposes, float64 decides, and a bound certifies.

faiss computes in float32 and, depending on batch size, by |q|^2 + |z|^2 - 2 q.z, which is a few
percent off for data far from the origin. So its distances only propose candidates, a few more than
asked for; the candidates' distances are then computed anew as sums of squared differences in
float64. Whether a point that was not proposed could still belong to the answer follows from a bound
on faiss's rounding error; the rare query where it could is searched again with more candidates. The
answer therefore depends on the vectors alone: not on batch size or thread count, and on a common
offset only as far as the vectors themselves are rounded by it.
"""

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError

SPARE_CANDIDATES = 6
# Queries that faiss sees at a time: few enough for a keyboard interrupt to be heard between them,
# and many, as it computes the norms of all support vectors anew each time.
QUERY_BLOCK = 8192
# Differences computed at a time, so that a block of them stays in the processor's cache.
DIFFERENCE_BLOCK = 1 << 18
FLOAT32_ROUNDING = 2.0**-24
SMALLEST_FLOAT32 = 2.0**-126
LONGEST_UNSPLIT_DOT = 8192
CENTRE_SAMPLE = 1000


class ExactIndex:
    """Exact search by squared Euclidean distance over vectors held in memory.

    Parameters
    ----------
    vectors : array of shape (n_support, n_features), float32 or float64
        The support vectors. They are kept, not copied, and must not change afterwards.

    Examples
    --------
    >>> index = ExactIndex(np.array([[0.0, 0.0], [3.0, 4.0]]))
    >>> index.search(np.array([[0.0, 1.0]]), k=2)
    (array([[ 1., 18.]]), array([[0, 1]]))
    """

    def __init__(self, vectors: AnyArray) -> None:
        self.vectors = vectors
        self._centre, self._scale = _centre_and_scale(vectors)
        self._proposing = self._conditioned(vectors)
        self._sq_norms = np.einsum("nm,nm->n", self._proposing, self._proposing)

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
            Row numbers of the support vectors.
        """
        self._check(queries, k)
        sq_distances = np.empty((len(queries), k))
        ids = np.empty((len(queries), k), np.int64)
        open_rows = np.arange(len(queries))
        n_candidates = k + SPARE_CANDIDATES
        while open_rows.size and 2 * n_candidates < len(self):
            still_open = [
                self._settle(queries, rows, n_candidates, sq_distances, ids)
                for rows in _blocks(open_rows, QUERY_BLOCK)
            ]
            open_rows = np.concatenate(still_open)
            n_candidates = k + 4 * (n_candidates - k)
        # What is left, if anything, is compared with every vector.
        for rows in _blocks(open_rows, max(1, DIFFERENCE_BLOCK // len(self))):
            every = np.broadcast_to(np.arange(len(self)), (len(rows), len(self)))
            sq_distances[rows], ids[rows] = self._nearest_of(queries[rows], every, k)
        return sq_distances, ids

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
        ids: IntArray,
    ) -> IntArray:
        """Fill in the answers of some rows, and give back the rows where more might be missing."""
        asked = queries[rows[0] : rows[-1] + 1]
        if len(asked) > len(rows):
            asked = queries[rows]
        conditioned = self._conditioned(asked)
        candidates, farthest = self._propose(conditioned, n_candidates)
        found, found_ids = self._nearest_of(asked, candidates, sq_distances.shape[1])
        sq_distances[rows], ids[rows] = found, found_ids
        return rows[~self._nothing_missing(conditioned, found[:, -1], farthest)]

    def _nearest_of(
        self, queries: AnyArray, candidates: IntArray, k: int
    ) -> tuple[FloatArray, IntArray]:
        """The k nearest among the candidates of each query, by their exact distances."""
        exact = self._exact_sq_distances(queries, candidates)
        # The candidates are in the order of their ids, so a stable sort breaks ties by id.
        nearest = np.argsort(exact, axis=1, kind="stable")[:, :k]
        return (
            np.take_along_axis(exact, nearest, axis=1),
            np.take_along_axis(candidates, nearest, axis=1),
        )

    def _conditioned(self, vectors: AnyArray) -> AnyArray:
        """The vectors as faiss sees them: about the origin, of size 1, float32, contiguous."""
        if self._scale == 1.0 and not self._centre.any():
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(vectors, np.float32)
        conditioned = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), QUERY_BLOCK):
            block = slice(start, start + QUERY_BLOCK)
            with np.errstate(over="ignore"):
                conditioned[block] = (vectors[block] - self._centre) / self._scale
        return conditioned

    def _propose(self, queries: AnyArray, n_candidates: int) -> tuple[IntArray, FloatArray]:
        """Candidates, ascending by id, and the approximate distance of the farthest of them."""
        if len(queries) == 1:
            # One matrix-vector product is twice as fast as faiss, which scans row by row.
            with np.errstate(over="ignore", invalid="ignore"):
                approximate = self._sq_norms - 2 * (self._proposing @ queries[0])
                approximate += queries[0] @ queries[0]
            candidates = np.argpartition(approximate, n_candidates - 1)[None, :n_candidates]
            farthest = approximate[candidates[:, -1]]
        else:
            distances, candidates = faiss.knn(queries, self._proposing, n_candidates)
            farthest = distances[:, -1]
        candidates.sort(axis=1)
        return candidates, farthest.astype(np.float64)

    def _nothing_missing(
        self, queries: AnyArray, kth_sq_distance: FloatArray, farthest: FloatArray
    ) -> BoolArray:
        """Whether each query's answer is certain; `queries` are conditioned.

        Every point that was not proposed has at least the approximate distance `farthest`. A dot
        product of m terms errs by at most m roundings of |q||z|, and a distance therefore by
        (m + some) u (|q| + |z|)^2, or by as many of the smallest float32 where it underflows. Only
        points with |z| <= |q| + d_k can belong to the answer. What has overflowed proves nothing.
        """
        scaled_kth = kth_sq_distance / self._scale / self._scale
        norms = np.sqrt(np.einsum("nm,nm->n", queries, queries, dtype=np.float64))
        reach = 2 * norms + np.sqrt(scaled_kth)
        roundings = queries.shape[1] + 16
        error = roundings * (FLOAT32_ROUNDING * reach**2 + SMALLEST_FLOAT32)
        certain: BoolArray = np.isfinite(farthest) & (scaled_kth + error < farthest)
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


def _blocks(rows: IntArray, size: int) -> list[IntArray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _centre_and_scale(vectors: AnyArray) -> tuple[FloatArray, float]:
    """What to subtract from vectors and then divide them by, for float32 to serve them well."""
    # The median of a sample is near enough to the middle, and no outlier moves it away.
    sample = vectors[:: -(-len(vectors) // CENTRE_SAMPLE)].astype(np.float64)
    centre = np.median(sample, axis=0)
    if vectors.dtype == np.float32:
        # Of ordinary size about the origin, as embeddings are, they can be searched in place.
        sq_norm = float(np.median(np.square(sample).sum(axis=1)))
        if centre @ centre <= sq_norm / 2 and 2.0**-40 < sq_norm < 2.0**40:
            return np.zeros_like(centre), 1.0
    spread = float(np.maximum(vectors.max(axis=0) - centre, centre - vectors.min(axis=0)).max())
    return centre, spread or 1.0


def _sums_of_squares(differences: FloatArray, out: FloatArray) -> None:
    # BLAS is twice as fast, but splits long vectors over threads and then sums in another order.
    if differences.shape[-1] <= LONGEST_UNSPLIT_DOT:
        np.vecdot(differences, differences, out=out)
    else:
        np.einsum("nkm,nkm->nk", differences, differences, out=out)
