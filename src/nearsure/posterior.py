"""Probabilities of the classes, sparse: only classes among a query's neighbours have an entry."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import PADDING_LABEL, Neighbors
from nearsure.rules import RuleName, rule_weights
from nearsure.validation import check_confidence

# Rows are aggregated in blocks of about this many neighbours, so that the temporary arrays stay
# in the processor's cache and do not add to the memory of a large result.
BLOCK_ENTRIES = 1 << 16


@dataclass(frozen=True, eq=False)
class Posterior:
    """p(c | z) of n queries, with the classes of each query ranked best first.

    The ranking is by larger probability, then nearer neighbour, then smaller class code: the order
    that breaks every tie in nearsure.

    Parameters
    ----------
    indptr : array of shape (n + 1,)
        Query i holds the entries ``indptr[i]:indptr[i + 1]``.
    codes : array of shape (n_entries,)
        Class codes, best first within a query.
    probabilities : array of shape (n_entries,)
        Their probabilities. Those of a query sum to 1, or to less where something is left for
        classes that are not among its neighbours, or for none.
    n_classes : int
        Number of classes; every code is below it.

    Examples
    --------
    >>> posterior = score(Neighbors([[0.0, 1.0, 4.0]], [[2, 0, 0]]), rule="knn")
    >>> posterior.labels, posterior.confidence.round(3), posterior.margin.round(3)
    (array([0]), array([0.667]), array([0.333]))
    """

    indptr: IntArray
    codes: IntArray
    probabilities: FloatArray
    n_classes: int

    def __post_init__(self) -> None:
        check_indptr(self.indptr)
        if len(self.codes) != len(self.probabilities) or self.indptr[-1] != len(self.codes):
            raise InvalidInputError(
                "codes and probabilities must both have indptr[-1] entries. "
                f"Got {len(self.codes)}, {len(self.probabilities)} and {self.indptr[-1]} instead."
            )
        check_class_codes(self.codes, self.n_classes)
        if self.codes.size and not 0 <= self.probabilities.min() <= self.probabilities.max() <= 1:
            raise InvalidInputError(
                "Probabilities must lie in [0, 1]. "
                f"Got {self.probabilities.min()} to {self.probabilities.max()} instead."
            )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def labels(self) -> IntArray:
        """Code of the most probable class of each query; -1 for a query without neighbours."""
        return self.top(1)[0][:, 0]

    @property
    def confidence(self) -> FloatArray:
        """Probability of that class; 0 for a query without neighbours."""
        return self.top(1)[1][:, 0]

    @property
    def margin(self) -> FloatArray:
        """Probability of the best class less that of the second best."""
        probabilities = self.top(2)[1]
        return probabilities[:, 0] - probabilities[:, 1]

    @property
    def entropy(self) -> FloatArray:
        """Entropy of each query's probabilities, in nats."""
        p = self.probabilities
        surprise = -p * np.log(p, out=np.zeros_like(p), where=p > 0)
        return np.asarray(np.bincount(self.rows, surprise, minlength=len(self)), np.float64)

    @cached_property
    def rows(self) -> IntArray:
        """The query that each entry belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def top(self, m: int) -> tuple[IntArray, FloatArray]:
        """The m best classes of each query.

        Parameters
        ----------
        m : int
            How many.

        Returns
        -------
        codes : array of shape (n, m)
            Class codes, best first; -1 where a query has fewer than m classes.
        probabilities : array of shape (n, m)
            Their probabilities; 0 there.
        """
        if m < 1:
            raise InvalidInputError(f"m must be at least 1. Got {m} instead.")
        places = self.indptr[:-1, None] + np.arange(m)
        present = places < self.indptr[1:, None]
        if present.all():
            return self.codes[places], self.probabilities[places]
        codes = np.full(places.shape, PADDING_LABEL)
        probabilities = np.zeros(places.shape)
        codes[present] = self.codes[places[present]]
        probabilities[present] = self.probabilities[places[present]]
        return codes, probabilities

    def probability_of(self, codes: IntArray) -> FloatArray:
        """Probability of one class for each query; 0 where it is not among the neighbours.

        Parameters
        ----------
        codes : array of shape (n,)
            A class code for each query. It need not be a class of the support set.
        """
        codes = np.asarray(codes)
        if codes.shape != (len(self),):
            raise InvalidInputError(
                f"codes must be one class code for each of the {len(self)} queries. "
                f"Got an array of shape {codes.shape} instead."
            )
        hits = self.codes == codes[self.rows]
        found = np.zeros(len(self))
        found[self.rows[hits]] = self.probabilities[hits]
        return found

    def take(self, rows: AnyArray | slice) -> "Posterior":
        """The posterior of some of the queries, by index (repeats allowed) or mask."""
        rows = np.arange(len(self))[rows]
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return Posterior(indptr, self.codes[entries], self.probabilities[entries], self.n_classes)

    def to_csr(self) -> csr_array:
        """Matrix of shape (n, n_classes) in scipy's CSR form, columns ascending."""
        matrix = csr_array(
            (self.probabilities.copy(), self.codes.copy(), self.indptr.copy()),
            shape=(len(self), self.n_classes),
        )
        matrix.sort_indices()
        return matrix


