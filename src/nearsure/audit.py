"""What is wrong with a gallery, read off its leave-one-out neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, triu

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.bursts import CUTS, group_near_copies
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, aggregate, score
from nearsure.rules import ned_weights
from nearsure.table import Column, Table, plain
from nearsure.wrong_labels import LabelSupport, WrongLabels, estimate_wrong_labels

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

__all__ = [
    "ConfusableClasses",
    "GalleryAudit",
    "NearCopies",
    "NearDuplicates",
    "SmallClasses",
    "SuspectLabels",
    "audit",
    "confusable_classes",
    "near_copies_within_classes",
    "near_duplicates_across_classes",
    "small_classes",
    "suspect_labels",
]


@dataclass(frozen=True, eq=False)
class SupportPoints:
    """Every point of a support set, with the points that stand around it.

    Parameters
    ----------
    ids : array of shape (n,)
        Identity of each point.
    codes : array of shape (n,)
        Class code of each point.
    rows, others : array of shape (n_entries,)
        Rows of a point and of one of its neighbours, for each neighbour that is not padding, in
        the order of ``neighbors.sq_distances[neighbors.valid]``.
    """

    ids: AnyArray
    codes: IntArray
    rows: IntArray
    others: IntArray


def check_codes(neighbors: Neighbors, codes: ArrayLike) -> IntArray:
    """Class codes of the points that were searched; an error if they are no such thing."""
    found = np.asarray(codes)
    if found.shape != (len(neighbors),) or found.dtype.kind not in "iu" or found.min() < 0:
        raise InvalidInputError(
            f"codes must be one integer class code >= 0 for each of the {len(neighbors)} points. "
            f"Got an array of {found.dtype} of shape {found.shape} instead, or a negative code. "
            "classes, codes = numpy.unique(gallery_labels, return_inverse=True) makes them."
        )
    return found.astype(np.int64, copy=False)


def support_points(
    neighbors: Neighbors, codes: ArrayLike, ids: ArrayLike | None = None
) -> SupportPoints:
    """Find the row of each neighbour, and check that the neighbours are those of this gallery.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all support points, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    ids : array of shape (n,), optional
        Their identities, by which the neighbours name them; by default the row numbers.

    Examples
    --------
    >>> points = support_points(Neighbors([[1.0], [1.0]], [[5], [4]], [[8], [9]]), [4, 5], [9, 8])
    >>> points.rows, points.others
    (array([0, 1]), array([1, 0]))
    """
    codes = check_codes(neighbors, codes)
    if neighbors.ids is None:
        raise InvalidInputError(
            "neighbors must have ids, by which they are known among the points. Got none: pass "
            "ids= to the constructor of Neighbors; search_leaving_one_out gives them."
        )
    own = np.arange(len(codes)) if ids is None else np.asarray(ids)
    _check_own_ids(own, neighbors.ids, len(neighbors))
    rows = np.repeat(np.arange(len(codes)), neighbors.counts)
    others = _rows_of(neighbors.ids[neighbors.valid], own)
    if (rows == others).any():
        raise InvalidInputError(
            "neighbors must not hold a point among its own neighbours. "
            f"Got {np.sum(rows == others)} such entries: leave_one_out removes them."
        )
    n_stale = int((neighbors.labels[neighbors.valid] != codes[others]).sum())
    if n_stale:
        raise InvalidInputError(
            "neighbors must carry the same labels as codes. "
            f"Got {n_stale} neighbours whose label is not the code of the point of that id."
        )
    return SupportPoints(own, codes, rows, others)


def _check_own_ids(own: AnyArray, neighbor_ids: AnyArray, n_points: int) -> None:
    if own.shape != (n_points,):
        raise InvalidInputError(
            f"ids must be one id for each of the {n_points} points. "
            f"Got an array of shape {own.shape} instead."
        )
    if (own.dtype.kind in "iu") != (neighbor_ids.dtype.kind in "iu"):
        raise InvalidInputError(
            f"ids must be of the kind of the neighbours' ids, {neighbor_ids.dtype}. "
            f"Got {own.dtype} instead; without ids= they are row numbers."
        )
    n_distinct = len(np.unique(own))
    if n_distinct < n_points:
        raise InvalidInputError(
            f"ids must differ from point to point. Got {n_distinct} ids for {n_points} points."
        )


def _rows_of(wanted: AnyArray, own: AnyArray) -> IntArray:
    order = np.argsort(own)
    places = np.minimum(np.searchsorted(own[order], wanted), len(own) - 1)
    rows = order[places]
    unknown = own[rows] != wanted
    if unknown.any():
        raise InvalidInputError(
            "neighbors must name points of this gallery alone, by the ids of the points. "
            f"Got {np.sum(unknown)} others, such as {wanted[unknown][0]!r}: audit all support "
            "points together, and pass ids= where ids are not row numbers."
        )
    return rows


@dataclass(frozen=True, eq=False)
class ConfusableClasses:
    """Pairs of classes, ranked by how often one is taken for the other; see `confusable_classes`.

    Parameters
    ----------
    codes : array of shape (n_pairs, 2)
        The two classes, smaller code first; most confused pair first. Only pairs with a
        confusion above 0 are listed.
    confusion : array of shape (n_pairs,)
        Mean of the two entries of `mass`, in [0, 1].
    mass : sparse array of shape (n_classes, n_classes)
        Entry (a, b) is the mean leave-one-out probability of class b over the points of class a.
        Rows of classes with points sum to 1.
    """

    codes: IntArray
    confusion: FloatArray
    mass: csr_array

    def __len__(self) -> int:
        return len(self.confusion)


def confusable_classes(
    neighbors: Neighbors, codes: ArrayLike, *, temperature: float
) -> ConfusableClasses:
    """Rank pairs of classes by the probability that their points give to each other's class.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of the points of the gallery. Points without any are left out.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.

    Returns
    -------
    ConfusableClasses
        Without pairs if there is one class only, or no class is confused with another.

    Examples
    --------
    >>> neighbors = Neighbors([[1.0, 1.0]] * 3, [[0, 1], [0, 1], [2, 2]])
    >>> pairs = confusable_classes(neighbors, [0, 1, 2], temperature=1.0)
    >>> pairs.codes, pairs.confusion
    (array([[0, 1]]), array([0.5]))
    """
    codes = check_codes(neighbors, codes)
    n_classes = int(max(codes.max(), neighbors.labels.max())) + 1
    posterior = score(neighbors, temperature=temperature, n_classes=n_classes)
    rows = np.flatnonzero(neighbors.counts > 0)
    sizes = np.bincount(codes[rows], minlength=n_classes)
    mean_of_class = csr_array(
        (1.0 / sizes[codes[rows]], (codes[rows], rows)), shape=(n_classes, len(codes))
    )
    mass = csr_array(mean_of_class @ posterior.to_csr())
    mass.sort_indices()
    either = triu(csr_array((mass + mass.T) / 2), k=1, format="coo")
    confused = either.data > 0
    pairs = np.column_stack([either.row[confused], either.col[confused]]).astype(np.int64)
    confusion = either.data[confused]
    ranked = np.lexsort((pairs[:, 1], pairs[:, 0], -confusion))
    return ConfusableClasses(pairs[ranked], confusion[ranked], mass)


# A tenth of the usual distance to the nearest neighbour, squared.
RELATIVE_THRESHOLD = 0.01


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Pairs of nearly identical points; `near_duplicates_across_classes` makes it.

    Parameters
    ----------
    ids : array of shape (n_pairs, 2)
        The two points, in the order of their rows; each pair once, nearest first.
    codes : array of shape (n_pairs, 2)
        Their class codes, which differ.
    sq_distances : array of shape (n_pairs,)
        Squared distance of the two.
    threshold : float
        The largest squared distance that counted as nearly identical.
    """

    ids: AnyArray
    codes: IntArray
    sq_distances: FloatArray
    threshold: float

    def __len__(self) -> int:
        return len(self.sq_distances)


