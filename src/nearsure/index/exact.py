"""Exact nearest neighbours: faiss proposes, float64 decides, and a bound certifies.

faiss computes in float32 and, depending on batch size, by |q|^2 + |z|^2 - 2 q.z, which is a few
percent off for data far from the origin. So its distances only propose candidates, a few more than
asked for; the candidates' distances are then computed anew as sums of squared differences in
float64. Whether a point that was not proposed could still belong to the answer follows from a bound
on faiss's rounding error; the rare query where it could is searched again with more candidates. The
answer therefore depends on the data alone: not on batch size, thread count or a common offset.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray

SPARE_CANDIDATES = 8
# Queries that faiss sees at a time: enough for its matrix products, little enough for its buffers.
QUERY_BLOCK = 2048
# Differences computed at a time, so that a block of them stays in the processor's cache.
DIFFERENCE_BLOCK = 1 << 18
FLOAT32_ROUNDING = 2.0**-24
LONGEST_UNSPLIT_DOT = 8192
N_THREADS = os.cpu_count() or 1


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
        centre = vectors.mean(axis=0, dtype=np.float64)
        spread = float(np.maximum(vectors.max(axis=0) - centre, centre - vectors.min(axis=0)).max())
        # float32 vectors of ordinary size about the origin can be searched as they are.
        as_they_are = (
            vectors.dtype == np.float32
            and np.abs(centre).max() <= spread
            and 2.0**-20 < spread < 2.0**20
        )
        self._centre = np.zeros_like(centre) if as_they_are else centre
        self._scale = 1.0 if as_they_are or spread == 0 else spread
        self._proposing = vectors if as_they_are else self._conditioned(vectors)
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
        sq_distances = np.empty((len(queries), k))
        ids = np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), QUERY_BLOCK):
            block = slice(start, start + QUERY_BLOCK)
            self._search_block(queries[block], k, sq_distances[block], ids[block])
        return sq_distances, ids

    def _search_block(
        self, queries: AnyArray, k: int, sq_distances: FloatArray, ids: IntArray
    ) -> None:
        """Fill `sq_distances` and `ids`, proposing more candidates until none can be missing."""
        open_rows = np.arange(len(queries))
        spare = SPARE_CANDIDATES
        while open_rows.size:
            rows = queries[open_rows] if len(open_rows) < len(queries) else queries
            if 2 * (k + spare) >= len(self):
                candidates = np.broadcast_to(np.arange(len(self)), (len(rows), len(self)))
                certified_beyond = np.full(len(rows), np.inf)
            else:
                candidates, certified_beyond = self._propose(rows, k + spare)
            exact = self._exact_sq_distances(rows, candidates)
            # The candidates are in the order of their ids, so a stable sort breaks ties by id.
            nearest = np.argsort(exact, axis=1, kind="stable")[:, :k]
            found = np.take_along_axis(exact, nearest, axis=1)
            done = self._nothing_missing(rows, found[:, -1], certified_beyond)
            if done.all():
                sq_distances[open_rows] = found
                ids[open_rows] = np.take_along_axis(candidates, nearest, axis=1)
                return
            finished = open_rows[done]
            sq_distances[finished] = found[done]
            ids[finished] = np.take_along_axis(candidates, nearest, axis=1)[done]
            open_rows = open_rows[~done]
            spare *= 4

    def _conditioned(self, vectors: AnyArray) -> AnyArray:
        """The vectors as faiss sees them: about the origin, of size 1, float32, contiguous."""
        if self._scale == 1.0 and not self._centre.any():
            return np.ascontiguousarray(vectors, np.float32)
        conditioned = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), QUERY_BLOCK):
            block = slice(start, start + QUERY_BLOCK)
            conditioned[block] = (vectors[block] - self._centre) / self._scale
        return conditioned

    def _propose(self, queries: AnyArray, n_candidates: int) -> tuple[IntArray, FloatArray]:
        """Candidates, ascending by id, and the approximate distance of the farthest of them."""
        queries = self._conditioned(queries)
        if len(queries) == 1:
            # One matrix-vector product is twice as fast as faiss, which scans row by row.
            approximate = (
                self._sq_norms - 2 * (self._proposing @ queries[0]) + queries[0] @ queries[0]
            )
            candidates = np.argpartition(approximate, n_candidates - 1)[None, :n_candidates]
            farthest = approximate[candidates[:, -1]]
        else:
            distances, candidates = faiss.knn(queries, self._proposing, n_candidates)
            farthest = distances[:, -1]
        candidates.sort(axis=1)
        return candidates, farthest.astype(np.float64)

    def _nothing_missing(
        self, queries: AnyArray, kth_sq_distance: FloatArray, certified_beyond: FloatArray
    ) -> BoolArray:
        """Whether each query's answer is certain.

        faiss gave every point that it did not propose at least the distance `certified_beyond`.
        A dot product of m terms errs by at most m roundings of |q||z|, and a distance therefore by
        (m + some) u (|q| + |z|)^2. Only points with |z| <= |q| + d_k can belong to the answer.
        """
        scaled_kth = kth_sq_distance / self._scale**2
        norms = np.linalg.norm(self._conditioned(queries).astype(np.float64), axis=1)
        reach = 2 * norms + np.sqrt(scaled_kth)
        error = (queries.shape[1] + 16) * FLOAT32_ROUNDING * reach**2
        certain: BoolArray = scaled_kth < certified_beyond - error
        return certain

    def _exact_sq_distances(self, queries: AnyArray, candidates: IntArray) -> FloatArray:
        n, n_candidates = candidates.shape
        exact = np.empty((n, n_candidates))
        step = max(1, DIFFERENCE_BLOCK // (n_candidates * self.vectors.shape[1]))

        def fill(first: int, last: int) -> None:
            for start in range(first, last, step):
                block = slice(start, min(start + step, last))
                differences = self.vectors[candidates[block]].astype(np.float64)
                differences -= queries[block, None, :]
                exact[block] = _sums_of_squares(differences)

        n_workers = min(N_THREADS, n // step)
        if n_workers < 2:  # noqa: PLR2004
            fill(0, n)
        else:
            bounds = np.linspace(0, n, n_workers + 1).astype(int)
            with ThreadPoolExecutor(n_workers) as pool:
                list(pool.map(fill, bounds[:-1], bounds[1:]))
        return exact


def _sums_of_squares(differences: FloatArray) -> FloatArray:
    # BLAS is twice as fast, but splits long vectors over threads and then sums in another order.
    sums: FloatArray
    if differences.shape[-1] <= LONGEST_UNSPLIT_DOT:
        sums = np.vecdot(differences, differences)
    else:
        sums = np.einsum("nkm,nkm->nk", differences, differences)
    return sums
