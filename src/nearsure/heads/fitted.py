"""A head fitted on a gallery, with copies of it that have not seen a fold of the points."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.heads.class_means import (
    MOST_CORRELATED,
    ClassMeans,
    Moments,
    find_factor,
    fit_class_means,
    lengthen,
    pool_covariance,
)
from nearsure.heads.linear import LinearHead
from nearsure.heads.logistic import fit_logistic_head
from nearsure.labels import restored_classes, stored_classes
from nearsure.neighbors import ClassScores, join_scores
from nearsure.schema import (
    BOOLEAN,
    NUMBER,
    POSITIVE,
    TEXT,
    array,
    check_fields,
    integer,
    nullable,
    one_of,
    unreadable,
)

# A class of n members loses one of n when a point is left out, and so should its rivals: small
# classes are divided into few folds.
FEWEST_FOLDS, MOST_FOLDS = 2, 5
FOLD_SEED = 0
# Classes are left out of logistic regression in so many folds. With fewer classes than the second
# number, what is left without a fold is another problem, and its logits say nothing of the whole.
CLASS_FOLDS, FEWEST_CLASSES = 5, 10
# The strength is chosen on points of so many folds, it and the shrinkage on so many points at most;
# and by heads that are fitted on so many at most, as it hardly depends on their number.
CHOICE_FOLDS, MOST_CHOSEN_ON, MOST_CHOSEN_BY = 2, 2000, 3000
SHRINKAGES = (0.03, 0.1, 0.3, 0.6, 1.0)
# Where classes are too many to choose by all their logits: what most galleries choose.
USUAL_SHRINKAGE, USUAL_SCALE = 0.3, 0.2
# From the strongest penalty on, as long as likelihood grows.
STRENGTHS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)
SCALES = (-7.0, 3.0)  # logarithms
# Points that set the centre, and that are added up at a time.
PORTION = 2048
# A point counts no less probable than this, or one mislabelled point would outweigh all others.
LEAST_PROBABILITY = 1e-3


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

    def without_points(self) -> Self:
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

    def to_state(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Numbers for JSON, and arrays."""
        if not len(self.seen_ids):
            raise InvalidInputError(OTHER_IDS)
        numbers = {
            "name": self.name,
            "near_only": self.near_only,
            "n_classes": len(self.full.weights),
            "n_fold_classes": len(self.folds[0].weights),
            "n_seen": len(self.seen_ids),
            "n_folds": len(self.folds),
            "n_class_folds": len(self.class_folds),
            "scale": None if self.means is None else self.means.scale,
            "farthest": self.farthest,
            "ids_dtype": self.seen_ids.dtype.str,
        }
        arrays = {
            "head_ids": stored_classes(self.seen_ids),
            "head_folds": self.seen_folds,
            "head_centre": self.full.centre,
            "head_fold_weights": np.stack([each.weights for each in self.folds]),
            "head_fold_intercepts": np.stack([each.intercepts for each in self.folds]),
        }
        if self.means is None:
            arrays["head_weights"] = self.full.weights
            arrays["head_intercepts"] = self.full.intercepts
        else:
            arrays["head_means"], arrays["head_counts"] = self.means.means, self.means.counts
            arrays["head_factor"] = self.means.factor
        if self.class_folds:
            arrays["head_fold_of_class"] = self.fold_of_class
            arrays["head_class_weights"] = np.stack([each.weights for each in self.class_folds])
            arrays["head_class_intercepts"] = np.stack(
                [each.intercepts for each in self.class_folds]
            )
        for name in SINGLE:
            if name in arrays:
                lowest = np.maximum(arrays[name], -LARGEST_WEIGHT)
                arrays[name] = lowest.astype(np.float32)
        return numbers, arrays

    @classmethod
    def from_state(
        cls,
        numbers: dict[str, Any],
        arrays: dict[str, AnyArray],
        n_features: int,
        n_classes: int,
    ) -> Self:
        """The inverse of `to_state`; `ModelFileError` for anything else.

        Parameters
        ----------
        numbers, arrays : dict
            What `to_state` gave; the numbers are checked, see `head_arrays`.
        n_features, n_classes : int
            Of the gallery.
        """
        owner = "The head of the model"
        n, m = numbers["n_classes"], numbers["n_seen"]
        n_folds, n_class_folds = numbers["n_folds"], numbers["n_class_folds"]
        n_fold, d = numbers["n_fold_classes"], n_features
        single = {"low": -LARGEST_WEIGHT, "high": LARGEST_WEIGHT}
        factor = (d, d) if d <= MOST_CORRELATED else (d,)
        table = {
            "head_folds": array("int64", m, low=0, high=n_folds - 1),
            "head_centre": array("float64", d, low=-1e150, high=1e150),
            "head_fold_weights": array("float32", n_folds, n_fold, d, **single),
            "head_fold_intercepts": array("float32", n_folds, n_fold, **single),
            "head_fold_of_class": array("int64", n_fold, low=0, high=n_class_folds - 1),
            "head_class_weights": array("float32", n_class_folds, n_fold, d, **single),
            "head_class_intercepts": array("float32", n_class_folds, n_fold, **single),
            "head_weights": array("float32", n, d, **single),
            "head_intercepts": array("float32", n, **single),
            "head_means": array("float64", n, d, low=-1e150, high=1e150),
            "head_counts": array("float64", n, low=0.0, high=2.0**53),
            "head_factor": array("float64", *factor, low=-1e150, high=1e150),
        }
        own = {name: arrays[name] for name in table if name in arrays}
        check_fields(owner, own, {name: table[name] for name in own})
        ids = restored_classes(arrays["head_ids"], numbers["ids_dtype"])
        if len(ids) != m or (ids[1:] <= ids[:-1]).any():
            raise unreadable(owner, "its ids must ascend, one for each fold of a point")
        if max(n, n_fold) > n_classes:
            raise unreadable(owner, f"it must have at most the {n_classes} classes of the gallery")
        centre = own["head_centre"]
        folds = _restored_folds(own["head_fold_weights"], own["head_fold_intercepts"], centre)
        class_folds: tuple[LinearHead, ...] = ()
        if n_class_folds:
            class_folds = _restored_folds(
                own["head_class_weights"], own["head_class_intercepts"], centre
            )
        means = None
        if numbers["name"] == "means":
            means = ClassMeans(
                own["head_means"], own["head_counts"], own["head_factor"], numbers["scale"], centre
            )
            with np.errstate(over="ignore", invalid="ignore"):
                full = means.head(np.float32 if numbers["near_only"] else np.float64)
            largest = max(np.abs(full.weights).max(), full.intercepts.max())
            if not largest <= LARGEST_WEIGHT:
                raise unreadable(owner, "its means and metric must give finite weights")
        else:
            full = _restored(own["head_weights"], own["head_intercepts"], centre)
        return cls(
            numbers["name"],
            full,
            folds,
            means,
            numbers["near_only"],
            ids,
            own["head_folds"],
            numbers["farthest"],
            class_folds,
            own.get("head_fold_of_class", np.empty(0, np.int64)),
        )