def near_duplicates_across_classes(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    relative_threshold: float = RELATIVE_THRESHOLD,
) -> NearDuplicates:
    """Find pairs that are nearly the same point but differ in their label.

    One of the two labels is wrong, or the two classes cannot be told apart there. A pair is seen
    only where one of the two is among the k nearest of the other: with more than k copies of a
    point, some pairs may be missing.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    ids : array of shape (n,), optional
        Identity of each point, by which `neighbors` names it; by default its row number.
    relative_threshold : float
        Two points are nearly identical up to this many times the median squared distance between
        a point and its nearest neighbour. The default of 0.01 is a tenth of that distance. With 0,
        only exact duplicates count; so too in a gallery where most points have one.

    Returns
    -------
    NearDuplicates

    Examples
    --------
    >>> neighbors = Neighbors(
    ...     [[0.001, 4.0], [0.001, 4.0], [1.0, 4.0], [1.0, 5.0]],
    ...     [[1, 0], [0, 0], [1, 0], [0, 1]],
    ...     ids=[[1, 2], [0, 2], [3, 0], [2, 1]],
    ... )
    >>> near_duplicates_across_classes(neighbors, [0, 1, 0, 1]).ids
    array([[0, 1]])
    """
    points = support_points(neighbors, codes, ids)
    if not 0 <= relative_threshold < np.inf:
        raise InvalidInputError(
            f"relative_threshold must be a finite number >= 0. Got {relative_threshold} instead."
        )
    nearest = neighbors.sq_distances[neighbors.counts > 0, 0]
    threshold = float(relative_threshold * np.median(nearest)) if nearest.size else 0.0
    sq_distances = neighbors.sq_distances[neighbors.valid]
    found = (sq_distances <= threshold) & (points.codes[points.rows] != points.codes[points.others])
    pairs = np.sort(np.column_stack([points.rows[found], points.others[found]]), axis=1)
    sq_distances = sq_distances[found]
    # Both may have found each other, at distances that an engine rounded differently.
    nearest_first = np.lexsort((sq_distances, pairs[:, 1], pairs[:, 0]))
    pairs, once = np.unique(pairs[nearest_first], axis=0, return_index=True)
    sq_distances = sq_distances[nearest_first][once]
    ranked = np.argsort(sq_distances, kind="stable")
    rows = pairs[ranked]
    return NearDuplicates(points.ids[rows], points.codes[rows], sq_distances[ranked], threshold)


