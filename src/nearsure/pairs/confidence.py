"""`PairConfidence`: the probability that two vectors are of one class, learned from a gallery."""

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index import unit_vectors
from nearsure.index.exact import fingerprints, first_of_equals
from nearsure.labels import classes_and_codes, groups_and_codes
from nearsure.logistic import fit_bounded_logistic
from nearsure.model_file import read_model, write_model
from nearsure.pairs.crowding import SMALLEST_SHARE, Cohort
from nearsure.pairs.report import PairReport, report_pairs
from nearsure.pairs.sample import draw_pairs, weigh_equally
from nearsure.pairs.threshold import PairThreshold, choose_pair_threshold
from nearsure.schema import (
    COUNT,
    NUMBER,
    POSITIVE,
    SEED,
    array,
    check_fields,
    list_of,
    nullable,
    one_of,
    reading,
    unreadable,
)
from nearsure.validation import check_correct, check_open_fraction, check_same_length, generator_of

if TYPE_CHECKING:
    from typing import Self

KIND = "pairs"
# Rows of vectors that are subtracted at once.
BLOCK = 8192
# How strongly the weights are held towards 0, in pairs: it matters only where same and different
# pairs do not overlap.
PULL = 1.0
# The log-odds are bent at quantiles of the pairs, into so many pieces. No slope is 0, so that pairs
# keep their order.
N_PIECES = 8
LEAST_SLOPE = 0.05
# How strongly the slopes are held towards 1, in pairs, so that small galleries bend little.
BEND_PULL = 20.0

_MANIFEST = {
    "kind": one_of(KIND),
    "base_rate": POSITIVE,
    "metric": one_of("euclidean", "cosine"),
    "random_state": SEED,
    "intercept": NUMBER,
    "coefficients": list_of(NUMBER),
    "offset": NUMBER,
    "knots": list_of(NUMBER),
    "slopes": list_of(POSITIVE),
    "scale": POSITIVE,
    "n_features": nullable(COUNT),
}


@dataclass(frozen=True, eq=False)
class _OwnPairs:
    """The pairs that were learned from, as they were scored."""

    log_odds: FloatArray
    same: BoolArray
    weights: FloatArray
    classes: IntArray | None


