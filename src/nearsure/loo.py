"""Leave a support point, its group or its class out of its own neighbours."""

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors, join_scores
from nearsure.validation import integer_codes


def members_left_of_groups(codes: IntArray, groups: IntArray, rows: IntArray) -> IntArray:
    """Members of some points' classes without the points' groups, shape (len(rows),).

    Parameters
    ----------
    codes, groups : array of shape (n,)
        Of all points.
    rows : array of integers
        The points.

    Examples
    --------
    >>> codes, groups = np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6])
    >>> members_left_of_groups(codes, groups, np.array([0, 2, 3]))
    array([1, 2, 0])
    """
    _, together, sizes = np.unique(
        np.stack([codes, groups]), axis=1, return_inverse=True, return_counts=True
    )
    left: IntArray = np.bincount(codes)[codes[rows]] - sizes[together.ravel()][rows]
    return left


def leave_one_out(
    neighbors: Neighbors,
    own_ids: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    n_neighbors: int | None = None,
) -> Neighbors:
    """Remove each support point from its own neighbours, by identity.

    "Drop the nearest" would be wrong: an exact duplicate in the gallery is a real neighbour, and
    may well be listed before the point itself.

    Parameters
    ----------
    neighbors : Neighbors
        The result of searching support points among the support set, with ids. Search for at
        least one neighbour more than are wanted.
    own_ids : array of shape (n,)
        The id of each searched point.
    groups : array of shape (n_support,), optional
        Group of each support point (a burst of photographs, the augmentations of one image).
        Neighbours of a point's own group are left out with it. Ids must then be row numbers of
        the support set.
    n_neighbors : int, optional
        How many neighbours to keep; by default one fewer than were searched.

    Returns
    -------
    Neighbors
        At most `n_neighbors` in each row; ``counts`` shows where fewer were left.

    Examples
    --------
    >>> found = Neighbors([[0.0, 0.0, 2.0]], [[1, 1, 0]], ids=[[4, 9, 2]])
    >>> leave_one_out(found, [9]).ids
    array([[4, 2]])
    """
    if neighbors.ids is None:
        raise InvalidInputError(
            "neighbors must have ids, by which a point is told from its duplicates. Got none: "
            "pass ids= to the constructor of Neighbors."
        )
    own = np.asarray(own_ids)
    if own.shape != (len(neighbors),):
        raise InvalidInputError(
            f"own_ids must be one id for each of the {len(neighbors)} points. "
            f"Got an array of shape {own.shape} instead."
        )
    if (own.dtype.kind in "iu") != (neighbors.ids.dtype.kind in "iu"):
        raise InvalidInputError(
            f"own_ids must be of the kind of the neighbours' ids, {neighbors.ids.dtype}, or no "
            f"point would find itself. Got {own.dtype} instead."
        )
    n_neighbors = max(1, neighbors.k - 1) if n_neighbors is None else n_neighbors
    if n_neighbors < 1:
        raise InvalidInputError(f"n_neighbors must be at least 1. Got {n_neighbors} instead.")
    keep: BoolArray = (neighbors.ids != own[:, None]) & neighbors.valid
    if groups is not None:
        of_group, ids = np.asarray(groups), np.where(neighbors.valid, neighbors.ids, 0)
        if ids.dtype.kind not in "iu" or max(ids.max(), own.max()) >= len(of_group):
            raise InvalidInputError(
                "groups must hold one group for each row of the support set, which ids number from "
                f"0. Got {len(of_group)} groups for ids up to {max(ids.max(), own.max())} instead."
            )
        keep &= of_group[ids] != of_group[own][:, None]
    return keep_first(neighbors, keep, n_neighbors)


def keep_first(neighbors: Neighbors, keep: BoolArray, n_neighbors: int) -> Neighbors:
    """The first `n_neighbors` of those neighbours that are kept; `keep` has their shape."""
    kept_first = np.argsort(~keep, axis=1, kind="stable")[:, :n_neighbors]

    def take(entries: AnyArray) -> AnyArray:
        return np.take_along_axis(entries, kept_first, axis=1)

    ids = None if neighbors.ids is None else take(neighbors.ids)
    counts = np.minimum(keep.sum(axis=1), n_neighbors)
    return Neighbors(
        take(neighbors.sq_distances), take(neighbors.labels), ids, counts, neighbors.class_scores
    )


def in_places(parts: list[tuple[IntArray, Neighbors]], n: int) -> Neighbors:
    """Join the results of several sets of rows; shorter ones are padded, later ones stay.

    Parameters
    ----------
    parts : list of (rows, Neighbors)
        All with ids.
    n : int
        How many rows there are.

    Examples
    --------
    >>> near, far = Neighbors([[1.0]], [[0]], [[7]]), Neighbors([[4.0, 5.0]], [[1, 1]], [[8, 9]])
    >>> in_places([(np.array([1]), near), (np.array([0]), far)], 2).ids
    array([[ 8,  9],
           [ 7, -1]])
    """
    k = max(found.k for _, found in parts)
    kind = np.result_type(*(np.asarray(found.ids).dtype for _, found in parts))
    sq_distances, labels = np.full((n, k), np.inf), np.zeros((n, k), np.int64)
    ids, counts = np.zeros((n, k), kind), np.zeros(n, np.int64)
    for rows, found in parts:
        sq_distances[rows, : found.k] = found.sq_distances
        labels[rows, : found.k], ids[rows, : found.k] = found.labels, np.asarray(found.ids)
        counts[rows] = found.counts
    scores = [(rows, found.class_scores) for rows, found in parts if found.class_scores is not None]
    joined = join_scores(scores, n) if scores else None
    return Neighbors(sq_distances, labels, ids, counts, joined)