@dataclass(frozen=True, eq=False)
class NearCopies:
    """Groups of copies and near-copies within a class; `near_copies_within_classes` makes it.

    Parameters
    ----------
    ids : list of array
        Ids of the points of each group, the largest group first.
    codes : array of shape (n_groups,)
        Class code of each.
    n_exact : int
        Points that have an exact copy in their class.
    """

    ids: list[AnyArray]
    codes: IntArray
    n_exact: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_points(self) -> int:
        """Points in these groups."""
        return sum(map(len, self.ids))


def near_copies_within_classes(
    neighbors: Neighbors, codes: ArrayLike, *, ids: ArrayLike | None = None
) -> NearCopies:
    """Find bursts: points of one class far nearer to each other than to the rest of it.

    They are right about each other, whatever queries find: see `nearsure.bursts`.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    ids : array of shape (n,), optional
        Identity of each point, by which `neighbors` names it; by default its row number.

    Returns
    -------
    NearCopies
    """
    points = support_points(neighbors, codes, ids)
    groups = group_near_copies(
        neighbors, points.codes, points.ids, class_sizes=np.bincount(points.codes), cut=CUTS[-1]
    )
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    bursts = sorted((rows for rows in members if len(rows) > 1), key=len, reverse=True)
    same = neighbors.valid & (neighbors.labels == points.codes[:, None])
    return NearCopies(
        [points.ids[rows] for rows in bursts],
        np.array([points.codes[rows[0]] for rows in bursts], np.int64),
        int((same & (neighbors.sq_distances == 0)).any(axis=1).sum()),
    )


MIN_MEMBERS = 5
MAX_MISS_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class SmallClasses:
    """Classes whose confidence is unreliable; `small_classes` makes it.

    Parameters
    ----------
    codes : array of shape (n_small,)
        Which classes: fewest members first, then most misses, then the smaller code.
    n_members : array of shape (n_small,)
        Points of each class.
    n_missed : array of shape (n_small,)
        Those that have no other point of their class among their neighbours.
    accuracy : array of shape (n_small,)
        Share of the members that leave-one-out prediction gets right.
    """

    codes: IntArray
    n_members: IntArray
    n_missed: IntArray
    accuracy: FloatArray

    def __len__(self) -> int:
        return len(self.codes)


