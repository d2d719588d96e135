"""Which head stands beside the neighbours of a gallery, and how it is fitted on one."""

from dataclasses import dataclass, field, replace

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier.rule import draw_places
from nearsure.gallery import Gallery
from nearsure.gallery.counts import values_beside
from nearsure.heads.class_means import Moments
from nearsure.heads.fitted import (
    FittedHead,
    LabelledFolds,
    assign_folds,
    fit_logistic_folds,
    fit_means_head,
)
from nearsure.neighbors import ClassScores, Neighbors

HEADS = ("means", "logistic")
# Larger galleries are read in part: a head needs to know classes, not all of their members.
MOST_READ = 100_000
READ_SEED = 0
# Points whose vectors are fetched at a time.
PORTION = 2048
# Points times features times classes that logistic regression takes at most, and the points for
# each class that it needs.
MOST_PRODUCTS = 6e8
FEWEST_A_CLASS = 5
# Classes times features of a head and its folds.
LARGEST_HEAD = 3e7
# With more classes than this, and more than one for so many points, neighbours' classes alone are
# scored: a search among the means would cost as much as that among the points.
MANY_CLASSES, FEW_POINTS = 1000, 20


@dataclass(frozen=True, eq=False)
class HeadChoices:
    """Heads that may stand beside the neighbours, fitted on a gallery.

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
    without_classes: bool = False,
) -> HeadChoices:
    """Fit heads on a gallery, in one pass over its points.

    Parameters
    ----------
    gallery : Gallery
        The points.
    own_ids, own : array of shape (n,) and Neighbors
        The points that all else is fitted on.
    wanted : tuple of {"means", "logistic"}
        Which heads.
    without_classes : bool
        Whether points are to stand for queries of unknown classes, too.
    """
    sizes, dimension = gallery.class_counts, gallery.engine.dimension
    n_classes = len(sizes)
    reason = _why_none(sizes, dimension)
    if not wanted or reason is not None:
        return HeadChoices(left_out=dict.fromkeys(wanted, reason or ""))
    places = draw_places(len(gallery), MOST_READ, np.random.default_rng(READ_SEED))
    points = _Read(gallery, gallery.ids_at(places), own_ids)
    left_out = {}
    n_fitted = int(min(len(places), MOST_PRODUCTS // (n_classes * dimension)))
    if "logistic" in wanted and n_fitted < min(len(places), FEWEST_A_CLASS * n_classes):
        left_out["logistic"] = f"it would take long with {n_classes:,} classes"
    moments, drawn = points.read(n_fitted)
    if not sum(moments[1:], start=moments[0]).has_spread:
        reason = "no point differs from the mean of its class"
        return HeadChoices(left_out=dict.fromkeys(wanted, reason))
    near_only = n_classes > MANY_CLASSES and n_classes * FEW_POINTS > len(gallery)
    means, shrinkage = fit_means_head(moments, None if near_only else drawn)
    fitted = {"means": means}
    if "logistic" in wanted and "logistic" not in left_out:
        fitted["logistic"] = fit_logistic_folds(
            drawn, moments, shrinkage, without_classes=without_classes
        )
    heads = {
        name: replace(
            head,
            seen_ids=points.ids,
            seen_folds=points.folds,
            is_sample=len(points.ids) < len(gallery),
        )
        for name, head in fitted.items()
        if name in wanted
    }
    scores = {
        name: head.score_own(points.own_vectors, own.labels, own_ids)
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
    if len(sizes) * dimension > LARGEST_HEAD:
        return f"{len(sizes):,} classes of {dimension:,} features are too many"
    return None


class _Read:
    """Points of a gallery, read once, in portions."""

    def __init__(self, gallery: Gallery, ids: AnyArray, own_ids: AnyArray) -> None:
        self.gallery, self.ids, self.own_ids = gallery, ids, own_ids
        self.codes = gallery.codes_of(ids)
        groups = gallery.groups_beside
        self.folds = assign_folds(
            self.codes, None if groups is None else values_beside(groups, ids)
        )
        self.own_vectors: AnyArray = np.empty(0)

    def read(self, n_drawn: int) -> tuple[list[Moments], LabelledFolds]:
        """Moments of each fold, and some of the points at random."""
        n_classes = len(self.gallery.class_counts)
        order = np.random.default_rng(READ_SEED).permutation(len(self.ids))[:n_drawn]
        wanted = np.zeros(len(self.ids), np.bool_)
        wanted[order] = True
        moments: list[Moments] = []
        kept, own = [], []
        for start in range(0, len(self.ids), PORTION):
            rows = slice(start, start + PORTION)
            ids, codes, folds = self.ids[rows], self.codes[rows], self.folds[rows]
            vectors = np.asarray(self.gallery.engine.fetch(ids).vectors)
            if not moments:
                centre = vectors.mean(axis=0, dtype=np.float64)
                n_folds = int(self.folds.max()) + 1
                moments = [Moments.empty(centre, n_classes) for _ in range(n_folds)]
            for fold, sums in enumerate(moments):
                sums.add(vectors[folds == fold], codes[folds == fold])
            kept.append(vectors[wanted[rows]])
            own.append(vectors[np.isin(ids, self.own_ids, assume_unique=True)])
        self.own_vectors = self._in_order(np.concatenate(own))
        places = np.flatnonzero(wanted)
        points = LabelledFolds(np.concatenate(kept), self.codes[places], self.folds[places])
        # Random order: whoever takes the first has a fair draw.
        return moments, points.take(np.searchsorted(places, order))

    def _in_order(self, found: AnyArray) -> AnyArray:
        """Vectors of the own points; those that were not read are fetched."""
        if len(found) == len(self.own_ids):
            return found
        blocks = np.split(self.own_ids, np.arange(PORTION, len(self.own_ids), PORTION))
        return np.concatenate([self.gallery.engine.fetch(ids).vectors for ids in blocks])