class PairConfidence(BaseEstimator):  # type: ignore[misc]
    """The probability that two vectors are of one class: the same person, product or meaning.

    It depends on the distance of the two, and on how crowded the neighbourhoods of both are: a
    score is linear in the distance, its logarithm, and the logarithms of the distances from each to
    the tenth nearest class of the gallery, if it has ten classes; the log-odds are a rising, bent
    line of that score. All is fitted on pairs of the gallery's own points, with as many pairs of a
    small class as of a large one, and all points measured without their own class, as vectors of a
    new class would be.

    Parameters
    ----------
    base_rate : float, default=0.5
        Share of same pairs among those to come. The same distance means less where almost all pairs
        are different; state what is true for yours. It may be changed after `fit`.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Cosine brings vectors to unit length first.
    random_state : int, default=0
        Of the pairs that are drawn.

    Attributes
    ----------
    coefficients_ : array of shape (3,) or (2,)
        Weights of minus the logarithm of the distance, of minus the distance, and of crowding; none
        is negative.
    intercept_ : float
        The score where all of these are 0.
    offset_, knots_, slopes_ : float, array of shape (m,), array of shape (m + 1,)
        From the score to log-odds at a base rate of 0.5: where it bends, and its slopes between.
    scale_ : float
        Squared distance that all are measured in: the median of the pairs that were drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> pairs = PairConfidence(base_rate=0.1).fit(X[:900], y[:900])
    >>> p = pairs.probability(X[900:1100], X[1100:1300])
    >>> same = y[900:1100] == y[1100:1300]
    >>> round(float(p[same].mean()), 2), round(float(p[~same].mean()), 2)
    (0.42, 0.03)
    """

    def __init__(
        self,
        *,
        base_rate: float = 0.5,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        random_state: int = 0,
    ) -> None:
        self.base_rate = base_rate
        self.metric = metric
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> "Self":
        """Learn from the pairs of a gallery.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Vectors, of two classes or more.
        y : array-like of shape (n,)
            Their classes.
        groups : array-like of shape (n,), optional
            Near-copies share a group: frames of a video, sounds of one recording. Two points of one
            group are no evidence, as they are nearer than what comes later will be.
        """
        self._check_parameters()
        vectors, labels = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        classes, codes = classes_and_codes(labels)
        own_groups = np.arange(len(codes))
        if groups is not None:
            own_groups = groups_and_codes(groups, len(codes))[1]
        if len(classes) == 1:
            raise InvalidInputError(
                "y must have two classes or more, or there are no different pairs. Got one."
            )
        points = self._points(vectors)
        rng = generator_of(self.random_state)
        sample = draw_pairs(codes, own_groups, rng)
        if sample.same.all() or not sample.same.any():
            raise InvalidInputError(
                "The gallery must hold two points of one class and two of different classes, not "
                f"of one group. Got no {'different' if sample.same.any() else 'same'} pair."
            )
        cohort = Cohort.draw(points, codes, rng)
        rows, place = np.unique(sample.rows, return_inverse=True)
        to_classes = cohort.sq_distances(points[rows], own=codes[rows])[
            place.reshape(sample.rows.shape)
        ]
        between = _sq_distances(points, points, sample.rows)
        self._fit_weights(between, to_classes, sample.same, sample.weights, sample.classes)
        self._cohort: Cohort | None = cohort
        return self

    def fit_distances(
        self, sq_distances: ArrayLike, same: ArrayLike, *, classes: ArrayLike | None = None
    ) -> "Self":
        """Learn from distances of pairs alone, without what is around them.

        Parameters
        ----------
        sq_distances : array-like of shape (n,)
            Squared distances; or of another measure that is at least 0 and grows, if those to come
            are of the same.
        same : array-like of shape (n,)
            Whether each pair is of one class: boolean, or 0 and 1; of both kinds.
        classes : array-like of shape (n, 2), optional
            Classes of the two, so that no large class rules and promises know which pairs depend on
            each other. Without them pairs are taken for independent.
        """
        self._check_parameters()
        between, is_same = _checked_distances(sq_distances), check_correct(same)
        check_same_length(sq_distances=len(between), same=len(is_same))
        if is_same.all() or not is_same.any():
            raise InvalidInputError(
                "The 'same' parameter must hold pairs of both kinds, same and different. Got one."
            )
        codes, weights = None, np.ones(len(between))
        if classes is not None:
            names = np.asarray(classes)
            if names.shape != (len(between), 2):
                raise InvalidInputError(
                    f"classes must be two for each of the {len(between)} pairs. Got an array of "
                    f"shape {names.shape} instead."
                )
            codes = classes_and_codes(names.ravel())[1].reshape(names.shape)
            if ((codes[:, 0] == codes[:, 1]) != is_same).any():
                raise InvalidInputError(
                    "classes must be equal for same pairs and differ for others. Some do not agree "
                    "with the 'same' parameter."
                )
            weights[is_same] = weigh_equally(codes[is_same])
            weights[~is_same] = weigh_equally(codes[~is_same])
        weights = np.where(
            is_same, weights / weights[is_same].sum(), weights / weights[~is_same].sum()
        )
        self._fit_weights(between, None, is_same, weights, codes)
        self._cohort = None
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        return self

    def probability(self, A: ArrayLike, B: ArrayLike) -> FloatArray:
        """How probable it is that vectors are of one class, row by row.

        Parameters
        ----------
        A, B : array of shape (n, n_features)
            The first and the second of each pair.

        Returns
        -------
        array of shape (n,)
            In [0, 1], for the stated base rate. The order of the two does not matter.
        """
        cohort = self._fitted_cohort()
        first, second = (
            self._points(
                validate_data(self, one, dtype=[np.float64, np.float32], order="C", reset=False)
            )
            for one in (A, B)
        )
        check_same_length(A=len(first), B=len(second))
        rows = np.arange(len(first))
        between = _sq_distances(first, second, np.column_stack([rows, rows]))
        return self._probability(self._log_odds(between, _to_classes(cohort, first, second)))

    def probability_of_distances(self, sq_distances: ArrayLike) -> FloatArray:
        """As `probability`, after `fit_distances`: shape (n,) to shape (n,)."""
        self._check_fitted()
        if self._cohort is not None:
            raise InvalidInputError(
                "Distances alone suffice only after fit_distances; after fit, pass the vectors: "
                "probability(A, B)."
            )
        return self._probability(self._log_odds(_checked_distances(sq_distances), None))

    def threshold(self, *, false_accept: float = 1e-3, certainty: float = 0.95) -> PairThreshold:
        """From which probability two may be taken for the same.

        Parameters
        ----------
        false_accept : float, default=0.001
            Share of pairs of different classes that may be accepted, in (0, 1). It does not depend
            on the base rate.
        certainty : float, default=0.95
            Nominal: share of galleries of such classes whose threshold keeps it, if resemblance is
            spread over classes. Rare classes that resemble many others, of which the gallery may
            hold none, break it more often.

        Returns
        -------
        PairThreshold
            On probabilities at the base rate as it is now. Few classes cannot promise a small
            share: 25 are the least for 0.01, 78 for 0.001.
        """
        own = self._check_fitted()
        return choose_pair_threshold(
            self._probability(own.log_odds),
            own.same,
            own.weights,
            own.classes,
            false_accept=false_accept,
            certainty=certainty,
        )

    def report(
        self,
        A: ArrayLike | None = None,
        B: ArrayLike | None = None,
        same: ArrayLike | None = None,
    ) -> PairReport:
        """Error trade-off, calibration and scores.

        Parameters
        ----------
        A, B : array of shape (n, n_features), optional
            Pairs of which it is known whether they are the same. By default the gallery's own
            pairs, which the few weights were fitted to.
        same : array-like of shape (n,), optional
            Whether they are.
        """
        own = self._check_fitted()
        if A is None and B is None and same is None:
            p = self._probability(own.log_odds)
            return report_pairs(p, own.same, base_rate=self.base_rate, weights=own.weights)
        if A is None or B is None or same is None:
            raise InvalidInputError(
                "A, B and same must be given together, or none of them for the gallery's own pairs."
            )
        return report_pairs(self.probability(A, B), same, base_rate=self.base_rate)

    def save(self, path: str | PathLike[str]) -> None:
        """Write what was fitted to one safetensors file, replacing it whole or not at all."""
        own, cohort = self._check_fitted(), self._cohort
        tensors: dict[str, AnyArray] = {
            "log_odds": own.log_odds,
            "same": own.same,
            "weights": own.weights,
        }
        if own.classes is not None:
            tensors["classes"] = own.classes
        if cohort is not None:
            tensors |= {"vectors": cohort.vectors, "codes": cohort.codes}
        manifest = {
            "kind": KIND,
            "base_rate": float(self.base_rate),
            "metric": self.metric,
            "random_state": int(self.random_state),
            "intercept": self.intercept_,
            "coefficients": self.coefficients_.tolist(),
            "offset": self.offset_,
            "knots": self.knots_.tolist(),
            "slopes": self.slopes_.tolist(),
            "scale": self.scale_,
            "n_features": None if cohort is None else int(self.n_features_in_),
        }
        write_model(path, manifest, tensors)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Self":
        """What `save` wrote; `ModelFileError` for anything else."""
        manifest, tensors = read_model(path)
        owner = str(path)
        # Older files have a straight line.
        manifest = {"offset": 0.0, "knots": [], "slopes": [1.0], **manifest}
        check_fields(owner, manifest, _MANIFEST)
        n, n_features = len(tensors.get("same", ())), manifest["n_features"]
        table = {
            "log_odds": array("float64", n),
            "same": array("bool", n, low=0, high=1),
            "weights": array("float64", n, low=0.0, high=1.0),
        }
        if "classes" in tensors:
            table["classes"] = array("int64", n, 2)
        if n_features is not None:
            n_points = len(tensors.get("codes", ()))
            table["vectors"] = array("float32 float64", n_points, n_features)
            table["codes"] = array("int64", n_points)
        check_fields(owner, tensors, table)
        same = tensors["same"]
        if same.all() or not same.any() or (n_features is not None and not len(tensors["codes"])):
            raise unreadable(owner, "it lacks pairs or points")
        if len(manifest["coefficients"]) != (2 if n_features is None else 3):
            raise unreadable(owner, "'coefficients' are too few or too many")
        knots, slopes = (np.array(manifest[name], np.float64) for name in ("knots", "slopes"))
        if len(slopes) != len(knots) + 1 or (np.diff(knots) <= 0.0).any():
            raise unreadable(owner, "'knots' must ascend, with one slope more than knots")
        pairs = cls(
            base_rate=manifest["base_rate"],
            metric=manifest["metric"],
            random_state=manifest["random_state"],
        )
        with reading(owner):
            pairs._check_parameters()
        pairs.intercept_, pairs.scale_ = float(manifest["intercept"]), float(manifest["scale"])
        pairs.coefficients_ = np.array(manifest["coefficients"], np.float64)
        pairs.offset_, pairs.knots_, pairs.slopes_ = float(manifest["offset"]), knots, slopes
        pairs._own = _OwnPairs(
            tensors["log_odds"], same, tensors["weights"], tensors.get("classes")
        )
        pairs._cohort = None
        if n_features is not None:
            pairs.n_features_in_ = n_features
            pairs._cohort = Cohort(tensors["vectors"], tensors["codes"])
        return pairs

    def _fit_weights(
        self,
        between: FloatArray,
        to_classes: FloatArray | None,
        same: BoolArray,
        weights: FloatArray,
        classes: IntArray | None,
    ) -> None:
        # Of all pairs 0 where most are copies; then any number will do.
        scale = float(np.median(between)) or float(between.max()) or 1.0
        columns = _columns(between, to_classes, scale)
        # Each kind counts as much as there are same pairs, so that the offset is for equal odds.
        counts = weights * same.sum()
        intercept, coefficients = fit_bounded_logistic(
            columns, same, counts, lowest=0.0, usual=0.0, pull=PULL
        )
        scores = intercept + columns @ coefficients
        knots = np.unique(np.quantile(scores, np.arange(1, N_PIECES) / N_PIECES))
        self.offset_, self.slopes_ = fit_bounded_logistic(
            _pieces(scores, knots), same, counts, lowest=LEAST_SLOPE, usual=1.0, pull=BEND_PULL
        )
        self.scale_, self.intercept_, self.coefficients_ = scale, intercept, coefficients
        self.knots_ = knots
        self._own = _OwnPairs(self._log_odds(between, to_classes), same, weights, classes)

    def _log_odds(self, between: FloatArray, to_classes: FloatArray | None) -> FloatArray:
        """Log-odds at equal odds, shape (n,)."""
        scores = self.intercept_ + _columns(between, to_classes, self.scale_) @ self.coefficients_
        return np.asarray(self.offset_ + _pieces(scores, self.knots_) @ self.slopes_)

    def _probability(self, log_odds: FloatArray) -> FloatArray:
        """For the stated base rate: the prior odds of the fit, 1, become those of the rate."""
        rate = check_open_fraction("base_rate", self.base_rate)
        return np.asarray(expit(log_odds + logit(rate)), np.float64)

    def _points(self, vectors: AnyArray) -> AnyArray:
        return unit_vectors(vectors) if self.metric == "cosine" else vectors

    def _check_parameters(self) -> None:
        check_open_fraction("base_rate", self.base_rate)
        if self.metric not in ("euclidean", "cosine"):
            raise InvalidInputError(
                f"The 'metric' parameter must be 'euclidean' or 'cosine'. Got {self.metric!r} "
                "instead."
            )

    def _check_fitted(self) -> _OwnPairs:
        own: _OwnPairs | None = getattr(self, "_own", None)
        if own is None:
            raise NotFittedError(
                "This PairConfidence is not fitted yet: call fit or fit_distances."
            )
        return own

    def _fitted_cohort(self) -> Cohort:
        self._check_fitted()
        if self._cohort is None:
            raise InvalidInputError(
                "This PairConfidence was fitted on distances alone: pass squared distances to "
                "probability_of_distances, or call fit with vectors."
            )
        return self._cohort