def check_indptr(indptr: IntArray) -> None:
    """Raise unless the entries of one query end where those of the next begin."""
    if not len(indptr) or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise InvalidInputError(f"indptr must ascend from 0. Got {indptr[:5]} and so on instead.")


def check_class_codes(codes: IntArray, n_classes: int) -> None:
    """Raise unless every code is one of so many classes."""
    if codes.size and not 0 <= codes.min() <= codes.max() < n_classes:
        raise InvalidInputError(
            f"Class codes must lie in [0, {n_classes}). Got {codes.min()} to {codes.max()} instead."
        )


def score(
    neighbors: Neighbors,
    *,
    rule: RuleName = "ned",
    temperature: float | None = None,
    n_classes: int | None = None,
) -> Posterior:
    """Turn neighbours into probabilities: the weights of a rule, summed up class by class.

    Parameters
    ----------
    neighbors : Neighbors
        What a search returned.
    rule : {"ned", "1nn", "knn", "dudani", "gou"}
        Whose weights; "ned" is the paper's eq:ned.
    temperature : float, optional
        T of NED; `fit_temperature` finds it.
    n_classes : int, optional
        Number of classes; by default one more than the largest code among the neighbours.

    Returns
    -------
    Posterior

    Examples
    --------
    >>> posterior = score(Neighbors([[0.0, 1.0, 4.0]], [[2, 0, 0]]), temperature=1.0)
    >>> posterior.labels, posterior.confidence.round(3)
    (array([2]), array([0.721]))
    """
    return aggregate(neighbors, rule_weights(neighbors, rule, temperature), n_classes=n_classes)


