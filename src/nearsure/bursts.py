"""Near-copies within the classes of a gallery, and what its own accuracy is without them.

Photographs of one burst, frames of one film and clips of one recording are right about each other.
If each is left out alone, the others answer for it; queries of another day find no such help.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.loo import keep_first
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.schema import BOOLEAN, NUMBER, check_fields, integer, list_of

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "Bursts",
    "draw_one_per_group",
    "find_bursts",
    "group_near_copies",
    "leave_near_copies_out",
]

Score = Callable[[Neighbors], Posterior]

# Near-copies are nearer to each other than a share of the distance to this other member of their
# class: it lies outside of most bursts. In smooth data the nearest member is at 0.6 to 0.85 of that
# distance (CUB, CLINC150, HWU64, TREC, digits), well above the last cut.
RANK = 24
CUTS = (0.1, 0.2, 0.3, 0.4)
# Once a gallery is suspicious, groups are drawn wider than they were found: with 0.4, some points
# of a burst still answered for others, and 9 of 120 galleries of made bursts broke a promise.
GROUPING_CUT = 0.5
# A gallery is suspicious if leaving near-copies out together costs this much accuracy (with 0.03,
# 1 of 24 clean splits of ATIS was) or multiplies the errors by this much, where they are few.
FALL = 0.05
GROWTH = 1.5
# ... and if the answers that change are not chance: a sign test, in standard errors.
DEVIATIONS = 3.0
# In few dimensions the nearest of 24 members is near by chance: within a share c of their distance
# there are 24 c^d of them in d dimensions. All cuts are scaled down until that is this many at the
# last cut. With 0.3, none of 250 galleries of Gaussian classes in 1 to 6 dimensions was suspicious
# (0.4: 1) and ESC-50 was without any of its 5 folds (0.15: 1 of 3); CUB and sentences have so many
# dimensions that their cuts stay.
MOST_BY_CHANCE = 0.3
# d is read off the distances of members far beyond a burst: this one, and the one half as far up.
GROWTH_RANK = 72
# With fewer members than this in the list there is nothing to be read.
FEWEST_RANKS = 6
# Neighbours that are searched for this: the 24th member of the class may come late.
N_LISTED = 200
# Points that are looked at, drawn at random: 10,000 would cost two fifths of the time of a fit.
N_LOOKED_AT = 2000


_STORED = {
    "own_accuracy": NUMBER,
    "cuts": list_of(NUMBER),
    "accuracies": list_of(NUMBER, len(CUTS)),
    "share_with_copies": NUMBER,
    "deviations": NUMBER,
    "n_points": integer(1),
    "grouped": BOOLEAN,
}


@dataclass(frozen=True)
class Bursts:
    """What near-copies within classes do to the own accuracy; `find_bursts` makes it.

    Parameters
    ----------
    own_accuracy : float
        Share of right answers if each point is left out alone.
    cuts : tuple of float
        Shares of the distance to the 24th member of the class.
    accuracies : tuple of float
        Share of right answers if points nearer than each cut are left out together.
    share_with_copies : float
        Share of the points that have a near-copy at the last cut.
    deviations : float
        Right answers that were lost less those that were won, in standard errors.
    n_points : int
        Points that were looked at.
    grouped : bool
        Whether the fit left near-copies out together: ``groups="auto"``.
    """

    own_accuracy: float
    cuts: tuple[float, ...]
    accuracies: tuple[float, ...]
    share_with_copies: float
    deviations: float
    n_points: int
    grouped: bool = False

    @property
    def suspicious(self) -> bool:
        """Whether near-copies carry the own accuracy, so that promises made from it may break."""
        fall = self.own_accuracy - self.accuracies[-1]
        grown = 1.0 - self.accuracies[-1] >= GROWTH * (1.0 - self.own_accuracy)
        return self.deviations >= DEVIATIONS and (fall >= FALL or grown)

    def __str__(self) -> str:
        found = (
            f"{self.own_accuracy:.1%} right if each point is left out alone, "
            f"{self.accuracies[-1]:.1%} if near-copies within a class are left out together "
            f"({self.share_with_copies:.0%} of {self.n_points:,} points have one)"
        )
        return f"{found}: this gallery holds near-copies." if self.suspicious else f"{found}."

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return {**vars(self), "cuts": list(self.cuts), "accuracies": list(self.accuracies)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`; `ModelFileError` for anything else."""
        check_fields("What was found about near-copies", fields, _STORED)
        tuples = {name: tuple(fields[name]) for name in ("cuts", "accuracies")}
        return cls(**{**fields, **tuples})


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Points and neighbours of their class that may be near-copies.

    Parameters
    ----------
    points, columns : array of shape (n_pairs,)
        Row of the point, and column of the neighbour in the list of its neighbours.
    rows : array of shape (n_pairs,)
        The neighbour's place among all points that were searched; -1 if it was not.
    ratios : array of shape (n_pairs,)
        Distance over the smaller scale of point and neighbour.
    """

    points: IntArray
    columns: IntArray
    rows: IntArray
    ratios: FloatArray

    def group(self, cut: float, n: int) -> IntArray:
        """Groups of n points by single linkage, shape (n,)."""
        linked = (self.ratios <= cut) & (self.rows >= 0)
        at, to = self.points[linked], self.rows[linked]
        links = coo_array((np.ones(len(at)), (at, to)), shape=(n, n))
        return np.asarray(connected_components(links, directed=False)[1], np.int64)


def find_bursts(
    own: Neighbors,
    codes: IntArray,
    ids: AnyArray,
    *,
    class_sizes: IntArray,
    score: Score,
    k: int,
    some: IntArray | None = None,
    more: Neighbors | None = None,
) -> Bursts:
    """Compare the own accuracy with and without near-copies.

    Parameters
    ----------
    own : Neighbors
        Of points without themselves, with ids.
    codes, ids : array of shape (n,)
        Classes and ids of the points. If they are a sample of the gallery, near-copies outside of
        it are left out where they are near to the point itself.
    class_sizes : array of shape (n_classes,)
        Members of each class.
    score : callable
        From neighbours to a posterior: the fitted rule.
    k : int
        Neighbours that the rule takes.
    some : array of shape (n_some,), optional
        Rows of the points that are looked at; by default all.
    more : Neighbors, optional
        Theirs; 200 show more than k. By default those of `own`.

    Examples
    --------
    Each point four times, and labels that only a copy can tell:

    >>> from nearsure import score
    >>> from nearsure.index import ExactIndex
    >>> from nearsure.loo import search_leaving_one_out
    >>> rng = np.random.default_rng(0)
    >>> points, codes = np.repeat(rng.normal(size=(200, 4)), 4, 0), np.repeat(np.arange(200) % 2, 4)
    >>> rows = np.arange(800)
    >>> own = search_leaving_one_out(ExactIndex(points), points, rows, codes, k=200)
    >>> by_nearest = lambda found: score(found, rule="1nn")
    >>> print(find_bursts(
    ...     own, codes, rows, class_sizes=np.bincount(codes), score=by_nearest, k=50
    ... ))  # doctest: +NORMALIZE_WHITESPACE
    100.0% right if each point is left out alone, 45.5% if near-copies within a class are left out
    together (100% of 800 points have one): this gallery holds near-copies.
    """
    some = np.arange(len(codes)) if some is None else some
    more = own if more is None else more
    scales = _measure_scales(own, codes, class_sizes)
    scales[some] = _measure_scales(more, codes[some], class_sizes)
    shrinking = _shrink_cuts(more, codes[some])
    all_pairs = _list_pairs(own, codes, ids, scales)
    pairs = all_pairs if more is own else _list_pairs(more, codes, ids, scales, some)
    groups = [all_pairs.group(cut * shrinking, len(codes)) for cut in CUTS]
    # Whoever is in a group at some cut is so at the last one.
    in_group = np.flatnonzero((np.bincount(groups[-1])[groups[-1]] > 1)[some])
    rows = np.where(more.valid[in_group], _find_rows(np.asarray(more.ids)[in_group], ids), -1)
    k, codes = min(k, more.k), codes[some]
    correct = score(more.first(k)).labels == codes
    accuracies, without, together = [], correct, np.zeros(more.labels.shape, np.bool_)
    for cut, group in zip(CUTS, groups, strict=True):
        together[in_group] = (group[rows] == group[some[in_group]][:, None]) & (rows >= 0)
        # A neighbour that was not searched has no links of its own, only that to the point.
        near = pairs.ratios <= cut * shrinking
        together[pairs.points[near], pairs.columns[near]] = True
        changed = np.flatnonzero(together.any(axis=1))
        without = correct.copy()
        if changed.size:
            keep = (more.valid & ~together)[changed]
            answers = score(keep_first(more.take(changed), keep, k)).labels
            without[changed] = answers == codes[changed]
        accuracies.append(float(without.mean()))
    lost = correct.astype(np.int64) - without
    return Bursts(
        own_accuracy=float(correct.mean()),
        cuts=CUTS,
        accuracies=tuple(accuracies),
        share_with_copies=float(together.any(axis=1).mean()),
        deviations=float(lost.sum() / np.sqrt(max(1, int(np.abs(lost).sum())))),
        n_points=len(codes),
    )


def group_near_copies(
    own: Neighbors,
    codes: IntArray,
    ids: AnyArray,
    *,
    class_sizes: IntArray,
    cut: float = GROUPING_CUT,
    among: AnyArray | None = None,
) -> IntArray:
    """Join points of one class that are near by the scales of both: single linkage.

    Parameters
    ----------
    own : Neighbors
        Of points without themselves, with ids.
    codes, ids : array of shape (n,)
        Their classes and ids.
    class_sizes : array of shape (n_classes,)
        Members of each class.
    cut : float
        Share of the distance to the 24th member of the class, at most the default; less in few
        dimensions.
    among : array of shape (m,), optional
        Ids of all points that are grouped, these among them; by default `ids`.

    Returns
    -------
    array of shape (m,)
        Codes of groups; a point without near-copies has one of its own.
    """
    scales = _measure_scales(own, codes, class_sizes)
    cut *= _shrink_cuts(own, codes)
    pairs = _list_pairs(own, codes, ids, scales)
    if among is None:
        return pairs.group(cut, len(codes))
    rows = _find_rows(np.asarray(own.ids)[pairs.points, pairs.columns], among)
    points = _find_rows(ids, among)[pairs.points]
    return replace(pairs, points=points, rows=rows).group(cut, len(among))


def leave_near_copies_out(
    own: Neighbors, codes: IntArray, ids: AnyArray, *, class_sizes: IntArray
) -> Neighbors:
    """Leave the near-copies of points out with them, as groups of `group_near_copies` would be.

    Parameters
    ----------
    own, codes, ids, class_sizes
        As of `group_near_copies`.

    Returns
    -------
    Neighbors
        Of the same points; rows are shorter by what was left out.
    """
    among = np.union1d(np.asarray(own.ids)[own.valid], ids)
    groups = group_near_copies(own, codes, ids, class_sizes=class_sizes, among=among)
    theirs = groups[_find_rows(np.asarray(own.ids), among)]
    together = theirs == groups[_find_rows(ids, among)][:, None]
    return keep_first(own, own.valid & ~together, own.k)


def _list_pairs(
    found: Neighbors,
    codes: IntArray,
    ids: AnyArray,
    scales: FloatArray,
    some: IntArray | slice = slice(None),
) -> _Pairs:
    """Pairs of some points and neighbours of their class that any cut may take for near-copies."""
    own = scales[some]
    near = (found.labels == codes[some][:, None]) & found.valid
    near &= (found.sq_distances <= (GROUPING_CUT * own[:, None]) ** 2) & (own[:, None] > 0)
    points, columns = np.nonzero(near)
    rows = _find_rows(np.asarray(found.ids)[points, columns], ids)
    scale = np.minimum(own[points], np.where(rows >= 0, scales[rows], np.inf))
    distances = np.sqrt(found.sq_distances[points, columns])
    ratios = np.divide(distances, scale, out=np.full(len(points), np.inf), where=scale > 0)
    return _Pairs(points, columns, rows, ratios)


def _find_rows(names: AnyArray, ids: AnyArray) -> IntArray:
    """Places of ids among those of all points; -1 where there is none."""
    order = np.argsort(ids, kind="stable")
    rows = order[np.minimum(np.searchsorted(ids[order], names), len(ids) - 1)]
    return np.where(ids[rows] == names, rows, -1)


def _measure_scales(own: Neighbors, codes: IntArray, class_sizes: IntArray) -> FloatArray:
    """Distance of each point to the 24th other member of its class, shape (n,).

    A smaller class gives its farthest member; where fewer are listed, the last listed distance, a
    lower bound, stands for it.
    """
    same = (own.labels == codes[:, None]) & own.valid
    rank = np.minimum(RANK, class_sizes[codes] - 1)
    reached = same & (np.cumsum(same, axis=1, dtype=np.int32) == rank[:, None])
    last = np.maximum(own.counts, 1) - 1
    column = np.where(reached.any(axis=1), reached.argmax(axis=1), last)
    scale = np.sqrt(own.sq_distances[np.arange(len(own)), column])
    return np.where((rank > 0) & (own.counts > 0), scale, 0.0)


def _shrink_cuts(own: Neighbors, codes: IntArray) -> float:
    """What cuts are multiplied by, at most 1: little in few dimensions."""
    same = (own.labels == codes[:, None]) & own.valid
    growth = _median_growth(own, same)
    if growth is None:  # Classes are too small to tell: all neighbours do.
        growth = _median_growth(own, own.valid) or 0.0
    return min(1.0, float((MOST_BY_CHANCE / RANK) ** growth) / CUTS[-1])


def _median_growth(own: Neighbors, listed: BoolArray) -> float | None:
    """Median of log distance over log rank between two ranks: one over the dimension."""
    # Not the last ones, which are the farthest of a whole class.
    upper = np.minimum(GROWTH_RANK, 3 * listed.sum(axis=1) // 4)
    at = np.flatnonzero(upper >= FEWEST_RANKS)
    if not at.size:
        return None
    ranks = np.cumsum(listed[at], axis=1, dtype=np.int32)
    found, top = own.sq_distances[at], upper[at]
    far, near = (
        found[np.arange(len(at)), (ranks >= rank[:, None]).argmax(axis=1)]
        for rank in (top, top // 2)
    )
    ratio = np.divide(far, near, out=np.full(len(at), np.inf), where=near > 0)
    return float(np.median(0.5 * np.log(ratio) / np.log(top / (top // 2))))


def draw_one_per_group(groups: IntArray, *, seed: int = 0) -> IntArray:
    """Rows of one random member of each group, ascending.

    Points of a burst are right or wrong together: a promise counts groups, not points, as draws.

    Examples
    --------
    >>> len(draw_one_per_group(np.array([0, 0, 1, 2, 2, 2])))
    3
    """
    order = np.random.default_rng(seed).permutation(len(groups))
    return np.sort(order[np.unique(groups[order], return_index=True)[1]])