OTHER_IDS = (
    "The engine holds the points of the fit under other ids, so that they cannot be scored by "
    "heads that have not seen them. Call refit()."
)


def _as_wide(ids: AnyArray, more: AnyArray) -> AnyArray:
    """Ids of a type that holds longer ones, too."""
    return ids.astype(np.result_type(ids.dtype, more.dtype), copy=False)


def head_arrays(numbers: dict[str, Any]) -> tuple[str, ...]:
    """The arrays that `FittedHead.to_state` gave; `ModelFileError` unless the numbers fit."""
    check_fields("The head of the model", numbers, _STORED)
    if (numbers["name"] == "means") != (numbers["scale"] is not None):
        raise unreadable("The head of the model", "class means alone must have a scale")
    full = ("means", "counts", "factor") if numbers["name"] == "means" else SINGLE_FULL
    shared = ("ids", "folds", "centre", "fold_weights", "fold_intercepts")
    by_class = ("fold_of_class", "class_weights", "class_intercepts")
    return tuple(
        f"head_{name}" for name in (*shared, *full, *(by_class if numbers["n_class_folds"] else ()))
    )


SINGLE_FULL = ("weights", "intercepts")
SINGLE = tuple(f"head_{part}{name}" for part in ("", "fold_", "class_") for name in SINGLE_FULL)
# Of a file; a class without members has minus this for an intercept of minus infinity.
LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_STORED = {
    "name": one_of("means", "logistic"),
    "near_only": BOOLEAN,
    "n_classes": integer(1),
    "n_fold_classes": integer(1),
    "n_seen": integer(1),
    "n_folds": integer(FEWEST_FOLDS, MOST_FOLDS),
    "n_class_folds": integer(0, CLASS_FOLDS),
    "scale": nullable(POSITIVE),
    "farthest": nullable(NUMBER),
    "ids_dtype": TEXT,
}


