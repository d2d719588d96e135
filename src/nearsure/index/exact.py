"""Exact nearest neighbours: faiss proposes, float64 decides, and a bound certifies.

faiss computes in float32 and, depending on batch size, by |q|^2 + |z|^2 - 2 q.z, which is a few
percent off for data far from the origin. So its distances only propose candidates, a few more than
asked for; the candidates' distances are then recomputed as sums of squared differences in
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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import faiss
import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index.rows import GrowingRows, RowMoves, StableIds, moves_into_holes
from nearsure.validation import integer_ids

if TYPE_CHECKING:
    from typing import Self

# Candidates for a handful of queries at once, by matrix products.
#
# faiss takes as long for 64 queries as for 64 times one. One product with all of them reads each
# vector once; what then costs is to select the nearest of many numbers. A sample of the vectors
# tells from which score on a vector can be among them, so that all but a few are passed over at a
# glance.


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


BLOCK = 8192
CENTRE_SAMPLE = 1000


@dataclass(frozen=True, eq=False)
class Conditioning:
    """What to subtract from vectors and then divide them by.

    Parameters
    ----------
    centre : array of shape (n_features,)
        The middle of most vectors.
    scale : float
        How far from it they reach.
    """

    centre: FloatArray
    scale: float

    @classmethod
    def of(cls, vectors: AnyArray) -> "Self":
        """The conditioning that serves these vectors."""
        # The median of a sample is near enough to the middle, and no outlier moves it away.
        sample = vectors[:: -(-len(vectors) // CENTRE_SAMPLE)].astype(np.float64)
        centre = np.median(sample, axis=0)
        if vectors.dtype == np.float32:
            # Of ordinary size about the origin, as embeddings are, they can be searched in place.
            sq_norm = float(np.median(np.square(sample).sum(axis=1)))
            if centre @ centre <= sq_norm / 2 and 2.0**-40 < sq_norm < 2.0**40:
                return cls(np.zeros_like(centre), 1.0)
        spread = float(np.maximum(vectors.max(axis=0) - centre, centre - vectors.min(axis=0)).max())
        return cls(centre, spread or 1.0)

    def apply(self, vectors: AnyArray) -> AnyArray:
        """The vectors as faiss sees them, float32 and contiguous; the same array where it serves.

        What float32 cannot hold becomes infinite.
        """
        if self.scale == 1.0 and not self.centre.any():
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(vectors, np.float32)
        conditioned = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), BLOCK):
            block = slice(start, start + BLOCK)
            with np.errstate(over="ignore"):
                conditioned[block] = (vectors[block] - self.centre) / self.scale
        return conditioned


class ConditionedVectors:
    """Vectors for exact distances, and beside them what faiss sees.

    They are centred and scaled as suited them when they were last all looked at, which is again
    when half as many have come and gone as there are. An odd centre or scale costs time at worst.

    Parameters
    ----------
    vectors : array of shape (n, n_features), float32 or float64
        The vectors, which are not copied before the first change.

    Attributes
    ----------
    vectors : array of shape (n, n_features)
        The vectors of now.
    proposing : array of shape (n, n_features), float32
        The same, conditioned; the very same array where they need not be.
    sq_norms : array of shape (n,), float32
        The squared norms of `proposing`.
    conditioning : Conditioning
        What leads from one to the other.
    """

    def __init__(self, vectors: AnyArray) -> None:
        self.vectors = vectors
        self._kept = GrowingRows(vectors)
        self._condition()

    def _condition(self) -> None:
        """Look at all vectors for what suits float32 best."""
        self.conditioning = Conditioning.of(self.vectors)
        self.proposing = self.conditioning.apply(self.vectors)
        self.sq_norms = np.einsum("nm,nm->n", self.proposing, self.proposing)
        in_place = self.proposing is self.vectors
        self._kept_proposing = None if in_place else GrowingRows(self.proposing)
        self._kept_sq_norms = GrowingRows(self.sq_norms)
        self._n_changed = 0

    def append(self, added: AnyArray) -> None:
        """Add vectors of the same width and precision behind the last."""
        conditioned = self.conditioning.apply(added)
        sq_norms = np.einsum("nm,nm->n", conditioned, conditioned)
        self._kept.reserve(len(added))
        self._kept_sq_norms.reserve(len(added))
        if self._kept_proposing is not None:
            self._kept_proposing.append(conditioned)
        self._kept.append(added)
        self._kept_sq_norms.append(sq_norms)
        self._after_change(len(added))

    def remove(self, moves: RowMoves) -> None:
        """Remove rows, as `moves_into_holes` says."""
        n_removed = len(self.vectors) - moves.n_left
        self._kept.remove(moves)
        self._kept_sq_norms.remove(moves)
        if self._kept_proposing is not None:
            self._kept_proposing.remove(moves)
        self._after_change(n_removed)

    def _after_change(self, n_changed: int) -> None:
        self.vectors = self._kept.rows
        self._n_changed += n_changed
        # The time that this takes has been spent on the changes themselves already.
        if 2 * self._n_changed >= len(self.vectors):
            self._condition()
        else:
            self.proposing = (self._kept_proposing or self._kept).rows
            self.sq_norms = self._kept_sq_norms.rows


# Equal vectors, of which a search needs to see one.
#
# Thousands of copies of one vector are equally far from every query, and those of them that belong
# to an answer are those with the smallest ids: known without a look at their distances.


DISTINCT_BLOCK = 8192
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
    def of(cls, vectors: AnyArray, ids: IntArray) -> "Self":
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
    for start in range(0, len(bits), DISTINCT_BLOCK):
        block = slice(start, start + DISTINCT_BLOCK)
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


SPARE_CANDIDATES = 6
# So many copies of a vector are found by asking for more candidates. Of more, one is searched for:
# which are equal is looked at when that has failed, or for so many queries that it costs less.
FEW_COPIES = 4 * SPARE_CANDIDATES
MANY_OPEN = 128
# Queries that faiss sees at a time: few enough for a keyboard interrupt to be heard between them,
# and many, as it computes the norms of all support vectors again each time.
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


def unit_vectors(vectors: AnyArray) -> AnyArray:
    """Vectors scaled to unit length, in their own precision."""
    largest = np.abs(vectors).max(axis=1).astype(np.float64)
    if not largest.all():
        raise InvalidInputError(
            f"Row {int(largest.argmin())} is a zero vector, which has no direction: "
            "metric 'cosine' needs vectors that are not zero."
        )
    # Divided by the largest entry first, so that no square overflows or vanishes.
    scaled = vectors / largest[:, None]
    unit: AnyArray = (scaled / np.linalg.norm(scaled, axis=1, keepdims=True)).astype(
        vectors.dtype, copy=False
    )
    return unit