def small_classes(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    temperature: float,
    min_members: int = MIN_MEMBERS,
    max_miss_share: float = MAX_MISS_SHARE,
) -> SmallClasses:
    """Find the classes that are too small for a reliable confidence.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.
    min_members : int
        A class with fewer members is listed.
    max_miss_share : float
        A class is listed, too, if a larger share of its members have no other member among their
        neighbours. NED then gives their class the probability 0, and T cannot change that.

    Returns
    -------
    SmallClasses
        Only classes that occur in `codes`; none if all are large enough.

    Examples
    --------
    >>> neighbors = Neighbors([[1.0], [1.0], [2.0]], [[0], [0], [0]])
    >>> small = small_classes(neighbors, [0, 0, 1], temperature=1.0, min_members=2)
    >>> small.codes, small.n_members, small.n_missed, small.accuracy
    (array([1]), array([1]), array([1]), array([0.]))
    """
    codes = check_codes(neighbors, codes)
    if min_members < 0:
        raise InvalidInputError(f"min_members must not be negative. Got {min_members} instead.")
    if not 0 <= max_miss_share <= 1:
        raise InvalidInputError(f"max_miss_share must lie in [0, 1]. Got {max_miss_share} instead.")
    missed = (neighbors.labels != codes[:, None]).all(axis=1)
    right = score(neighbors, temperature=temperature).labels == codes
    classes, place, n_members = np.unique(codes, return_inverse=True, return_counts=True)
    n_missed = np.bincount(place[missed], minlength=len(classes))
    n_right = np.bincount(place[right], minlength=len(classes))
    miss_share = n_missed / n_members
    small = np.flatnonzero((n_members < min_members) | (miss_share > max_miss_share))
    small = small[np.lexsort((-miss_share[small], n_members[small]))]
    return SmallClasses(
        classes[small], n_members[small], n_missed[small], (n_right / n_members)[small]
    )


# How far the points around a point support a label.
#
# Three things set it apart from the label's probability:
#
# - Votes are mutual. A point is also a neighbour of other points, and whether its label agrees with
#   theirs is evidence of the same kind, without a further search.
# - Votes are partly second-hand. A neighbour supports its own label and, with the weight
#   `second_hand`, the labels of its other neighbours. That reaches beyond the k nearest: where no
#   neighbour shares the label, p(own label) is 0 for near and far classes alike, and here it is
#   not. The point is left out of the second-hand votes, or a wrong label would support itself.
# - The label is compared with its best rival, so that a point in a crowd of many classes is not as
#   suspect as one in the midst of another class.
#
# Where a head is used beside the neighbours, what both say together of a point that neither has
# seen has the larger part in it.


SECOND_HAND = 0.3
# Part of a posterior of neighbours and head in the support of a label, beside the votes. Chosen on
# HWU64 and TREC among 0.5 to 0.95.
JOINT_PART = 0.8
# Labels that are made wrong, of each kind, to estimate the number of wrong ones.
N_MADE_UP = 10_000
# Below this share of a neighbour's votes, what other points add is rounding.
NOTHING_LEFT = 1e-9


@dataclass(frozen=True, eq=False)
class Votes:
    """What points weigh for each other; `count_votes` makes it.

    Parameters
    ----------
    mutual : sparse array of shape (n, n)
        Symmetric: what either of two points gave the other.
    by_class : sparse array of shape (n, n_codes)
        Sums of a point's votes over the members of each class.
    """

    mutual: csr_array
    by_class: csr_array


def count_votes(points: SupportPoints, weights: FloatArray) -> Votes:
    """Let each point hand out one vote to its neighbours.

    Parameters
    ----------
    points : SupportPoints
        The gallery.
    weights : array of shape (n_entries,)
        What each neighbour weighs, for ``points.rows`` and ``points.others``.
    """
    n_points, codes = len(points.codes), points.codes
    shares = weights / np.bincount(points.rows, weights, minlength=n_points)[points.rows]
    given = csr_array((shares, (points.rows, points.others)), shape=(n_points, n_points))
    mutual = csr_array(given + given.T)
    by_class = csr_array(mutual @ csr_array((np.ones(n_points), (np.arange(n_points), codes))))
    by_class.sort_indices()
    return Votes(mutual, by_class)