def _restored(weights: AnyArray, intercepts: AnyArray, centre: FloatArray) -> LinearHead:
    lowest = intercepts <= np.float32(-LARGEST_WEIGHT)
    plain = np.where(lowest, -np.inf, intercepts.astype(np.float64))
    return LinearHead(weights.astype(np.float64), plain, centre)


def _restored_folds(
    weights: AnyArray, intercepts: AnyArray, centre: FloatArray
) -> tuple[LinearHead, ...]:
    return tuple(_restored(*each, centre) for each in zip(weights, intercepts, strict=True))


def assign_folds(
    codes: IntArray, groups: IntArray | None = None, most: int = MOST_FOLDS
) -> IntArray:
    """Folds of points, shape (n,): those of a class are spread evenly, those of a group together.

    Examples
    --------
    >>> assign_folds(np.array([0, 0, 1, 1])).tolist() in ([0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1])
    True
    """
    sizes = np.bincount(codes)
    n_folds = int(np.clip(np.median(sizes[codes]), FEWEST_FOLDS, most))
    first, of_unit = np.arange(len(codes)), np.arange(len(codes))
    if groups is not None:
        _, first, of_unit = np.unique(groups, return_index=True, return_inverse=True)
    unit_codes = codes[first]
    drawn = np.random.default_rng(FOLD_SEED).permutation(len(first))
    by_class = drawn[np.argsort(unit_codes[drawn], kind="stable")]
    ordered = unit_codes[by_class]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(starts, append=len(ordered)))
    folds = np.empty(len(first), np.int64)
    # Classes begin with different folds, or the first would have all that is left over.
    folds[by_class] = (rank + ordered) % n_folds
    occurring, folds = np.unique(folds, return_inverse=True)
    if len(occurring) < FEWEST_FOLDS:
        # A few groups that hold many classes: what they are of does not divide them.
        folds[drawn] = np.arange(len(drawn)) % n_folds
    return folds[of_unit]


def fit_many_means(
    points: "LabelledFolds", n_classes: int, apart: "LabelledFolds"
) -> FittedHead | None:
    """Class means for more classes than can be scored; None if points do not vary.

    Shrinkage and scale are what is usual.

    Parameters
    ----------
    points : LabelledFolds
        The points.
    n_classes : int
        How many classes there are.
    apart : LabelledFolds
        Those of them whose metric serves all folds.
    """
    covariance = pool_covariance(apart.vectors, apart.codes)
    if covariance is None:
        return None
    vectors, n_folds = points.vectors, int(points.folds.max()) + 1
    places = points.folds * n_classes + points.codes
    sizes = np.bincount(places, minlength=n_folds * n_classes)
    # One row for a class in a fold, with a one for each member. Sums of few numbers stay in single
    # precision, as what is as large as the gallery takes time to move.
    members = csr_array(
        (
            np.ones(len(places), vectors.dtype),
            np.argsort(places, kind="stable"),
            np.append(0, np.cumsum(sizes)),
        ),
        shape=(len(sizes), len(places)),
    )
    sums, counts = members @ vectors, sizes.reshape(n_folds, n_classes).astype(np.float64)
    sums = sums.reshape(n_folds, n_classes, -1)
    total = sums.sum(axis=0)
    centre = vectors[:PORTION].mean(axis=0, dtype=np.float64)
    factor = find_factor(covariance, USUAL_SHRINKAGE)

    def average(of_class: AnyArray, n: FloatArray) -> ClassMeans:
        """Of sums that are changed in place."""
        of_class /= np.maximum(n, 1.0)[:, None].astype(of_class.dtype)
        of_class -= centre.astype(of_class.dtype)
        of_class[n == 0] = 0.0
        return ClassMeans(of_class, n, factor, USUAL_SCALE, centre)

    heads = []
    for fold in range(n_folds):
        rest = average(total - sums[fold], counts.sum(axis=0) - counts[fold])
        head = rest.head(np.float32)
        heads.append(replace(head, intercepts=_in_single(head.intercepts)))
    means = average(total, counts.sum(axis=0))
    means = replace(means, means=means.means.astype(np.float64))
    return FittedHead("means", means.head(np.float32), tuple(heads), means, near_only=True)


