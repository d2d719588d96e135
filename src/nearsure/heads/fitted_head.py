"""A head fitted on a gallery, with copies of it that have not seen a fold of the points."""

from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.heads.class_means import ClassMeans, lengthen
from nearsure.heads.linear import LinearHead
from nearsure.neighbors import ClassScores, join_scores

if TYPE_CHECKING:
    from typing import Self

OTHER_IDS = (
    "The engine holds the points of the fit under other ids, so that they cannot be scored by "
    "heads that have not seen them. Call refit()."
)


@dataclass(frozen=True, eq=False)
class FittedHead:
    """A head, and the same head fitted without each fold of the points.

    Parameters
    ----------
    name : {"means", "logistic"}
        What was fitted.
    full : LinearHead
        On all points: for queries.
    folds : tuple of LinearHead
        Each without the points of one fold: for these points.
    means : ClassMeans or None
        What `full` was made of, for changes; None for a head that only a fit can change.
    near_only : bool
        Whether the classes of a query's neighbours alone are scored, as there are too many.
    seen_ids, seen_folds : array of shape (n,)
        The points that it was fitted on, by ascending id, and their folds; none if they have other
        ids by now.
    farthest : float or None
        Squared distance to the nearest neighbour up to which queries are as points are. What is
        beyond it is noise, alike in all directions. None takes no query for noisy.
    class_folds : tuple of LinearHead
        Each without the classes of one fold, for points that stand for queries of unknown classes;
        may be empty.
    fold_of_class : array of shape (n_classes,)
        Folds of the classes, if there are any.
    """

    name: str
    full: LinearHead
    folds: tuple[LinearHead, ...]
    means: ClassMeans | None = None
    near_only: bool = False
    seen_ids: AnyArray = field(default_factory=lambda: np.empty(0, np.int64))
    seen_folds: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    farthest: float | None = None
    class_folds: tuple[LinearHead, ...] = ()
    fold_of_class: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    def score(
        self, vectors: AnyArray, labels: IntArray, sq_distances: FloatArray | None = None
    ) -> ClassScores:
        """Of queries.

        Parameters
        ----------
        vectors : array of shape (n, d)
            The queries.
        labels, sq_distances : array of shape (n, k)
            Of their neighbours; without distances, no query is taken for noisy.
        """
        near = labels if self.near_only else None
        scores = self.full.score(vectors, near, self._noise_of(sq_distances, vectors.shape[1]))
        if not self.class_folds:
            return scores
        largest = self._logit_ratio * scores.largest_logits
        return replace(scores, level=largest - scores.log_shares.max(axis=1))

    @cached_property
    def _logit_ratio(self) -> float:
        """By how much logits of folds are smaller, as these have seen fewer points.

        As evidence of an unknown class, logits of queries are compared with those of own points.
        """
        norms = [float(np.linalg.norm(each.weights)) for each in (self.full, *self.folds)]
        return float(np.mean(norms[1:])) / norms[0] if norms[0] else 1.0

    def _noise_of(self, sq_distances: FloatArray | None, n_features: int) -> FloatArray | None:
        if self.farthest is None or sq_distances is None:
            return None
        nearest = sq_distances[:, 0]
        noise: FloatArray = np.where(np.isfinite(nearest), nearest - self.farthest, 0.0)
        return np.maximum(noise, 0.0) / n_features

    def score_own(
        self,
        vectors: AnyArray,
        labels: IntArray,
        ids: AnyArray,
        sq_distances: FloatArray | None = None,
    ) -> ClassScores:
        """Of points of the gallery, each by the head that has not seen its fold.

        Parameters
        ----------
        vectors, labels, sq_distances : array of shape (n, d), (n, k) and (n, k)
            As of `score`.
        ids : array of shape (n,)
            Of the points.
        """
        return self._score_by(self.folds, self._folds_of(ids), vectors, labels, sq_distances)

    def score_without_class(
        self,
        vectors: AnyArray,
        labels: IntArray,
        ids: AnyArray,
        codes: IntArray,
        sq_distances: FloatArray | None = None,
    ) -> ClassScores:
        """Of points of the gallery as if their classes did not exist.

        Logistic regression that has seen a class keeps the others away from its points, which no
        query of an unknown class meets: the heads that have not seen it score them, if there are
        any. Means of other classes do not depend on it.

        Parameters
        ----------
        vectors, labels, ids, sq_distances
            As of `score_own`.
        codes : array of shape (n,)
            Classes of the points.
        """
        if not self.class_folds:
            return self.score_own(vectors, labels, ids, sq_distances).without(codes)
        # A class that came later was seen by no head.
        known = codes < len(self.fold_of_class)
        folds = np.where(known, self.fold_of_class[np.where(known, codes, 0)], 0)
        return self._score_by(self.class_folds, folds, vectors, labels, sq_distances)

    def without_points(self) -> "Self":
        """The same where points have other ids: own points cannot be told from queries."""
        return replace(self, seen_ids=self.seen_ids[:0], seen_folds=self.seen_folds[:0])

    def _score_by(
        self,
        heads: tuple[LinearHead, ...],
        folds: IntArray,
        vectors: AnyArray,
        labels: IntArray,
        sq_distances: FloatArray | None,
    ) -> ClassScores:
        noise = self._noise_of(sq_distances, vectors.shape[1])
        parts = []
        for fold in np.unique(folds).tolist():
            rows = np.flatnonzero(folds == fold)
            near = labels[rows] if self.near_only else None
            some = None if noise is None else noise[rows]
            parts.append((rows, heads[fold].score(vectors[rows], near, some)))
        return replace(join_scores(parts, len(folds)), unheard=self._unheard)

    @cached_property
    def _unheard(self) -> IntArray:
        """Classes that no fold has members of."""
        unheard: IntArray = reduce(np.intersect1d, (each.unheard for each in self.folds))
        return unheard

    def _folds_of(self, ids: AnyArray) -> IntArray:
        if not len(self.seen_ids) or self.seen_ids.dtype.kind != ids.dtype.kind:
            raise InvalidInputError(OTHER_IDS)
        places = np.minimum(np.searchsorted(self.seen_ids, ids), len(self.seen_ids) - 1)
        # A point that came later was seen by no head.
        return np.where(self.seen_ids[places] == ids, self.seen_folds[places], 0)

    def changed(
        self,
        ids: AnyArray,
        vectors: AnyArray,
        codes: IntArray,
        n_classes: int,
        *,
        sign: int,
        like: AnyArray | None = None,
    ) -> "FittedHead":
        """With points added (sign 1) or removed (-1), as far as that is possible without a fit.

        Parameters
        ----------
        ids, vectors, codes : array of shape (n,), (n, d) and (n,)
            The points.
        n_classes, sign
            As of `ClassMeans.changed`.
        like : array of shape (n,), optional
            Ids of points whose folds those that are new share; by default their own.
        """
        if self.means is None:
            return self
        seen_ids, seen_folds = self.seen_ids, self.seen_folds
        is_new = ~np.isin(ids, seen_ids)
        if sign < 0:
            # Those that were not read, or came past this head, are not in the means.
            vectors, codes = vectors[~is_new], codes[~is_new]
        elif is_new.any() and len(seen_ids):
            folds = self._folds_of(ids if like is None else like)[is_new]
            order = np.argsort(ids[is_new])
            new = ids[is_new][order]
            places = np.searchsorted(seen_ids, new)
            seen_ids = np.insert(_as_wide(seen_ids, new), places, new)
            seen_folds = np.insert(seen_folds, places, folds[order])
        means = self.means.changed(vectors, codes, n_classes, sign=sign)
        # Most classes are as they were.
        touched = np.unique(codes)
        part = means.take(touched).head(self.full.weights.dtype.type)
        full = LinearHead(
            lengthen(self.full.weights, n_classes),
            np.append(self.full.intercepts, np.full(n_classes, -np.inf))[: len(means.counts)],
            means.centre,
        )
        full.weights[touched], full.intercepts[touched] = part.weights, part.intercepts
        return replace(self, means=means, full=full, seen_ids=seen_ids, seen_folds=seen_folds)


def _as_wide(ids: AnyArray, more: AnyArray) -> AnyArray:
    """Ids of a type that holds longer ones, too."""
    return ids.astype(np.result_type(ids.dtype, more.dtype), copy=False)