def label_support(
    points: SupportPoints,
    votes: Votes,
    rows: IntArray,
    labels: IntArray,
    *,
    second_hand: float = SECOND_HAND,
) -> FloatArray:
    """Support of a label at some points, as a share of the votes of each point.

    Parameters
    ----------
    points : SupportPoints
        The gallery.
    votes : Votes
        Of its points.
    rows : array of shape (n_asked,)
        Points with neighbours; one may occur more than once.
    labels : array of shape (n_asked,)
        Codes of classes of the gallery, each point's own or any other.
    second_hand : float
        Weight in [0, 1) of what a neighbour's other neighbours are, against what it is itself.

    Returns
    -------
    array of shape (n_asked,)
        In [0, 1].

    Examples
    --------
    Two pairs far apart, one point of the second pair labelled as the first:

    >>> points = SupportPoints(
    ...     ids=np.arange(5),
    ...     codes=np.array([0, 0, 1, 1, 0]),
    ...     rows=np.array([0, 1, 2, 3, 4, 4]),
    ...     others=np.array([1, 0, 3, 2, 2, 3]),
    ... )
    >>> votes = count_votes(points, np.ones(6))
    >>> label_support(points, votes, rows=np.array([0, 4, 4]), labels=np.array([0, 0, 1]))
    array([1., 0., 1.])
    """
    if not 0 <= second_hand < 1:
        raise InvalidInputError(f"second_hand must lie in [0, 1). Got {second_hand} instead.")
    if not rows.size:
        return np.zeros(0)
    codes, totals = points.codes, np.asarray(votes.mutual.sum(axis=1)).ravel()
    asked = csr_array(votes.mutual[rows])
    place = np.repeat(np.arange(len(rows)), np.diff(asked.indptr))
    point, voter, label, vote = rows[place], asked.indices, labels[place], asked.data
    agrees = (codes[voter] == label).astype(np.float64)
    # The point is among the voter's own voters, with the same vote for its own class.
    for_label = np.asarray(votes.by_class[voter, label]).ravel() - vote * (codes[point] == label)
    of_others = totals[voter] - vote
    known = of_others > NOTHING_LEFT * totals[voter]
    others_agree = np.divide(for_label, of_others, out=agrees.copy(), where=known)
    agreement = (1 - second_hand) * agrees + second_hand * np.clip(others_agree, 0.0, 1.0)
    support = np.bincount(place, vote * agreement, minlength=len(rows))
    return np.asarray(support / totals[rows], np.float64)


@dataclass(frozen=True, eq=False)
class SuspectLabels:
    """Points ranked by how little their label is supported; `suspect_labels` makes it.

    Parameters
    ----------
    ids : array of shape (n_ranked,)
        Which points, most suspect first.
    codes : array of shape (n_ranked,)
        Their own class codes.
    suggested_codes : array of shape (n_ranked,)
        The most probable other class; -1 where all neighbours are of the point's own class.
    p_own, p_suggested : array of shape (n_ranked,)
        Probabilities of the two without the point; a code of -1 has 0.
    trust : array of shape (n_ranked,)
        Support of the label as a share of that and of the other's, in [0, 1]; below 0.5 the other
        class has more support.
    wrong : WrongLabels
        How many labels of the whole gallery are wrong, with a range.
    """

    ids: AnyArray
    codes: IntArray
    suggested_codes: IntArray
    p_own: FloatArray
    p_suggested: FloatArray
    trust: FloatArray
    wrong: WrongLabels

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_doubted(self) -> int:
        """How many of the first to look at: as many as labels may be wrong.

        That is the upper end of the range of `wrong`, or fewer if fewer labels have less support
        than another.
        """
        return min(int((self.trust < 0.5).sum()), self.wrong.between[1])  # noqa: PLR2004

    def __getitem__(self, rows: slice | AnyArray) -> "SuspectLabels":
        """Some of them, by slice, mask or row numbers."""
        columns = {name: column[rows] for name, column in vars(self).items() if name != "wrong"}
        return SuspectLabels(**columns, wrong=self.wrong)

    def first(self, n: int) -> "SuspectLabels":
        """The n most suspect of them, or all if there are fewer."""
        if n < 0:
            raise InvalidInputError(f"n must not be negative. Got {n} instead.")
        return self[:n]