def _pieces(scores: FloatArray, knots: FloatArray) -> FloatArray:
    """What lies of each score between knots, (n, m + 1); their sum is the score."""
    starts = np.concatenate([[-np.inf], knots])
    ends = np.concatenate([knots, [np.inf]])
    return np.clip(scores[:, None], starts, ends) - np.where(np.isinf(starts), 0.0, starts)


def _columns(between: FloatArray, to_classes: FloatArray | None, scale: float) -> FloatArray:
    """What the score is linear in: (n, 3), or (n, 2) without neighbourhoods."""
    in_scale = between / scale
    columns = [-np.log(in_scale + SMALLEST_SHARE), -in_scale]
    if to_classes is not None:
        columns.append(np.log(to_classes / scale + SMALLEST_SHARE).mean(axis=1))
    return np.column_stack(columns)


def _sq_distances(A: AnyArray, B: AnyArray, rows: IntArray) -> FloatArray:
    """Squared distances of rows of A and rows of B, shape (n,)."""
    between = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        away = A[part[:, 0]].astype(np.float64) - B[part[:, 1]]
        between[start : start + BLOCK] = np.einsum("nm,nm->n", away, away)
    return between


def _to_classes(cohort: Cohort, A: AnyArray, B: AnyArray) -> FloatArray:
    """Squared distances of both of each pair to their tenth nearest class, shape (n, 2)."""
    both = np.concatenate([A, B])
    # One is often compared with many: equal vectors are searched once.
    distinct, place = np.unique(first_of_equals(both, fingerprints(both)), return_inverse=True)
    return cohort.sq_distances(both[distinct])[place].reshape(2, -1).T


def _checked_distances(sq_distances: ArrayLike) -> FloatArray:
    between: Any = np.asarray(sq_distances)
    if between.ndim != 1 or not between.size or between.dtype.kind not in "fiu":
        raise InvalidInputError(
            "The 'sq_distances' parameter must be numbers in an array of shape (n,) with n >= 1. "
            f"Got shape {between.shape} of type {between.dtype} instead."
        )
    checked = between.astype(np.float64)
    if not (np.isfinite(checked) & (checked >= 0.0)).all():
        raise InvalidInputError(
            "The 'sq_distances' parameter must be finite and at least 0. Got others: similarities "
            "become distances as 2 - 2 * cosine."
        )
    return np.asarray(checked, np.float64)
