"""Which head is used beside the neighbours of a gallery, and how it is fitted on one."""

from dataclasses import dataclass, field, replace

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.bursts import group_near_copies, leave_near_copies_out
from nearsure.classifier.rule import draw_places
from nearsure.engines.embedded.exact import MemoryEngine
from nearsure.errors import InvalidInputError
from nearsure.gallery import Gallery
from nearsure.gallery.counts import values_beside
from nearsure.heads.class_means import MOST_CORRELATED, PORTION, Moments
from nearsure.heads.fit import fit_logistic_folds, fit_many_means, fit_means_head
from nearsure.heads.fitted_head import FittedHead
from nearsure.heads.folds import LabelledFolds, assign_folds
from nearsure.heads.span import Span
from nearsure.neighbors import ClassScores, Neighbors

# Larger galleries are read in part: a head needs to know classes, not all of their members.
MOST_READ, MOST_NUMBERS_READ = 100_000, 5e7
READ_SEED = 0
# Points times features times classes that logistic regression takes at most, and the points for
# each class that it needs.
MOST_PRODUCTS = 1e9
FEWEST_A_CLASS = 5
# A head that has not seen a point of a pair has seen half of its class, and says little about one
# that has seen all: queries would be answered too unsurely, or too surely.
LARGEST_PAIR = 2
# With fewer, whether a head helps is a matter of chance.
FEWEST_POINTS = 30
# Classes times features of a head.
LARGEST_HEAD = 3e7
# With more classes than this, and more than one for so many points, neighbours' classes alone are
# scored: a search among the means would cost as much as that among the points.
MANY_CLASSES, FEW_POINTS = 1000, 20
# Of such galleries: folds, and points of which the metric is made.
FOLDS_OF_MANY, MOST_FOR_METRIC = 3, 10_000
# A query that lies farther than this share of own points is taken for noisy by as much. With 0.5
# and 0.75 the Brier score of ATIS rose by 0.002; under noise, 0.9 did as well.
NEAR_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class HeadChoices:
    """Heads that may be used beside the neighbours, fitted on a gallery.

    Parameters
    ----------
    heads : dict of str to FittedHead
        By name.
    scores : dict of str to ClassScores
        Of the points of the own pass, by heads that have not seen them.
    left_out : dict of str to str
        Why the others are not there.
    """

    heads: dict[str, FittedHead] = field(default_factory=dict)
    scores: dict[str, ClassScores] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def fit_heads(
    gallery: Gallery,
    own_ids: AnyArray,
    own: Neighbors,
    wanted: tuple[str, ...],
    *,
    has_copies: bool = False,
    without_classes: bool = False,
) -> HeadChoices:
    """Fit heads on a gallery, whose points are read once, in portions.

    Parameters
    ----------
    gallery : Gallery
        The points.
    own_ids, own : array of shape (n,) and Neighbors
        The points that all else is fitted on.
    wanted : tuple of {"means", "logistic"}
        Which heads.
    has_copies : bool
        Whether near-copies carry the own accuracy: they are then left out of heads together.
    without_classes : bool
        Whether points are to stand for queries of unknown classes, too.
    """
    sizes, dimension = gallery.class_counts, gallery.engine.dimension
    n_classes = len(sizes)
    reason = _why_none(sizes, dimension)
    if not wanted or reason is not None:
        return HeadChoices(left_out=dict.fromkeys(wanted, reason or ""))
    n_read = int(min(MOST_READ, MOST_NUMBERS_READ // dimension))
    places = draw_places(len(gallery), n_read, np.random.default_rng(READ_SEED))
    # Own points with all that is left out with them: whoever is not read has no fold.
    ids = np.union1d(gallery.ids_at(places), own_ids)
    ids, vectors, codes = _read(gallery, ids)
    # Others may have added a class meanwhile.
    counted = codes < n_classes
    if not counted.all():
        ids, vectors, codes = ids[counted], vectors[counted], codes[counted]
    if not np.isin(own_ids, ids).all():
        raise InvalidInputError("Points were removed while they were fitted on. Fit again.")
    beside = gallery.groups_beside
    groups = None if beside is None else values_beside(beside, ids)
    if groups is None and has_copies:
        own_codes = gallery.codes_of(own_ids)
        groups = group_near_copies(own, own_codes, own_ids, class_sizes=sizes, among=ids)
        own = leave_near_copies_out(own, own_codes, own_ids, class_sizes=sizes)
    near_only = n_classes > MANY_CLASSES and n_classes * FEW_POINTS > len(gallery)
    order = _order_by_content(vectors, codes)
    folds = np.empty(len(ids), np.int64)
    folds[order] = assign_folds(
        codes[order],
        None if groups is None else groups[order],
        FOLDS_OF_MANY if near_only else None,
    )
    if not folds.any():
        reason = "all points are of one group"
        return HeadChoices(left_out=dict.fromkeys(wanted, reason))
    points = LabelledFolds(vectors, codes, folds)
    left_out = {}
    n_fitted = int(min(len(ids), MOST_PRODUCTS // (n_classes * dimension)))
    too_many = near_only or n_fitted < min(len(ids), FEWEST_A_CLASS * n_classes)
    if "logistic" in wanted and too_many:
        left_out["logistic"] = f"it would take long with {n_classes:,} classes"
        wanted = tuple(name for name in wanted if name != "logistic")
    fitted = (
        _fit_many(points, n_classes, np.isin(ids, own_ids))
        if near_only
        else _fit_few(points, n_classes, order, n_fitted, wanted, without_classes=without_classes)
    )
    if fitted is None:
        reason = "no point differs from the mean of its class"
        return HeadChoices(left_out=dict.fromkeys(wanted, reason) | left_out)
    nearest = own.sq_distances[own.counts > 0, 0]
    farthest = float(np.quantile(nearest, NEAR_SHARE)) if nearest.size else None
    heads = {
        name: replace(
            fitted[name],
            seen_ids=ids,
            seen_folds=folds,
            farthest=farthest,
        )
        for name in wanted
        if name in fitted
    }
    own_vectors = vectors[np.searchsorted(ids, own_ids)]
    scores = {
        name: head.score_own(own_vectors, own.labels, own_ids, own.sq_distances)
        for name, head in heads.items()
    }
    return HeadChoices(heads, scores, left_out)


def _why_none(sizes: IntArray, dimension: int) -> str | None:
    """Why no head can be fitted on classes of these sizes; None if one can."""
    n_present = int((sizes > 0).sum())
    if n_present == 1:
        return "there is one class"
    if sizes.sum() <= n_present:
        return "no class has two points"
    if 2 * sizes[sizes <= LARGEST_PAIR].sum() >= sizes.sum():
        return "most points are of classes of one or two"
    if sizes.sum() < FEWEST_POINTS:
        return f"there are fewer than {FEWEST_POINTS} points"
    if len(sizes) * dimension > LARGEST_HEAD:
        return f"{len(sizes):,} classes of {dimension:,} features are too many"
    return None


def _read(gallery: Gallery, ids: AnyArray) -> tuple[AnyArray, AnyArray, IntArray]:
    """Ids, vectors and classes of those points that are still there."""
    if isinstance(gallery.engine, MemoryEngine):
        every = gallery.engine.points()
        if np.array_equal(every.ids, ids):
            return ids, np.asarray(every.vectors), gallery.codes_of(ids)
    found: list[AnyArray] = []
    codes: list[IntArray] = []
    n = 0
    for block in np.split(ids, np.arange(PORTION, len(ids), PORTION)):
        try:
            points = gallery.points_of(block)
        except (LookupError, InvalidInputError):
            # Others have removed points meanwhile.
            points = gallery.points_of(block[gallery.holds(block)])
        if not found:
            vectors = np.empty((len(ids), points.vectors.shape[1]), points.vectors.dtype)
        vectors[n : n + len(points.ids)] = points.vectors
        found.append(points.ids)
        codes.append(points.codes)
        n += len(points.ids)
    return np.concatenate(found), vectors[:n], np.concatenate(codes)


def _order_by_content(vectors: AnyArray, codes: IntArray) -> IntArray:
    """An order of points that is the same whatever their ids are, in whatever engine."""
    direction = np.random.default_rng(READ_SEED).normal(size=(vectors.shape[1], 1))
    return np.lexsort(((vectors @ direction.astype(vectors.dtype))[:, 0], codes))


def _fit_few(
    points: LabelledFolds,
    n_classes: int,
    order: IntArray,
    n_fitted: int,
    wanted: tuple[str, ...],
    *,
    without_classes: bool,
) -> dict[str, FittedHead] | None:
    """Heads for classes whose logits are all computed; None if points do not vary."""
    n_features = points.vectors.shape[1]
    span = None
    if len(points.codes) < n_features <= MOST_CORRELATED:
        # In order, so that coordinates are the same in whatever engine.
        span = Span.of_points(points.vectors[order])
        points = replace(points, vectors=span.reduce(points.vectors))
    moments = _add_up(points, n_classes, n_features)
    total = sum(moments[1:], start=moments[0])
    if not total.has_spread:
        return None
    # Random order: whoever takes the first has a fair draw.
    drawn = np.random.default_rng(READ_SEED).permutation(order)
    means, shrinkage = fit_means_head(moments, points.take(drawn))
    heads = {"means": means}
    if "logistic" in wanted:
        some = points.take(drawn[:n_fitted])
        heads["logistic"] = fit_logistic_folds(
            some, moments, shrinkage, beside=means, without_classes=without_classes
        )
    if span is None:
        return heads
    beyond = (shrinkage * float(np.trace(total.covariance)) / n_features) ** -0.5
    return {name: span.expand(head, beyond) for name, head in heads.items()}


def _fit_many(
    points: LabelledFolds, n_classes: int, is_own: AnyArray
) -> dict[str, FittedHead] | None:
    """Class means for many classes; None if points do not vary.

    One metric serves all folds, of points that are none of the own ones if there are enough.
    """
    others = np.flatnonzero(~is_own)
    rows = others if len(others) > MOST_FOR_METRIC else np.arange(len(is_own))
    apart = points.take(rows[:: -(-len(rows) // MOST_FOR_METRIC)])
    means = fit_many_means(points, n_classes, apart)
    return None if means is None else {"means": means}


def _add_up(points: LabelledFolds, n_classes: int, n_features: int) -> list[Moments]:
    """Moments of the points of each fold; see `Moments` for the number of features."""
    centre = points.vectors[:PORTION].mean(axis=0, dtype=np.float64)
    moments = []
    for fold in range(int(points.folds.max()) + 1):
        sums = Moments.empty(centre, n_classes, n_features)
        rows = np.flatnonzero(points.folds == fold)
        for start in range(0, len(rows), PORTION):
            some = rows[start : start + PORTION]
            sums.add(points.vectors[some], points.codes[some])
        moments.append(sums)
    return moments