def fit_means_head(folds: list[Moments], chosen_on: "LabelledFolds") -> tuple[FittedHead, float]:
    """Class means; shrinkage and scale by the likelihood of points that were left out.

    Parameters
    ----------
    folds : list of Moments
        Of the points of each fold.
    chosen_on : LabelledFolds
        Points to choose by.

    Returns
    -------
    head : FittedHead
    shrinkage : float
        Of its metric.
    """
    total = sum(folds[1:], start=folds[0])
    # Pairs that two folds divide leave no covariance.
    is_spread = all((total - fold).has_spread for fold in folds)
    found = []
    for candidate in SHRINKAGES if is_spread else (1.0,):
        parts = [
            _without_prior(_fit_without(folds[fold], total, candidate), some)
            for fold, some in chosen_on.by_fold(len(folds))
        ]
        found.append((*_temper(parts), candidate))
    _, scale, shrinkage = min(found)
    heads = tuple(_fit_without(fold, total, shrinkage, scale).head() for fold in folds)
    means = fit_class_means(total, shrinkage, scale)
    return FittedHead("means", means.head(), _rounded(heads), means), shrinkage


def _fit_without(fold: Moments, total: Moments, shrinkage: float, scale: float = 1.0) -> ClassMeans:
    """Class means of all points but a fold."""
    # Where the metric is the same in all directions, its one number is that of all points.
    covariance = total.covariance if shrinkage == 1.0 else None
    return fit_class_means(total - fold, shrinkage, scale, covariance=covariance)