def suspect_labels(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    temperature: float,
    ids: ArrayLike | None = None,
    posterior: Posterior | None = None,
    second_hand: float = SECOND_HAND,
    seed: int = 0,
) -> SuspectLabels:
    """Rank the points of a gallery by how little their own label is supported.

    `nearsure.wrong_labels` estimates how many labels are wrong, and whether at random or confused
    with a similar class. Labels that are wrong at random are found best by the share of support
    that is their own; for confused labels, which look like honest neighbours of that class, it
    matters how far the other class is ahead. The ranking follows the kind that there is more of.
    Equal ranks are broken by the larger p(suggested), then by row.
    A larger k than for prediction, 100 say, makes the top of the ranking a little purer.
    Points without neighbours and the only members of a class are not ranked, because nothing
    supports their label, right or wrong: see `small_classes`.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.
    ids : array of shape (n,), optional
        Identity of each point, by which `neighbors` names it; by default its row number.
    posterior : Posterior, optional
        Of the points by neighbours and a head together, neither of which has seen them; by default
        NED's, by the neighbours alone.
    second_hand : float
        Weight in [0, 1) of what a neighbour's other neighbours are, against what it is itself.
    seed : int
        For the labels that are made wrong to estimate the number of wrong ones.

    Returns
    -------
    SuspectLabels
        The most suspect first.

    Examples
    --------
    Row 2 lies among class 1 but is labelled 0:

    >>> neighbors = Neighbors(
    ...     sq_distances=[[1, 9], [1, 9], [1, 1], [1, 1], [1, 1]],
    ...     labels=[[0, 0], [0, 0], [1, 1], [0, 1], [0, 1]],
    ...     ids=[[1, 2], [0, 2], [3, 4], [2, 4], [2, 3]],
    ... )
    >>> suspects = suspect_labels(neighbors, [0, 0, 0, 1, 1], temperature=1.0)
    >>> worst = suspects.first(1)
    >>> worst.ids, worst.codes, worst.suggested_codes, worst.p_suggested
    (array([2]), array([0]), array([1]), array([1.]))
    """
    points = support_points(neighbors, codes, ids)
    weights = ned_weights(neighbors, temperature)
    near = aggregate(neighbors, weights)
    votes = count_votes(points, weights[neighbors.valid])
    part = 0.0 if posterior is None else JOINT_PART
    both = near if posterior is None else posterior

    def support(rows: IntArray, labels: IntArray, rivals: IntArray) -> LabelSupport:
        own = label_support(points, votes, rows, labels, second_hand=second_hand)
        by_both, by_near = both.take(rows), near.take(rows)
        return LabelSupport(
            part * by_both.probability_of(labels) + (1.0 - part) * own,
            part * by_both.probability_of(rivals) + (1.0 - part) * by_near.probability_of(rivals),
        )

    best, p_best = both.top(2)
    has_neighbors = neighbors.counts > 0
    rows = np.flatnonzero(has_neighbors & (np.bincount(points.codes)[points.codes] > 1))
    other = (best[rows, 0] == points.codes[rows]).astype(np.int64)
    suggested, p_suggested = best[rows, other], p_best[rows, other]
    labels = support(rows, points.codes[rows], suggested)
    wrong = WrongLabels(0.0, 0.0, 0.0, 0.0)
    if rows.size and len(np.unique(points.codes)) > 1:
        rng = np.random.default_rng(seed)
        drawn = np.resize(rng.permutation(np.flatnonzero(has_neighbors)), N_MADE_UP)
        made_up = (
            support(drawn, each, best[drawn, 0])
            for each in _make_up_labels(both, points.codes, drawn, rng)
        )
        wrong = estimate_wrong_labels(labels, *made_up, seed=seed)
    ranked = np.lexsort((-p_suggested, labels.trust(wrong.floor)))
    return SuspectLabels(
        ids=points.ids[rows[ranked]],
        codes=points.codes[rows[ranked]],
        suggested_codes=suggested[ranked],
        p_own=both.probability_of(points.codes)[rows[ranked]],
        p_suggested=p_suggested[ranked],
        trust=labels.trust()[ranked],
        wrong=wrong,
    )


