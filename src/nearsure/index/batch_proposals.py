"""Candidates for a handful of queries at once, by matrix products.

faiss takes as long for 64 queries as for 64 times one. One product with all of them reads each
vector once; what then costs is to select the nearest of many numbers. A sample of the vectors tells
from which score on a vector can be among them, so that all but a few are passed over at a glance.
"""

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray

# Below it products with one query each are as quick, above it faiss with all its threads.
FEWEST_QUERIES, MOST_QUERIES = 4, 512
# Vectors looked at together, so that their scores stay in the processor's cache.
VECTOR_BLOCK = 16384
# One vector in so many is in the sample, but several times as many as candidates are needed.
SAMPLE_STEP, SAMPLE_SIZES = 16, 4
# SAMPLE_STEP pairs for each candidate are expected; far more means that very many are equally near.
MOST_PAIRS = 16 * SAMPLE_STEP


def propose_together(
    queries: AnyArray, vectors: AnyArray, sq_norms: AnyArray, n_candidates: int
) -> tuple[IntArray, FloatArray] | None:
    """The vectors nearest to each query, as far as single precision tells.

    None if so many are equally near that hardly any can be passed over.

    Parameters
    ----------
    queries : array of shape (n, n_features), float32
    vectors : array of shape (n_vectors, n_features), float32
    sq_norms : array of shape (n_vectors,), float32
        Their squares.
    n_candidates : int
        How many, fewer than there are vectors.

    Returns
    -------
    rows : array of shape (n, n_candidates)
        Candidates in no order; -1 for a query whose distances overflow.
    farthest : array of shape (n,)
        No vector that is no candidate has a smaller approximate squared distance.

    Examples
    --------
    >>> line = np.arange(10, dtype=np.float32)[:, None]
    >>> rows, farthest = propose_together(np.float32([[2.0], [6.25]]), line, line[:, 0] ** 2, 3)
    >>> np.sort(rows), farthest
    (array([[1, 2, 3],
           [5, 6, 7]]), array([1.    , 1.5625], dtype=float32))
    """
    # The larger a score, the nearer; it is half of |q|^2 less the squared distance.
    half_norms = sq_norms / 2
    with np.errstate(over="ignore", invalid="ignore"):
        enough = _sure_scores(queries, vectors, half_norms, n_candidates)
        found = _all_above(queries, vectors, half_norms, enough, MOST_PAIRS * n_candidates)
        if found is None:
            return None
        scores, rows = _best(*found, len(queries), n_candidates)
        farthest = np.einsum("nm,nm->n", queries, queries) - 2 * scores
    rows[~np.isfinite(farthest)] = -1
    return rows, farthest


def _sure_scores(
    queries: AnyArray, vectors: AnyArray, half_norms: AnyArray, n_candidates: int
) -> AnyArray:
    """For each query a score that at least `n_candidates` vectors reach, shape (n, 1)."""
    step = max(1, min(SAMPLE_STEP, len(vectors) // (SAMPLE_SIZES * n_candidates)))
    scores = queries @ vectors[::step].T
    scores -= half_norms[::step]
    place = scores.shape[1] - n_candidates
    enough: AnyArray = np.partition(scores, place, axis=1)[:, place, None]
    return enough


def _all_above(
    queries: AnyArray,
    vectors: AnyArray,
    half_norms: AnyArray,
    enough: AnyArray,
    most: int,
) -> tuple[IntArray, AnyArray, IntArray] | None:
    """All pairs with scores that reach `enough`: place of the query, score, row of the vector.

    None if there are more than `most` for each query.
    """
    n_left = most * len(queries)
    places, kept, rows = [], [], []
    for start in range(0, len(vectors), VECTOR_BLOCK):
        block = slice(start, start + VECTOR_BLOCK)
        scores = queries @ vectors[block].T
        scores -= half_norms[block]
        pairs = np.flatnonzero(scores >= enough)
        n_left -= len(pairs)
        if n_left < 0:
            return None
        of_query, of_block = np.divmod(pairs, scores.shape[1])
        places.append(of_query)
        kept.append(scores.ravel()[pairs])
        rows.append(of_block + start)
    return np.concatenate(places), np.concatenate(kept), np.concatenate(rows)


def _best(
    places: IntArray, scores: AnyArray, rows: IntArray, n_queries: int, n_candidates: int
) -> tuple[AnyArray, IntArray]:
    """The least of the best scores of each query, and the rows of the best."""
    order = np.argsort(places, kind="stable")
    counts = np.bincount(places, minlength=n_queries)
    worst, best = np.full(n_queries, -np.inf, scores.dtype), np.full((n_queries, n_candidates), -1)
    for query, (start, count) in enumerate(zip(np.cumsum(counts) - counts, counts, strict=True)):
        # Where numbers overflow, some compare with nothing.
        if count >= n_candidates:
            own = order[start : start + count]
            nearest = own[np.argpartition(scores[own], count - n_candidates)[-n_candidates:]]
            best[query], worst[query] = rows[nearest], scores[nearest].min()
    return worst, best