class Searchable(Protocol):
    """What holds the support vectors and finds the nearest of them."""

    def __len__(self) -> int: ...

    def search(self, queries: AnyArray, k: int) -> tuple[FloatArray, IntArray]:
        """Squared distances, ascending, and row numbers of the k nearest support vectors."""


def search_leaving_one_out(
    index: Searchable,
    points: AnyArray,
    own_ids: IntArray,
    support_labels: IntArray,
    *,
    k: int,
    groups: AnyArray | None = None,
) -> Neighbors:
    """Search support points among all the others.

    Parameters
    ----------
    index : Searchable
        The support set.
    points : array of shape (n, n_features)
        Vectors of the points to search.
    own_ids : array of shape (n,)
        Their row numbers in the support set.
    support_labels : array of shape (n_support,)
        Integer class codes of the support set.
    k : int
        How many neighbours.
    groups : array of shape (n_support,), optional
        Group of each support point; a point's whole group is left out with it.

    Returns
    -------
    Neighbors
        With ids. A row holds fewer than k only where the support set has no more to give.
    """
    if k < 1 or len(index) < 2:  # noqa: PLR2004
        raise InvalidInputError(
            "Leaving one out needs at least two support points and one neighbour. "
            f"Got {len(index)} and {k} instead."
        )
    k = min(k, len(index) - 1)
    sq_distances = np.empty((len(points), k))
    ids = np.empty((len(points), k), np.int64)
    counts = np.empty(len(points), np.int64)
    open_rows = np.arange(len(points))
    n_searched = min(k + 1, len(index))
    while open_rows.size:
        found_distances, found_ids = index.search(points[open_rows], n_searched)
        found = leave_one_out(
            Neighbors(found_distances, support_labels[found_ids], found_ids),
            own_ids[open_rows],
            groups=groups,
            n_neighbors=k,
        )
        sq_distances[open_rows] = found.sq_distances
        ids[open_rows] = np.asarray(found.ids)
        counts[open_rows] = found.counts
        if n_searched == len(index):
            break
        # Groups may have taken more than one neighbour: ask again for these rows, for more.
        open_rows = open_rows[found.counts < k]
        n_searched = min(4 * n_searched, len(index))
    return Neighbors(sq_distances, support_labels[ids], ids, counts)


# What leaving a point out takes away from its own class.
#
# A class of n members has n - 1 when one of them is the query, while every other class is whole.
# Its sum of kernels is too small by (n - 1) / n on average, and a fit that ignored this would
# underestimate the class for queries, which find all n members. The factor n / (n - 1) undoes this.
# It matters for small classes: 1.5 for three members, 1.11 for ten, 1.02 for fifty. It is never
# more than 1.5: a pair has one member left, and doubling that would make the nearest neighbour of
# every point its own class's more often than chance does.
#
# The factor depends on the true class. That is right in a likelihood, and where a confidence is
# calibrated it stands for the member that a query finds; but no promise about precision or coverage
# is made with it: see `nearsure.classifier`.


LARGEST_FACTOR = 1.5


def own_class_factors(
    codes: IntArray, points: IntArray, groups: IntArray | None = None
) -> FloatArray:
    """Members of a point's own class over those that are left, n / (n - 1), at most 1.5.

    Parameters
    ----------
    codes : array of shape (n_support,)
        Class codes of the support set.
    points : array of shape (n,)
        Rows of the points that are left out.
    groups : array of shape (n_support,), optional
        Group of each support point; its members of the same class are left out with a point.

    Returns
    -------
    array of shape (n,)
        At least 1; exactly 1 where no member is left, and there is nothing to correct.

    Examples
    --------
    >>> own_class_factors(np.array([0, 0, 1, 1, 1, 2]), np.array([0, 2, 5]))
    array([1.5, 1.5, 1. ])
    """
    counts = np.bincount(codes)[codes[points]]
    if groups is None:
        return factors_of_sizes(counts, counts - 1)
    return factors_of_sizes(counts, members_left_of_groups(codes, groups, points))


def factors_of_sizes(sizes: IntArray, left: IntArray) -> FloatArray:
    """The same, for classes of so many members, of which so many are left."""
    factors = np.minimum(sizes / np.maximum(left, 1), LARGEST_FACTOR)
    return np.where(left > 0, factors, 1.0)