def _make_up_labels(
    posterior: Posterior, codes: IntArray, rows: IntArray, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Labels of some points that are not their most probable class: at random, and confusable.

    Confusable ones are drawn by their probability; where there is no other class, at random.
    """
    classes = np.unique(codes)
    first, end = posterior.indptr[rows], posterior.indptr[rows + 1]
    steps = rng.integers(1, len(classes), len(rows))
    at_random = classes[(np.searchsorted(classes, posterior.codes[first]) + steps) % len(classes)]
    reached = np.cumsum(posterior.probabilities)
    wanted = reached[first] + rng.random(len(rows)) * (reached[end - 1] - reached[first])
    entry = np.clip(np.searchsorted(reached, wanted, side="right"), first + 1, end - 1)
    return at_random, np.where(end - first > 1, posterior.codes[entry], at_random)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:5.1f}"


AuditPart = Literal["suspects", "duplicates", "confusable", "small", "copies"]
# Suspects of a summary that also has a line for each of the other parts, in ten lines.
ROWS_PRINTED = 3


@dataclass(frozen=True, eq=False, repr=False)
class GalleryAudit:
    """What is wrong with a gallery, by its own points; `audit` makes it.

    Printed, it is a summary of ten lines; `to_text` has more rows of each part.

    Parameters
    ----------
    n_points, n_classes : int
        Size of the gallery.
    suspects : SuspectLabels
        All points, the least supported label first.
    duplicates : NearDuplicates
        Pairs of nearly identical points with different labels, nearest first.
    confusable : ConfusableClasses
        Pairs of classes, the most confused first.
    small : SmallClasses
        Classes that are too small, fewest members first.
    copies : NearCopies, optional
        Copies and near-copies within a class, the largest group first.
    classes : array of shape (n_classes,), optional
        The labels, in the order of class codes, to be shown in their place.
    """

    n_points: int
    n_classes: int
    suspects: SuspectLabels
    duplicates: NearDuplicates
    confusable: ConfusableClasses
    small: SmallClasses
    copies: NearCopies | None = None
    classes: AnyArray | None = None

    def __repr__(self) -> str:
        first, *others = (self._table(part) for part in get_args(AuditPart))
        first = replace(first, title=f"{self._size}, {first.title}")
        return "\n".join([first.to_text(ROWS_PRINTED), *(other.title for other in others)])

    def _repr_html_(self) -> str:
        tables = "".join(self._table(part).to_html() for part in get_args(AuditPart))
        return f"<p>{self._size}</p>{tables}"

    def to_text(self, *, n_rows: int = 5, class_names: Sequence[str] | None = None) -> str:
        """Short tables for a terminal, probabilities in percent.

        Parameters
        ----------
        n_rows : int
            Rows of each table at most.
        class_names : sequence of str, optional
            Name of each class code; by default ``classes``, or the codes if there are none.
        """
        if n_rows < 0:
            raise InvalidInputError(f"n_rows must not be negative. Got {n_rows} instead.")
        n_classes = self.confusable.mass.shape[0]
        if class_names is not None and len(class_names) < n_classes:
            raise InvalidInputError(
                f"class_names must name all {n_classes} class codes. Got {len(class_names)} names."
            )
        tables = (self._table(part, class_names) for part in get_args(AuditPart))
        shown = (table.to_text(n_rows, count_rest=False) for table in tables)
        return "\n".join([self._size, *shown])

    def to_frame(self, part: AuditPart = "suspects") -> "pd.DataFrame":
        """One of the tables as a data frame of pandas, all of its rows, probabilities in [0, 1].

        Parameters
        ----------
        part : {"suspects", "duplicates", "confusable", "small", "copies"}, default "suspects"
            Which one. Of the suspects, those to look at: the first `SuspectLabels.n_doubted`.
        """
        if part not in get_args(AuditPart):
            raise InvalidInputError(f"part must be one of {get_args(AuditPart)}. Got {part!r}.")
        frame = self._table(part).to_frame()
        return (
            frame.assign(trust=self.suspects.trust[: len(frame)]) if part == "suspects" else frame
        )

    @property
    def _size(self) -> str:
        return f"{self.n_points} points in {self.n_classes} classes"

    def _table(self, part: AuditPart, class_names: Sequence[str] | None = None) -> Table:
        """One of the tables, with labels in the place of class codes where they are known."""
        names: Any = self.classes if class_names is None else class_names

        def labels(name: str, codes: IntArray, heading: str = "label") -> Column:
            if names is None:
                return Column(name, codes, lambda code: "-" if code < 0 else str(code), heading)
            # An object array, as labels may be tuples and -1 stands for none of them.
            own = np.fromiter((None if code < 0 else plain(names[code]) for code in codes), object)
            return Column(name, own, lambda label: "-" if label is None else str(label), heading)

        if part == "suspects":
            found = self.suspects.first(self.suspects.n_doubted)
            return Table(
                f"possibly mislabelled: {found.wrong}",
                (
                    Column("id", found.ids),
                    labels("label", found.codes),
                    Column("p_own", found.p_own, _percent, "p %"),
                    labels("suggested", found.suggested_codes, "suggested"),
                    Column("p_suggested", found.p_suggested, _percent, "p %"),
                ),
            )
        if part == "duplicates":
            pairs = self.duplicates
            return Table(
                f"nearly identical points labelled differently: {len(pairs)} pairs",
                (
                    Column("id", pairs.ids[:, 0]),
                    labels("label", pairs.codes[:, 0]),
                    Column("other_id", pairs.ids[:, 1], heading="id"),
                    labels("other_label", pairs.codes[:, 1]),
                    Column("sq_distance", pairs.sq_distances, "{:.3g}".format, "squared distance"),
                ),
            )
        if part == "confusable":
            confused = self.confusable
            return Table(
                f"confusable pairs of classes: {len(confused)}",
                (
                    labels("label", confused.codes[:, 0], "class"),
                    labels("other_label", confused.codes[:, 1], "class"),
                    Column("confusion", confused.confusion, _percent, "mean p %"),
                ),
            )
        if part == "small":
            small = self.small
            return Table(
                f"classes with few members, or often without neighbours of their own: {len(small)}",
                (
                    labels("label", small.codes, "class"),
                    Column("n_members", small.n_members, heading="members"),
                    Column("n_missed", small.n_missed, heading="missed"),
                    Column("accuracy", small.accuracy, _percent, "accuracy %"),
                ),
            )
        copies = self.copies or NearCopies([], np.empty(0, np.int64), 0)
        return Table(
            f"copies and near-copies within a class: {copies.n_points} points in "
            f"{len(copies)} groups, {copies.n_exact} points with an exact copy",
            (
                labels("label", copies.codes, "class"),
                Column("n_points", np.array([len(ids) for ids in copies.ids]), heading="points"),
                Column("first_id", np.array([ids[0] for ids in copies.ids]), heading="first id"),
            ),
        )


def audit(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    temperature: float,
    ids: ArrayLike | None = None,
    posterior: Posterior | None = None,
    second_hand: float = SECOND_HAND,
    relative_threshold: float = RELATIVE_THRESHOLD,
    min_members: int = MIN_MEMBERS,
    max_miss_share: float = MAX_MISS_SHARE,
    seed: int = 0,
) -> GalleryAudit:
    """Look for what is wrong with a gallery: labels, duplicates, classes.

    Everything is read off the leave-one-out neighbours that fitting T has searched anyway, and
    memory grows with their number, not with that of the classes.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.
    ids : array of shape (n,), optional
        Identity of each point, by which `neighbors` names it; by default its row number.
    posterior, second_hand, seed
        See `suspect_labels`.
    relative_threshold : float
        See `near_duplicates_across_classes`.
    min_members, max_miss_share : int, float
        See `small_classes`.

    Returns
    -------
    GalleryAudit

    Examples
    --------
    Row 2 is nearly the same as row 3, lies among class 1 and is labelled 0:

    >>> neighbors = Neighbors(
    ...     sq_distances=[[1, 9], [1, 9], [0.001, 1], [0.001, 1], [1, 1]],
    ...     labels=[[0, 0], [0, 0], [1, 1], [0, 1], [0, 1]],
    ...     ids=[[1, 2], [0, 2], [3, 4], [2, 4], [2, 3]],
    ... )
    >>> found = audit(neighbors, [0, 0, 0, 1, 1], temperature=1.0, min_members=3)
    >>> print(found.to_text(n_rows=1))
    5 points in 2 classes
    possibly mislabelled: about 1, between 0 and 5
      id  label  p %  suggested  p %
      2   0      0.0  1          100.0
    nearly identical points labelled differently: 1 pairs
      id  label  id  label  squared distance
      2   0      3   1      0.001
    confusable pairs of classes: 1
      class  class  mean p %
      0      1      47.4
    classes with few members, or often without neighbours of their own: 2
      class  members  missed  accuracy %
      1      2        0       0.0
    copies and near-copies within a class: 2 points in 1 groups, 0 points with an exact copy
      class  points  first id
      0      2       0
    """
    return GalleryAudit(
        n_points=len(neighbors),
        n_classes=len(np.unique(codes)),
        suspects=suspect_labels(
            neighbors,
            codes,
            temperature=temperature,
            ids=ids,
            posterior=posterior,
            second_hand=second_hand,
            seed=seed,
        ),
        duplicates=near_duplicates_across_classes(
            neighbors, codes, ids=ids, relative_threshold=relative_threshold
        ),
        confusable=confusable_classes(neighbors, codes, temperature=temperature),
        small=small_classes(
            neighbors,
            codes,
            temperature=temperature,
            min_members=min_members,
            max_miss_share=max_miss_share,
        ),
        copies=near_copies_within_classes(neighbors, codes, ids=ids),
    )