@dataclass(frozen=True, eq=False)
class LabelledFolds:
    """Points with their classes and folds."""

    vectors: AnyArray
    codes: IntArray
    folds: IntArray

    def by_fold(self, n_folds: int) -> Iterator[tuple[int, "LabelledFolds"]]:
        """Some of the points of each of the first folds."""
        for fold in range(n_folds):
            rows = np.flatnonzero(self.folds == fold)
            rows = rows[: max(1, MOST_CHOSEN_ON // n_folds)]
            if rows.size:
                yield fold, self.take(rows)

    def take(self, rows: AnyArray) -> "LabelledFolds":
        """Some of the points."""
        return LabelledFolds(self.vectors[rows], self.codes[rows], self.folds[rows])


# Logits to be scaled, logits that are not, and the true classes.
_Tempered = tuple[FloatArray, FloatArray, IntArray]


def _without_prior(means: ClassMeans, points: LabelledFolds) -> _Tempered:
    present = means.counts > 0
    known = points.take(present[points.codes])
    # With a member each, classes have a prior of 0.
    logits = replace(means, counts=np.ones(len(present))).head().logits(known.vectors)
    prior = np.where(present, np.log(np.maximum(means.counts, 1.0)), -np.inf)
    return logits, prior, known.codes


def _temper(parts: list[_Tempered]) -> tuple[float, float]:
    """Loss and scale at which the true classes of points are most probable."""
    n_points = sum(len(codes) for *_, codes in parts)
    if not n_points:
        return np.inf, 1.0

    def loss(log_scale: float) -> float:
        lost = 0.0
        for scaled, fixed, codes in parts:
            logits = np.exp(log_scale) * scaled + fixed
            p_true = np.exp(logits[np.arange(len(codes)), codes] - logsumexp(logits, axis=1))
            lost -= np.log(LEAST_PROBABILITY + (1.0 - LEAST_PROBABILITY) * p_true).sum()
        return float(lost / n_points)

    found = minimize_scalar(loss, bounds=SCALES, method="bounded", options={"xatol": 0.02})
    return float(found.fun), float(np.exp(found.x))


def fit_logistic_folds(
    points: LabelledFolds, folds: list[Moments], shrinkage: float, *, without_classes: bool = False
) -> FittedHead:
    """Logistic regression in the metric of the class means; strength by likelihood left out.

    Parameters
    ----------
    points : LabelledFolds
        To fit on, at random.
    folds : list of Moments
        As of `fit_means_head`.
    shrinkage : float
        Of the metric.
    without_classes : bool
        Whether to fit heads without the classes of each fold of these, too.
    """
    total = sum(folds[1:], start=folds[0])
    n_classes = len(total.counts)

    def prepare(fold: int | None, most: int | None = None) -> tuple[ClassMeans, LabelledFolds]:
        means = (
            fit_class_means(total, shrinkage)
            if fold is None
            else _fit_without(folds[fold], total, shrinkage)
        )
        rows = np.flatnonzero(points.folds != (-1 if fold is None else fold))[:most]
        others = points.take(rows)
        return means, replace(others, vectors=means.whiten(others.vectors))

    strength, scale = _choose_strength(
        [(*prepare(fold, MOST_CHOSEN_BY), some) for fold, some in points.by_fold(CHOICE_FOLDS)],
        n_classes,
    )

    def fit(
        means: ClassMeans, others: LabelledFolds, start: FloatArray | None = None
    ) -> tuple[LinearHead, FloatArray]:
        weights = fit_logistic_head(others.vectors, others.codes, n_classes, strength, start)
        return _as_head(weights, means, scale), weights

    means, whole = prepare(None)
    full, weights = fit(means, whole)
    heads = _rounded((full, *(fit(*prepare(fold))[0] for fold in range(len(folds)))))
    head = FittedHead("logistic", heads[0], heads[1:])
    present = np.unique(points.codes)
    if not without_classes or len(present) < FEWEST_CLASSES:
        return head
    fold_of_class = np.zeros(n_classes, np.int64)
    fold_of_class[present] = spread_classes(means.whiten(means.means[present] + means.centre))
    class_folds = []
    for fold in range(CLASS_FOLDS):
        others = points.take(np.flatnonzero(fold_of_class[points.codes] != fold))
        # In many dimensions a class leaves its mark on the metric, too.
        moments = Moments.empty(total.centre, n_classes).add(others.vectors, others.codes)
        is_shared = shrinkage == 1.0 or not moments.has_spread
        covariance = total.covariance if is_shared else None
        means = fit_class_means(moments, shrinkage, covariance=covariance)
        others = replace(others, vectors=means.whiten(others.vectors))
        # From the weights for all classes, few steps are left.
        class_folds.append(fit(means, others, weights)[0])
    return replace(head, class_folds=_rounded(tuple(class_folds)), fold_of_class=fold_of_class)


def spread_classes(means: FloatArray) -> IntArray:
    """Folds of classes, shape (n,): those that are alike are in different ones.

    A query of an unknown class still meets the classes that are most like its own, and so should a
    point whose class is left out with others.

    Examples
    --------
    >>> folds = spread_classes(np.array([[0.0], [9.0], [0.1], [9.1]]))
    >>> bool(folds[0] != folds[2] and folds[1] != folds[3])
    True
    """
    n = len(means)
    sq_distances = cdist(means, means, "sqeuclidean")
    folds = np.zeros(n, np.int64)
    # Of each class to the nearest one of each fold.
    nearest = np.full((n, CLASS_FOLDS), np.inf)
    places = np.full(CLASS_FOLDS, -(-n // CLASS_FOLDS))
    for each in np.random.default_rng(FOLD_SEED).permutation(n).tolist():
        folds[each] = fold = int(np.where(places > 0, nearest[each], -1.0).argmax())
        places[fold] -= 1
        nearest[:, fold] = np.minimum(nearest[:, fold], sq_distances[each])
    return folds


def _choose_strength(
    tried: list[tuple[ClassMeans, LabelledFolds, LabelledFolds]], n_classes: int
) -> tuple[float, float]:
    """Strength and scale; from whitened points to fit on, and points to choose by."""
    starts: list[FloatArray | None] = [None] * len(tried)
    best = (np.inf, STRENGTHS[0], 1.0)
    for strength in STRENGTHS:
        parts = []
        for i, (means, others, some) in enumerate(tried):
            starts[i] = weights = fit_logistic_head(
                others.vectors, others.codes, n_classes, strength, starts[i]
            )
            is_known = np.isfinite(weights[:, -1])
            weights = np.where(is_known[:, None], weights, 0.0)
            known = some.take(is_known[some.codes])
            logits = _as_head(weights, means, 1.0).logits(known.vectors)
            parts.append((logits, np.where(is_known, 0.0, -np.inf), known.codes))
        loss, scale = _temper(parts)
        if loss >= best[0]:
            break
        best = (loss, strength, scale)
    return best[1:]


def _as_head(weights: FloatArray, means: ClassMeans, scale: float) -> LinearHead:
    raw = means.unwhiten(weights[:, :-1])
    return LinearHead(scale * raw, scale * weights[:, -1], means.centre)


def _rounded(heads: tuple[LinearHead, ...]) -> tuple[LinearHead, ...]:
    """As a file keeps them: in single precision."""
    return tuple(
        LinearHead(_in_single(head.weights), _in_single(head.intercepts), head.centre)
        for head in heads
    )


def _in_single(values: FloatArray) -> FloatArray:
    return values.astype(np.float32).astype(np.float64)