# In a gallery of small classes the factor is not enough: what a point's class has lost is not only
# weight, but the chance of a member near by, while all other classes still have theirs. There each
# other class loses as large a share of its members, at random, and the point is a fair query of a
# gallery that is poorer by this share. With more members, the same difference of distances says
# more: fitted to queries, T / gamma falls with the number of members to the power of -0.1 to -0.6
# (seven data sets of 2 to 20 members a class). Distances are shortened by as much.


# A gallery is small if half of its points, or more, are of classes of at most so many members.
LARGEST_SMALL_CLASS = 12
DENSITY_POWER = 0.3


def has_small_classes(codes: IntArray, class_sizes: IntArray) -> bool:
    """Whether most points are of small classes.

    Parameters
    ----------
    codes : array of shape (n,)
        Classes of the points.
    class_sizes : array of shape (n_classes,)
        Members of each class in the support set.
    """
    return bool(np.median(class_sizes[codes]) <= LARGEST_SMALL_CLASS)


def thin_alike(
    neighbors: Neighbors,
    codes: IntArray,
    class_sizes: IntArray,
    left: IntArray,
    rng: np.random.Generator,
) -> Neighbors:
    """Take from all other classes as large a share as leaving a point out took from its own.

    Parameters
    ----------
    neighbors : Neighbors
        Of support points, without the points themselves or their groups.
    codes : array of shape (n,)
        Classes of the points.
    class_sizes : array of shape (n_classes,)
        Members of each class in the support set.
    left : array of shape (n,)
        Members that each point's class has without the point, or its group.
    rng : numpy.random.Generator
        Source of the draws.

    Returns
    -------
    Neighbors
        Fewer, and nearer as those of a full gallery are. The only member of a class has none: there
        is no query like it. A group that is a whole class keeps its neighbours, and has missed it.

    Examples
    --------
    >>> found = Neighbors([[1.0, 2.0, 3.0]], [[1, 0, 1]])
    >>> rng = np.random.default_rng(0)
    >>> thin_alike(found, np.array([0]), np.array([2, 2]), np.array([1]), rng).counts
    array([2])
    """
    sizes = class_sizes[codes]
    whole = (left == 0) & (sizes > 1)
    n_left = np.where(whole, sizes, left)
    by_class = np.argsort(neighbors.labels, axis=1, kind="stable")
    ordered = np.take_along_axis(neighbors.labels, by_class, axis=1)
    begins = np.ones(ordered.shape, np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    # Runs of neighbours of one point and one class.
    starts, run = np.flatnonzero(begins), np.cumsum(begins) - 1
    point, of_class = starts // neighbors.k, ordered.ravel()[starts]
    n_members = np.maximum(class_sizes[of_class], 1)
    n_expected = n_members * (sizes - n_left)[point] / sizes[point]
    n_lost = np.floor(n_expected + rng.random(len(starts)))
    n_lost[of_class == codes[point]] = 0
    # All members of a class in a circle, those that are listed first: some in succession are lost.
    place = np.arange(ordered.size) - starts[run] - rng.integers(n_members)[run]
    lost = np.empty(ordered.shape, np.bool_)
    is_lost = (place % n_members[run] < n_lost[run]).reshape(ordered.shape)
    np.put_along_axis(lost, by_class, is_lost, axis=1)
    kept = keep_first(neighbors, neighbors.valid & ~lost, neighbors.k)
    shorter = (np.maximum(n_left, 1) / sizes) ** DENSITY_POWER
    return replace(kept, sq_distances=kept.sq_distances * shorter[:, None])


FEWEST_CLASSES = 2


def search_leaving_class_out(
    index: Searchable, points: AnyArray, own_ids: IntArray, support_labels: ArrayLike, *, k: int
) -> Neighbors:
    """Search support points among the classes that are not theirs.

    To such a search a point is what a query of a class outside the gallery is to a real one.

    Parameters
    ----------
    index : Searchable
        The support set.
    points : array of shape (n, n_features)
        Vectors of the points to search.
    own_ids : array of shape (n,)
        Their row numbers in the support set.
    support_labels : array of shape (n_support,)
        Integer class codes of the support set, of at least two classes.
    k : int
        How many neighbours.

    Returns
    -------
    Neighbors
        With ids. A row holds fewer than k only where the other classes have no more to give.

    Examples
    --------
    >>> from nearsure.index import ExactIndex
    >>> vectors = np.array([[0.0], [1.0], [3.0]])
    >>> search_leaving_class_out(ExactIndex(vectors), vectors, np.arange(3), [0, 0, 1], k=1).ids
    array([[2],
           [2],
           [1]])
    """
    codes = integer_codes(support_labels)
    check_several_classes(codes)
    return search_leaving_one_out(index, points, own_ids, codes, k=k, groups=codes)


def check_several_classes(codes: IntArray) -> None:
    """Raise an error if there is no second class, so that nothing is left without the first."""
    n_classes = len(np.unique(codes))
    if n_classes < FEWEST_CLASSES:
        raise InvalidInputError(
            "The gallery must have at least two classes, or unknown queries cannot be imitated: "
            "a point that leaves its class out has nothing left to be compared with. "
            f"Got {n_classes} instead. Add points of another class, or judge without p(known)."
        )
