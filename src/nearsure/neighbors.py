"""`Neighbors`, the result of a search, and the distance conventions of engines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.validation import integer_codes

if TYPE_CHECKING:
    from typing import Self

# What engines call a distance, converted to the one that nearsure uses: |z - z_i|^2.
#
# Each function takes an array of what an engine returned and gives squared Euclidean distances of
# the same shape. NaN passes through: whether it marks padding or a broken query is for the caller
# to decide.


# Half precision vectors of unit length have inner products that are off by up to about 1e-3;
# anything further out is another quantity, not rounding.
ROUNDING = 1e-3
ABSOLUTE_ROUNDING = 1e-6


def squared_l2(values: AnyArray) -> FloatArray:
    """Squared Euclidean distances (faiss, Milvus, Chroma); rounding below zero becomes zero."""
    return _not_negative(values, "a squared Euclidean distance")


def l2(values: AnyArray) -> FloatArray:
    """Euclidean distances (pgvector's ``<->``, Qdrant, scikit-learn)."""
    return np.square(_not_negative(values, "a Euclidean distance"))


def cosine_similarity(values: AnyArray) -> FloatArray:
    """Cosine similarities: |z - z_i|^2 = 2 - 2 cos for vectors of unit length."""
    return _from_cosine(values, "a cosine similarity")


def cosine_distance(values: AnyArray) -> FloatArray:
    """Cosine distances, 1 - cos (pgvector's ``<=>``, Chroma)."""
    return _from_cosine(1.0 - np.asarray(values, np.float64), "1 - a cosine distance")


def inner_product(values: AnyArray) -> FloatArray:
    """Inner products of vectors of unit length (faiss, Milvus)."""
    return _from_cosine(values, "the inner product of unit vectors")


def negative_inner_product(values: AnyArray) -> FloatArray:
    """Negated inner products of vectors of unit length (pgvector's ``<#>``)."""
    return _from_cosine(-np.asarray(values, np.float64), "the inner product of unit vectors")


def _not_negative(values: AnyArray, quantity: str) -> FloatArray:
    distances = np.array(values, np.float64)
    # A lone duplicate has nothing to be measured by, hence the absolute part.
    farthest = np.fmax.reduce(distances, axis=-1, keepdims=True, initial=0.0)
    tolerated = ROUNDING * farthest + ABSOLUTE_ROUNDING
    if (distances < -tolerated).any():
        raise InvalidInputError(
            f"{quantity} must not be negative. Got {np.nanmin(distances):.6g} instead. If these "
            "are similarities or inner products, use the constructor of that name."
        )
    return np.maximum(distances, 0.0, out=distances)


def _from_cosine(values: AnyArray, quantity: str) -> FloatArray:
    cosines = np.asarray(values, np.float64)
    if (np.abs(cosines) > 1.0 + ROUNDING).any():
        raise InvalidInputError(
            f"{quantity} must lie in [-1, 1]. Got {np.nanmax(np.abs(cosines)):.6g} in magnitude. "
            "Normalise the vectors to unit length before indexing, or search by Euclidean distance."
        )
    return np.maximum(2.0 - 2.0 * cosines, 0.0)


PADDING_LABEL = -1


@dataclass(frozen=True, eq=False)
class ClassScores:
    """What a head says of n queries: log p(c | z) of the classes that it finds most probable.

    It travels with the neighbours of the same queries, so that whoever scores these has both; see
    `nearsure.heads`.

    Parameters
    ----------
    codes : array of shape (n, m)
        Classes, each once in a row; -1 where fewer than m are listed.
    log_shares : array of shape (n, m)
        Their log p(c | z); minus infinity where the code is -1.
    rest : array of shape (n,)
        The same of a usual class that is not listed.
    level : array of shape (n,)
        Logarithm of the sum that they were divided by: how well the classes fit the query at all.
        Where it is to tell unknown classes, it is on the scale of heads for own points.
    n_known : int
        Classes that the head knows. It has no opinion on those with larger codes.
    unheard : array of shape (n_unheard,)
        Classes with smaller codes on which it has none either, as it has seen no members.
    """

    codes: IntArray
    log_shares: FloatArray
    rest: FloatArray
    level: FloatArray
    n_known: int
    unheard: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def largest_logits(self) -> FloatArray:
        """Logit of each query's most probable class, shape (n,)."""
        return np.asarray(self.log_shares.max(axis=1) + self.level, np.float64)

    def take(self, rows: AnyArray | slice) -> "ClassScores":
        """The same of some of the queries, by index or mask."""
        return ClassScores(
            self.codes[rows],
            self.log_shares[rows],
            self.rest[rows],
            self.level[rows],
            self.n_known,
            self.unheard,
        )

    def without(self, codes: IntArray) -> "ClassScores":
        """The same as if each query's class of `codes`, of shape (n,), did not exist."""
        gone = self.lower(codes, np.inf)
        return replace(
            gone, codes=np.where(np.isneginf(gone.log_shares), PADDING_LABEL, gone.codes)
        )

    def lower(self, codes: IntArray, by: float) -> "ClassScores":
        """The same with the logit of each query's class of `codes`, of shape (n,), lowered."""
        lowered = self.codes == codes[:, None]
        share = np.where(lowered, np.exp(self.log_shares), 0.0).sum(axis=1)
        lost = np.log1p(-np.minimum(share * -np.expm1(-by), 1.0 - SMALLEST_SHARE))
        return replace(
            self,
            log_shares=np.where(lowered, self.log_shares - by, self.log_shares) - lost[:, None],
            rest=self.rest - lost,
            level=self.level + lost,
        )


def join_scores(parts: Sequence[tuple[AnyArray | slice, ClassScores]], n: int) -> ClassScores:
    """Join the scores of several sets of rows; shorter lists are padded, later ones stay."""
    m = max(scores.codes.shape[1] for _, scores in parts)
    codes, log_shares = np.full((n, m), PADDING_LABEL), np.full((n, m), -np.inf)
    rest, level = np.zeros(n), np.zeros(n)
    for rows, scores in parts:
        width = scores.codes.shape[1]
        codes[rows], log_shares[rows] = PADDING_LABEL, -np.inf
        codes[rows, :width], log_shares[rows, :width] = scores.codes, scores.log_shares
        rest[rows], level[rows] = scores.rest, scores.level
    every = [scores for _, scores in parts]
    unheard = reduce(np.intersect1d, (each.unheard for each in every))
    return ClassScores(codes, log_shares, rest, level, max(each.n_known for each in every), unheard)


# What is left of a row whose whole probability was one class that is taken out.
SMALLEST_SHARE = 1e-12


@dataclass(frozen=True, eq=False, init=False)
class Neighbors:
    """The k nearest support points of n queries, nearest first.

    The constructor checks; it does not convert. To bring in what an engine returned, use the
    constructor named after the engine's convention, such as `from_l2` or `from_inner_product`.

    Parameters
    ----------
    sq_distances : array of shape (n, k)
        Squared Euclidean distances, ascending in each row, finite, not negative.
    labels : array of shape (n, k)
        Integer class codes of the neighbours, not negative.
    ids : array of shape (n, k), optional
        Identity of each neighbour in the support set.
    counts : array of shape (n,), optional
        How many entries of each row are valid. What lies behind them is padding: it takes no part
        in any score, and is held as distance infinity, label -1 (and id -1 where ids are signed
        integers). By default every entry is valid.
    class_scores : ClassScores, optional
        What a head says of the same queries.

    Examples
    --------
    >>> neighbors = Neighbors(sq_distances=[[0.1, 0.4, 0.5]], labels=[[7, 7, 2]])
    >>> neighbors.n_queries, neighbors.k
    (1, 3)
    """

    sq_distances: FloatArray
    labels: IntArray
    ids: AnyArray | None
    counts: IntArray
    class_scores: ClassScores | None

    def __init__(
        self,
        sq_distances: ArrayLike,
        labels: ArrayLike,
        ids: ArrayLike | None = None,
        counts: ArrayLike | None = None,
        class_scores: ClassScores | None = None,
    ) -> None:
        sq_distances = _check_matrix(np.asarray(sq_distances, np.float64))
        labels = integer_codes(_same_shape(labels, "labels", sq_distances.shape))
        ids = None if ids is None else _same_shape(ids, "ids", sq_distances.shape)
        counts = _valid_counts(counts, *sq_distances.shape)
        if counts.min() < sq_distances.shape[1]:
            padding = np.arange(sq_distances.shape[1]) >= counts[:, None]
            sq_distances = np.where(padding, np.inf, sq_distances)
            labels = np.where(padding, PADDING_LABEL, labels)
            if ids is not None and ids.dtype.kind == "i":
                ids = np.where(padding, -1, ids)
            _check_valid_entries(sq_distances, labels, ~padding)
        else:
            _check_valid_entries(sq_distances, labels, None)
        vars(self).update(
            sq_distances=sq_distances,
            labels=labels,
            ids=ids,
            counts=counts,
            class_scores=class_scores,
        )

    @property
    def n_queries(self) -> int:
        """Number of queries, n."""
        return len(self.sq_distances)

    @property
    def k(self) -> int:
        """Number of neighbours that were asked for."""
        return int(self.sq_distances.shape[1])

    @cached_property
    def valid(self) -> BoolArray:
        """Mask of shape (n, k), False where an entry is padding."""
        return np.arange(self.k) < self.counts[:, None]

    @cached_property
    def is_full(self) -> bool:
        """Whether no entry is padding."""
        return bool((self.counts == self.k).all())

    def __len__(self) -> int:
        return len(self.sq_distances)

    def first(self, k: int) -> "Neighbors":
        """The same result cut to its k nearest neighbours."""
        if not 1 <= k <= self.k:
            raise InvalidInputError(
                f"k must lie in [1, {self.k}], the neighbours that were searched. Got {k} instead."
            )
        ids = None if self.ids is None else self.ids[:, :k]
        counts = np.minimum(self.counts, k)
        return Neighbors(
            self.sq_distances[:, :k], self.labels[:, :k], ids, counts, self.class_scores
        )

    def take(self, rows: AnyArray | slice) -> "Neighbors":
        """The same result for some of its queries, or none, by index or mask."""
        # What was checked once is not checked again, and may have no rows here.
        neighbors = object.__new__(Neighbors)
        vars(neighbors).update(
            sq_distances=self.sq_distances[rows],
            labels=self.labels[rows],
            ids=None if self.ids is None else self.ids[rows],
            counts=self.counts[rows],
            class_scores=None if self.class_scores is None else self.class_scores.take(rows),
        )
        return neighbors

    def with_scores(self, scores: ClassScores | None) -> "Neighbors":
        """The same neighbours beside what a head says of the queries."""
        neighbors = object.__new__(Neighbors)
        vars(neighbors).update(vars(self), class_scores=scores)
        return neighbors

    @classmethod
    def from_squared_l2(
        cls,
        distances: ArrayLike,
        labels: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        counts: ArrayLike | None = None,
    ) -> "Self":
        """From squared Euclidean distances, as faiss, Milvus and Chroma return them.

        Every ``from_`` constructor sorts each row, nearest first (ties keep the engine's order),
        and takes as padding what lies behind `counts`, what has the id -1, as faiss pads, and what
        has the label -1. Padding may hold any distance, NaN included; elsewhere NaN is an error.

        Parameters
        ----------
        distances, labels, ids : array of shape (n, k)
            What the engine returned, with the integer class code of each neighbour. Pass `ids`
            wherever the engine may return fewer than k: ``gallery_labels[ids]`` alone turns an
            id of -1 into the last label of the gallery.
        counts : array of shape (n,), optional
            How many entries of each row are valid.

        Examples
        --------
        >>> Neighbors.from_squared_l2([[0.5, 0.1]], [[3, 4]]).labels
        array([[4, 3]])
        """
        return cls._convert(squared_l2, distances, labels, ids, counts)

    @classmethod
    def from_l2(
        cls,
        distances: ArrayLike,
        labels: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        counts: ArrayLike | None = None,
    ) -> "Self":
        """From Euclidean distances: pgvector's ``<->``, Qdrant, scikit-learn.

        See `from_squared_l2` for the arguments, the sorting and the padding.

        Examples
        --------
        >>> Neighbors.from_l2([[1.0, 3.0]], [[0, 1]]).sq_distances
        array([[1., 9.]])
        """
        return cls._convert(l2, distances, labels, ids, counts)

    @classmethod
    def from_cosine_similarity(
        cls,
        similarities: ArrayLike,
        labels: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        counts: ArrayLike | None = None,
    ) -> "Self":
        """From cosine similarities: |z - z_i|^2 = 2 - 2 cos of the vectors at unit length.

        See `from_squared_l2` for the arguments, the sorting and the padding.

        Examples
        --------
        >>> Neighbors.from_cosine_similarity([[1.0, 0.5]], [[0, 1]]).sq_distances
        array([[0., 1.]])
        """
        return cls._convert(cosine_similarity, similarities, labels, ids, counts)

    @classmethod
    def from_cosine_distance(
        cls,
        distances: ArrayLike,
        labels: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        counts: ArrayLike | None = None,
    ) -> "Self":
        """From cosine distances, 1 - cos: pgvector's ``<=>``, Chroma.

        See `from_squared_l2` for the arguments, the sorting and the padding.

        Examples
        --------
        >>> Neighbors.from_cosine_distance([[0.0, 0.5]], [[0, 1]]).sq_distances
        array([[0., 1.]])
        """
        return cls._convert(cosine_distance, distances, labels, ids, counts)

    @classmethod
    def from_inner_product(
        cls,
        products: ArrayLike,
        labels: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        counts: ArrayLike | None = None,
    ) -> "Self":
        """From inner products of vectors of unit length: faiss, Milvus.

        See `from_squared_l2` for the arguments, the sorting and the padding.

        Examples
        --------
        >>> Neighbors.from_inner_product([[1.0, 0.5]], [[0, 1]]).sq_distances
        array([[0., 1.]])
        """
        return cls._convert(inner_product, products, labels, ids, counts)

    @classmethod
    def from_negative_inner_product(
        cls,
        products: ArrayLike,
        labels: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        counts: ArrayLike | None = None,
    ) -> "Self":
        """From negated inner products of vectors of unit length: pgvector's ``<#>``.

        See `from_squared_l2` for the arguments, the sorting and the padding.

        Examples
        --------
        >>> Neighbors.from_negative_inner_product([[-1.0, -0.5]], [[0, 1]]).sq_distances
        array([[0., 1.]])
        """
        return cls._convert(negative_inner_product, products, labels, ids, counts)

    @classmethod
    def _convert(
        cls,
        to_sq_distances: Callable[[AnyArray], FloatArray],
        values: ArrayLike,
        labels: ArrayLike,
        ids: ArrayLike | None,
        counts: ArrayLike | None,
    ) -> "Self":
        values = _check_matrix(np.array(values, np.float64, ndmin=2))
        label_codes = _same_shape(labels, "labels", values.shape)
        own_ids = None if ids is None else _same_shape(ids, "ids", values.shape)
        padding = np.arange(values.shape[1]) >= _valid_counts(counts, *values.shape)[:, None]
        for codes in (label_codes, own_ids):
            if codes is not None and codes.dtype.kind == "i":
                padding |= codes == PADDING_LABEL
        values[padding] = np.nan
        if np.isfinite(values).sum() + padding.sum() != values.size:
            raise InvalidInputError(
                "Distances must be finite outside the padding. Got NaN or infinity instead. If "
                "they mark missing neighbours, say how many are valid in each row with counts=."
            )
        sq_distances = to_sq_distances(values)
        nearest_first = np.argsort(sq_distances, axis=1, kind="stable")  # NaN sorts last

        def ordered(entries: AnyArray) -> AnyArray:
            return np.take_along_axis(entries, nearest_first, axis=1)

        return cls(
            ordered(sq_distances),
            ordered(label_codes),
            None if own_ids is None else ordered(own_ids),
            values.shape[1] - padding.sum(axis=1),
        )


def assemble(sq_distances: FloatArray, labels: IntArray, ids: AnyArray) -> Neighbors:
    """Make `Neighbors` of what our own search has just found, without most of the checks.

    Parameters
    ----------
    sq_distances, labels, ids : array of shape (n, k)
        Ascending distances, of which none but an overflow is not finite, and class codes. Every
        entry is valid.

    Examples
    --------
    >>> assemble(np.array([[0.1, 0.4]]), np.array([[7, 2]]), np.array([[0, 3]])).counts
    array([2])
    """
    if not np.isfinite(sq_distances[:, -1]).all():
        return Neighbors(sq_distances, labels, ids)  # raises an error that says so
    neighbors = object.__new__(Neighbors)
    n, k = sq_distances.shape
    vars(neighbors).update(
        sq_distances=sq_distances,
        labels=labels,
        ids=ids,
        counts=np.full(n, k),
        class_scores=None,
    )
    return neighbors


def _check_matrix(sq_distances: FloatArray) -> FloatArray:
    if sq_distances.ndim != 2:  # noqa: PLR2004
        raise InvalidInputError(
            "Distances must have the shape (queries, neighbours). "
            f"Got an array of shape {sq_distances.shape} instead."
        )
    if 0 in sq_distances.shape:
        raise InvalidInputError(
            "Distances must be those of at least one query and one neighbour. "
            f"Got an array of shape {sq_distances.shape} instead."
        )
    return sq_distances


def _same_shape(entries: ArrayLike, name: str, shape: tuple[int, ...]) -> AnyArray:
    array = np.asarray(entries)
    one_row = shape[0] == 1 and array.shape == shape[1:]
    if array.shape != shape and not one_row:
        raise InvalidInputError(
            f"{name} must have the shape of the distances, {shape}. "
            f"Got an array of shape {array.shape} instead."
        )
    return array.reshape(shape)


def _valid_counts(counts: ArrayLike | None, n_queries: int, k: int) -> IntArray:
    if counts is None:
        return np.full(n_queries, k)
    counts = np.asarray(counts)
    if counts.shape != (n_queries,) or counts.dtype.kind not in "iu":
        raise InvalidInputError(
            f"counts must be one integer for each of the {n_queries} queries. "
            f"Got an array of {counts.dtype} of shape {counts.shape} instead."
        )
    if counts.min() < 0 or counts.max() > k:
        raise InvalidInputError(
            f"counts must lie in [0, {k}]. Got {counts.min()} to {counts.max()} instead."
        )
    return counts.astype(np.int64, copy=False)


def _check_valid_entries(
    sq_distances: FloatArray, labels: IntArray, valid: BoolArray | None
) -> None:
    """Check what is not padding; the padding is infinite by now, hence ascending too."""
    finite = np.isfinite(sq_distances)
    if not (finite if valid is None else finite | ~valid).all():
        raise InvalidInputError(
            "sq_distances must be finite. Got NaN or infinity instead. Engines pad with such "
            "values where they find fewer than k neighbours: say how many are valid with counts=."
        )
    if sq_distances[:, 0].min() < 0:
        raise InvalidInputError(
            "sq_distances must not be negative. "
            f"Got {sq_distances.min():.6g} instead. If these are inner products or similarities, "
            "use the constructor of that name."
        )
    if not (sq_distances[:, 1:] >= sq_distances[:, :-1]).all():
        raise InvalidInputError(
            "sq_distances must ascend in each row. Got a row that does not. The from_ "
            "constructors, such as Neighbors.from_squared_l2, sort."
        )
    if (labels if valid is None else labels[valid]).min(initial=0) < 0:
        raise InvalidInputError(
            f"labels must be class codes >= 0. Got {labels.min()} instead. Where -1 marks missing "
            "neighbours, say how many are valid with counts= or use a from_ constructor."
        )