def aggregate(
    neighbors: Neighbors,
    weights: FloatArray,
    *,
    n_classes: int | None = None,
    sharpness: float = 1.0,
    class_factors: FloatArray | None = None,
) -> Posterior:
    """Each class's share of the votes (eq:wknn_confident_neighbor).

    Parameters
    ----------
    neighbors : Neighbors
        The voters.
    weights : array of shape (n, k)
        Their weights, not negative, zero on padding.
    n_classes : int, optional
        Number of classes; by default one more than the largest code among the neighbours.
    sharpness : float
        Power that each class's sum of votes is raised to before they are compared; see
        `nearsure.forms`.
    class_factors : array of shape (n_classes,), optional
        What each class's votes are multiplied by, after that: positive numbers.
    """
    if weights.shape != neighbors.sq_distances.shape:
        raise InvalidInputError(
            f"weights must have the shape of the neighbours, {neighbors.sq_distances.shape}. "
            f"Got an array of shape {weights.shape} instead."
        )
    if not 0 <= weights.min() <= weights.max() < np.inf:
        raise InvalidInputError(
            "weights must be finite and not negative. "
            f"Got {weights.min():.6g} to {weights.max():.6g} instead."
        )
    step = max(1, BLOCK_ENTRIES // neighbors.k)
    blocks = [
        _class_shares(neighbors, weights, slice(start, start + step), sharpness, class_factors)
        for start in range(0, len(neighbors), step)
    ]
    lengths, codes, shares = (
        parts[0] if len(parts) == 1 else np.concatenate(parts)
        for parts in zip(*blocks, strict=True)
    )
    indptr = np.zeros(len(neighbors) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    if n_classes is None:
        n_classes = int(codes.max(initial=-1)) + 1
    return Posterior(indptr, codes, shares, n_classes)


def neighbor_shares(neighbors: Neighbors, weights: FloatArray, posterior: Posterior) -> FloatArray:
    """Each class's probability divided among its neighbours in proportion to their weights.

    Parameters
    ----------
    neighbors : Neighbors
        What a search returned.
    weights : array of shape (n, k)
        Not negative, 0 on padding.
    posterior : Posterior
        Of the same rows.

    Returns
    -------
    array of shape (n, k)
        Rows sum to what the posterior's rows do.

    Examples
    --------
    >>> found = Neighbors([[0.0, 1.0, 4.0]], [[2, 0, 0]])
    >>> weights = np.array([[0.5, 0.3, 0.2]])
    >>> neighbor_shares(found, weights, aggregate(found, weights, sharpness=2.0))
    array([[0.5, 0.3, 0.2]])
    """
    # One number for each pair of query and class; classes of padding never meet a weight.
    width = max(posterior.n_classes, 1)
    pairs = np.arange(len(neighbors))[:, None] * width + np.maximum(neighbors.labels, 0)
    unique, places = np.unique(pairs, return_inverse=True)
    totals = np.bincount(places.ravel(), weights.ravel(), len(unique))
    probabilities = np.zeros(len(unique))
    listed = np.searchsorted(unique, posterior.rows * width + posterior.codes)
    probabilities[listed] = posterior.probabilities
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(totals > 0, probabilities / totals, 0.0)
    return np.asarray(weights * factors[places.reshape(weights.shape)], np.float64)


def _class_shares(
    neighbors: Neighbors,
    weights: FloatArray,
    rows: slice,
    sharpness: float,
    class_factors: FloatArray | None,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Number of classes of each row of a block, then their codes and shares, best first."""
    labels = neighbors.labels[rows]
    n, k = labels.shape
    row_starts = np.arange(0, n * k, k)
    # A stable sort by class keeps the neighbours of one class nearest first, so that a class's sum
    # has one order of additions whatever the other classes are called.
    by_class = (np.argsort(labels, axis=1, kind="stable") + row_starts[:, None]).ravel()
    sorted_labels = labels.ravel()[by_class]
    starts_class = np.ones(n * k, np.bool_)
    np.not_equal(sorted_labels[1:], sorted_labels[:-1], out=starts_class[1:])
    starts_class[row_starts] = True
    starts = np.flatnonzero(starts_class)
    votes = np.add.reduceat(weights[rows].ravel()[by_class], starts)
    codes, nearest, row = sorted_labels[starts], by_class[starts], starts // k
    if not neighbors.is_full:
        classes = codes != PADDING_LABEL
        votes, codes, nearest, row = votes[classes], codes[classes], nearest[classes], row[classes]
    if sharpness != 1.0:
        # Relative to the row's largest, no power overflows.
        row_starts = np.flatnonzero(np.diff(row, prepend=-1))
        largest = np.maximum.reduceat(votes, row_starts) if votes.size else votes
        votes = (votes / np.repeat(largest, np.diff(row_starts, append=len(row)))) ** sharpness
    if class_factors is not None:
        votes = votes * class_factors[codes]
    best_first = _rank(votes, codes, nearest, neighbors.sq_distances[rows])
    codes, votes = codes[best_first], votes[best_first]
    # Divided by the sum of these very votes, a lone class has exactly 1 and no class has more;
    # added best first, the sum does not depend on what the classes are called.
    totals = np.bincount(row, votes, minlength=n)
    if (totals[row] == 0).any():
        raise InvalidInputError(
            "weights must not all be 0 for a query that has neighbours. Got such a row."
        )
    return np.bincount(row, minlength=n), codes, votes / totals[row]


def _rank(
    votes: FloatArray, codes: IntArray, nearest: IntArray, sq_distances: FloatArray
) -> IntArray:
    """The order of classes, row by row: more votes, then nearer neighbour, then smaller code.

    `nearest` is the place of each class's nearest neighbour in the flattened block.
    """
    # Without equal distances a class's place shows which is nearer, and short rows sort faster.
    entry = np.full(sq_distances.shape, -1)
    entry.ravel()[nearest] = np.arange(len(votes))
    row_votes = np.full(sq_distances.shape, -np.inf)
    row_votes.ravel()[nearest] = votes
    most_first = np.argsort(-row_votes, axis=1, kind="stable")
    ranked = np.take_along_axis(entry, most_first, axis=1).ravel()
    ranked = ranked[ranked >= 0]
    equal = sq_distances[:, 1:] == sq_distances[:, :-1]
    # Padding is as far as padding, and ranks nothing.
    ties = (equal & np.isfinite(sq_distances[:, 1:])).any(axis=1)
    if ties.any():
        row = nearest // sq_distances.shape[1]
        tied = np.flatnonzero(ties[row])
        order = np.lexsort(
            (codes[tied], sq_distances.ravel()[nearest[tied]], -votes[tied], row[tied])
        )
        ranked[tied] = tied[order]
    return ranked


# A row that lacks less than this of 1 lacks it by rounding, and leaves nothing unassigned.
ROUNDING = 1e-12
# A class that would rise above the top one ends this little below it, so that the top stays the top
# in a dense matrix, too, where no order of entries shows which of two equal ones it is.
JUST_BELOW = 1.0 - 1e-12


def as_confidence(confidence: ArrayLike) -> FloatArray:
    """Return values of any shape, none at all included, as float64 in [0, 1]; raise otherwise."""
    values = np.asarray(confidence)
    if not values.size:
        return np.zeros(values.shape)
    if values.dtype == np.float64 and 0.0 <= values.min() <= values.max() <= 1.0:
        return values
    return check_confidence(values.ravel()).reshape(values.shape)


def with_confidence(posterior: Posterior, confidence: ArrayLike) -> Posterior:
    """The posterior with another confidence in each label, the label and the ranking unchanged.

    The top class gets the new confidence. What is left of 1 goes to the other classes in their old
    proportions, with two exceptions, in which a part stays unassigned and the row sums to less
    than 1:

    - No class may rise above the top one. A class that would ends just below it.
    - A row with one class only has no other to take the rest.

    What a row left unassigned before is one of those that share the rest. A query without
    neighbours has no class, and stays so whatever its confidence.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    confidence : array-like of shape (n,)
        The new confidence in each label, in [0, 1].

    Returns
    -------
    Posterior
        Of the same classes in the same order.

    Examples
    --------
    >>> posterior = Posterior(np.array([0, 3]), np.array([4, 0, 2]), np.array([0.6, 0.3, 0.1]), 5)
    >>> with_confidence(posterior, [0.8]).probabilities.round(3)
    array([0.8 , 0.15, 0.05])
    >>> with_confidence(posterior, [0.4]).probabilities.round(3)  # 0.45 would be above the top
    array([0.4 , 0.4 , 0.15])
    """
    new = as_confidence(confidence)
    if new.shape != (len(posterior),):
        raise InvalidInputError(
            f"The 'confidence' parameter must be one number for each of the {len(posterior)} "
            f"queries. Got an array of shape {new.shape} instead."
        )
    n, rows = len(posterior), posterior.rows
    has_top = np.diff(posterior.indptr) > 0
    top = posterior.indptr[:-1][has_top]
    others = posterior.probabilities.copy()
    others[top] = 0.0
    others_total = np.bincount(rows, others, minlength=n)
    unassigned = 1.0 - others_total - posterior.confidence
    rest = others_total + np.where(unassigned > ROUNDING, unassigned, 0.0)
    # Divided first: a rest of 1e-300 has no finite inverse.
    shares = np.divide(others, rest[rows], out=np.zeros_like(others), where=others > 0)
    probabilities = np.minimum(shares * (1.0 - new)[rows], JUST_BELOW * new[rows])
    probabilities[top] = new[has_top]
    return replace(posterior, probabilities=probabilities)


# Probabilities that are filled in at a time, so that little more than the result is in memory.
DENSE_BLOCK_ENTRIES = 1 << 20


def to_dense(
    posterior: Posterior, totals: FloatArray, possible: BoolArray | None = None
) -> FloatArray:
    """Return the probabilities of all classes; what a row lacks of its total goes to the others.

    A calibrated row sums to less than 1: the rest is the chance of a class that is not among the
    neighbours. It is shared evenly by the classes without an entry. No class rises above the top
    one, so that the most probable class stays the label; what is then left over goes to all
    classes as far as they lie below it.

    Parameters
    ----------
    posterior : Posterior
        Of n queries. The top class of a row has at least its total over the possible classes.
    totals : array of shape (n,)
        What each row shall sum to.
    possible : array of shape (n_classes,), optional
        Which classes can be the answer at all; by default every one.

    Returns
    -------
    array of shape (n, n_classes)

    Examples
    --------
    >>> to_dense(Posterior(np.array([0, 1]), np.array([2]), np.array([0.9]), 3), np.ones(1))
    array([[0.05, 0.05, 0.9 ]])
    """
    dense = np.empty((len(posterior), posterior.n_classes))
    step = max(1, DENSE_BLOCK_ENTRIES // max(1, posterior.n_classes))
    for start in range(0, len(posterior), step):
        rows = slice(start, start + step)
        dense[rows] = _fill_block(posterior.take(rows), totals[rows], possible)
    return dense


def _fill_block(posterior: Posterior, totals: FloatArray, possible: BoolArray | None) -> FloatArray:
    dense: FloatArray = posterior.to_csr().toarray()
    absent = np.ones(dense.shape, np.bool_)
    absent[posterior.rows, posterior.codes] = False
    if possible is not None:
        absent &= possible
    top = posterior.confidence[:, None]
    missing = np.maximum(totals[:, None] - dense.sum(axis=1, keepdims=True), 0.0)
    n_absent = absent.sum(axis=1, keepdims=True)
    share = np.minimum(missing / np.maximum(n_absent, 1), JUST_BELOW * top)
    dense += np.where(absent, share, 0.0)
    missing = np.maximum(totals[:, None] - dense.sum(axis=1, keepdims=True), 0.0)
    room = np.maximum(JUST_BELOW * top - dense, 0.0)
    if possible is not None:
        room *= possible
    all_room = room.sum(axis=1, keepdims=True)
    part = np.divide(missing, all_room, out=np.zeros_like(missing), where=all_room > 0)
    return np.asarray(dense + room * np.minimum(part, 1.0), np.float64)
