"""`NEDClassifier`: fit a gallery, predict, save, load."""

import os
import sys
import warnings
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted, validate_data

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.audit import GalleryAudit, audit
from nearsure.classifier.known import (
    UnknownDetector,
    fit_unknown_detector,
    has_company,
    rehearse_gallery,
    with_p_known,
)
from nearsure.classifier.parameters import (
    Prior,
    check_number_of_neighbors,
    check_parameters,
    settings_for,
)
from nearsure.classifier.results import (
    LARGEST_SHARE_CHANGED,
    WATCHED,
    Prediction,
    Staleness,
    mean_and_error,
    own_losses,
)
from nearsure.classifier.rule import FittedRule, SelfSearch, class_sizes, fit_rule, self_search
from nearsure.classifier.state import from_state, to_state
from nearsure.decisions import (
    AcceptThreshold,
    ConformalFit,
    PredictionSets,
    ScoreName,
    choose_threshold,
    fit_conformal,
    prediction_sets,
)
from nearsure.drift import QueryDrift, compare_queries
from nearsure.engines.contract import Engine, Fingerprint
from nearsure.engines.registry import SERVERS, open_engine
from nearsure.errors import (
    DenseResultTooLargeError,
    EngineChangedWarning,
    InvalidInputError,
    StaleFitWarning,
)
from nearsure.forms import SharpenedFit
from nearsure.forms.prior import factors_of_prior, with_newcomers
from nearsure.gallery import EngineGallery
from nearsure.gallery.gallery import SupportSet
from nearsure.gallery.opening import (
    check_fits,
    check_metric,
    create_gallery,
    fingerprint_of,
    open_gallery,
    reopen_gallery,
)
from nearsure.index import unit_vectors
from nearsure.labels import (
    classes_and_codes,
    codes_of,
    extended_groups,
    extended_names,
    groups_and_codes,
    labels_like,
)
from nearsure.model_file import model_bytes, read_model, read_model_bytes, write_model
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, to_dense
from nearsure.temperature import ObjectiveName, TemperatureFit, fit_temperature
from nearsure.unknowns import Rehearsal, ShareEstimate, estimate_unknown_share, fit_shift, judge


class FittedGallery:
    """A support set with what was fitted on it; `NEDClassifier` fills it in.

    Attributes
    ----------
    _support : SupportSet or EngineGallery
        The gallery.
    _fingerprint, _warned_of : Fingerprint
        Through what it was fitted, and of which other engine was warned already.
    _rule, _prior : FittedRule, prior
        From neighbours to p(c | known).
    _known : UnknownDetector or None
        p(known); None if every query is taken for known.
    _self_search, _rehearsal : SelfSearch, pair of SelfSearch and Rehearsal, or None
        The gallery asked about itself, and as known and unknown queries; kept until it changes.
    _fit_mark, _fit_loss, _warned_stale : int, pair of float or None, bool
        The state of the gallery at the fit, and whether its age was said.
    _adapted : bool
        Whether p(known) was fitted to queries; it then survives a refit.
    _all_neighbors : bool
        Whether k is as many points as there are.
    """

    prior: Prior
    n_neighbors_: int
    fit_indices_: AnyArray
    n_features_in_: int
    metric: Literal["euclidean", "cosine"]
    _metric: Literal["euclidean", "cosine"]
    _group_names: AnyArray | None
    _support: SupportSet | EngineGallery
    _fingerprint: Fingerprint
    _warned_of: Fingerprint | None = None
    _rule: FittedRule
    _prior: Literal["support", "uniform"] | FloatArray
    _known: UnknownDetector | None
    _self_search: SelfSearch | None
    _rehearsal: tuple[SelfSearch, Rehearsal] | None
    _fit_mark: int
    _fit_loss: tuple[float, float] | None
    _warned_stale: bool
    _adapted: bool
    _all_neighbors: bool

    @property
    def classes_(self) -> AnyArray:
        """The labels, in the order of class codes: the gallery's list, and there is no other."""
        if not hasattr(self, "_support"):
            raise AttributeError("classes_ is there after fit.")
        return self._support.classes

    def kneighbors(self, Q: ArrayLike, n_neighbors: int | None = None) -> Neighbors:
        """The nearest support points of each query."""
        raise NotImplementedError

    def _predicted(self, neighbors: Neighbors) -> Prediction:
        raise NotImplementedError

    def _own_pass(self) -> SelfSearch:
        raise NotImplementedError

    def _posterior(self, neighbors: Neighbors, own: SelfSearch | None = None) -> Posterior:
        raise NotImplementedError

    def _prior_factors(self) -> FloatArray | None:
        raise NotImplementedError

    def _fit_on(self, support: SupportSet | EngineGallery) -> None:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        raise NotImplementedError


# Of the points that take part in choosing a threshold or a set.
DRAW_SEED = 0


class DecisionMethods(FittedGallery):
    """accept_threshold, predict_set; audit, compare_queries; adapt_to_queries."""

    def accept_threshold(
        self,
        *,
        precision: float | None = None,
        error: float | None = None,
        false_accept_rate: float | None = None,
        certainty: float = 0.95,
    ) -> AcceptThreshold:
        """The confidence from which answers may be accepted without a second look.

        It is chosen on the gallery's own points, each leaving itself out, with a bound for their
        finite number; see `nearsure.decisions`. A point that leaves itself out has a fellow less
        than a query has, which makes the choice a careful one where classes are small. With
        another `prior` than the gallery's, points of each class take part in that proportion.

        Where unknown queries are expected, points that leave their class out take part in their
        stead, in the share that is expected: the promise then holds as far as real unknowns are
        like these. For a promise that does not rest on the gallery, pass the confidence of
        held-out queries to `nearsure.decisions.choose_threshold`.

        Parameters
        ----------
        precision : float, optional
            At least this share of the accepted answers shall be right, in (0, 1).
        error : float, optional
            At most this share of the accepted answers may be wrong.
        false_accept_rate : float, optional
            At most this share of wrong answers and of unknown queries may be accepted. Exactly one
            of the three must be given.
        certainty : float, default 0.95
            How sure the promise shall be, in (0, 1).

        Returns
        -------
        AcceptThreshold
            ``accepts(prediction.confidence)`` says which answers to act on; printed, it is a
            sentence. If the target cannot be promised, it says so and accepts nothing.
        """
        confidence, correct = self.rehearsed_scores()
        return choose_threshold(
            confidence,
            correct,
            precision=precision,
            error=error,
            false_accept_rate=false_accept_rate,
            certainty=certainty,
        )

    def conformal_fit(self, alpha: float, score: ScoreName = "aps") -> ConformalFit:
        """The score up to which classes belong to the sets of `predict_set`."""
        own = self._own_pass()
        some = self._drawn_by_prior(own.codes)
        posterior = self._posterior(own.neighbors).take(some)
        return fit_conformal(posterior, own.codes[some], alpha=alpha, score=score)

    def predict_set(
        self, Q: ArrayLike, alpha: float = 0.1, score: ScoreName = "aps"
    ) -> PredictionSets:
        """Sets of classes that hold the true one of at least 1 - alpha of the known queries.

        They are calibrated on the gallery's own points, each leaving itself out. The coverage is
        near 1 - alpha, as one point more hardly changes a vote, but not guaranteed in the worst
        case; with held-out points and `nearsure.decisions.fit_conformal` it is.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries.
        alpha : float, default 0.1
            Share of the queries whose set may miss the true class, in (0, 1).
        score : {"aps", "lac"}, default "aps"
            "aps" makes sets as long as the query is hard; "lac" the smallest sets on average.

        Returns
        -------
        PredictionSets
            Ragged; ``classes_[sets[i]]`` are the labels of query i, ``to_csr()`` the sparse form.
        """
        fit = self.conformal_fit(alpha, score)
        return prediction_sets(self._posterior(self.kneighbors(Q)), fit)

    def audit(self, **options: float) -> GalleryAudit:
        """What the gallery's own points say against it: labels, duplicates, classes.

        All points are searched, each leaving itself out.

        Parameters
        ----------
        **options
            Of `nearsure.audit.audit`: thresholds of what is reported.
        """
        check_is_fitted(self, "classes_")
        ids, codes = self._support.ids, self._support.codes
        if len(ids) == 1:
            raise InvalidInputError("A gallery of one point has nothing to be compared with.")
        own = self._support.leave_one_out(None, self.n_neighbors_)
        temperature = self._ned_temperature(own)
        return audit(own, codes, temperature=temperature, ids=ids, **options)  # type: ignore[arg-type]

    def compare_queries(self, Q: ArrayLike, *, seed: int = 0) -> QueryDrift:
        """Whether unlabelled queries look like the gallery's points, and what to expect of them.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries, some dozens or more.
        seed : int
            Of the intervals.

        Returns
        -------
        QueryDrift
            Shifts of confidence and distance with an alarm, and the estimated accuracy.
        """
        own, found = self._own_pass(), self.kneighbors(Q)
        k = min(own.neighbors.k, found.k)
        neighbors, found = own.neighbors.first(k), found.first(k)
        return compare_queries(
            neighbors,
            self._posterior(neighbors, own),
            own.codes,
            found,
            self._posterior(found),
            seed=seed,
        )

    def adapt_to_queries(
        self, Q: ArrayLike, unknown_share: float | None = None, *, seed: int = 0
    ) -> ShareEstimate | None:
        """Fit p(known) to unlabelled queries, which may be farther away than the gallery rehearsed.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries as they come, known and unknown, some hundreds or more.
        unknown_share : float, optional
            Share of unknowns among them, in [0, 1). None estimates it, too.
        seed : int
            Of the estimate's interval.

        Returns
        -------
        ShareEstimate or None
            The estimate, which is used from now on; None if the share was given.
        """
        neighbors = self.kneighbors(Q)
        if self._known is None:
            raise InvalidInputError(
                "p(known) was not fitted. Give unknown_share (0.1, say; this method replaces it) "
                "and fit again."
            )
        self._adapted = True
        evidence = self._known.evidence(neighbors, self._posterior(neighbors))
        model = self._known.model.with_shift(novelty=0.0, drift=0.0)
        if unknown_share is not None:
            self._known = self._known.with_model(
                fit_shift(model, evidence, unknown_share), float(unknown_share)
            )
            return None
        estimate = estimate_unknown_share(model, evidence, seed=seed)
        shifted = model.with_shift(novelty=estimate.novelty, drift=estimate.drift)
        self._known = self._known.with_model(shifted, estimate.share)
        return estimate

    def _ned_temperature(self, own: Neighbors) -> float:
        """T of NED, whatever the rule is."""
        fit = self._rule.temperature_fit
        if fit is not None:
            return fit.temperature
        if self._rule.temperature is not None:
            return self._rule.temperature
        return fit_temperature(own, self._support.codes).temperature

    def rehearsed_scores(self) -> tuple[FloatArray, BoolArray]:
        """Confidence of the gallery's own points, and whether it was deserved.

        What `accept_threshold` is chosen on: each point leaves itself out; where unknown queries
        are expected, points that leave their class out play them, in the share that is expected;
        with another prior, points of each class take part in that proportion.

        Returns
        -------
        confidence, correct : array of shape (n,)
            Of as many points as take part.
        """
        # Without the factors of `nearsure.loo`, which know the true class: a promise
        # must hold, and a point that has a fellow less than a query errs on the safe side.
        own = self._own_pass()
        posterior = self._posterior(own.neighbors)
        confidence, correct = posterior.confidence, posterior.labels == own.codes
        some = self._drawn_by_prior(own.codes)
        if self._known is None:
            return confidence[some], correct[some]
        rehearsal = self._rehearsal_of(own)
        model, share = self._known.model, self._known.unknown_share
        p_known = np.zeros(len(own.codes))
        # A point whose class is gone with it plays no known query; nobody is sure of it.
        p_known[has_company(own)] = model.p_known(rehearsal.known, share)
        confidence = confidence * p_known
        unknown = rehearsal.unknown
        strangers = unknown.confidence * model.p_known(unknown, share)
        n_known, n_unknown = _in_proportion(len(some), len(strangers), share)
        rng = np.random.default_rng(DRAW_SEED)
        drawn = rng.permutation(some)[:n_known]
        others = rng.permutation(len(strangers))[:n_unknown]
        return (
            np.concatenate([confidence[drawn], strangers[others]]),
            np.concatenate([correct[drawn], np.zeros(len(others), np.bool_)]),
        )

    def _rehearsal_of(self, own: SelfSearch) -> Rehearsal:
        """The points of an own pass as known and as unknown queries, kept beside it."""
        # Others may ask at the same time: what is kept is looked at once, and replaced as one.
        kept = self._rehearsal
        if kept is not None and kept[0] is own:
            return kept[1]
        sizes = class_sizes(self._support, len(self.classes_))
        rehearsal = rehearse_gallery(self._support, own, self._rule, self._posterior, sizes)
        self._rehearsal = own, rehearsal
        return rehearsal

    def _drawn_by_prior(self, codes: IntArray) -> IntArray:
        """Which points stand for queries: all, or a draw in the proportions of another prior.

        Points are taken with a chance, each once at most, so that they stay independent draws.
        """
        factors = self._prior_factors()
        if factors is None:
            return np.arange(len(codes))
        chances = factors[codes]
        rng = np.random.default_rng(DRAW_SEED)
        return np.flatnonzero(rng.random(len(codes)) < chances / chances.max())


def _in_proportion(n_known: int, n_unknown: int, unknown_share: float) -> tuple[int, int]:
    """How many points of either kind make up the share: as many as there are."""
    wanted = round(n_known * unknown_share / (1.0 - unknown_share))
    if wanted <= n_unknown:
        return n_known, wanted
    return max(1, round(n_unknown * (1.0 - unknown_share) / unknown_share)), n_unknown


# Up to here a sample is drawn by a permutation of all points, beyond it in its own memory.
LARGEST_PERMUTATION = 10_000_000


def drawn_places(
    n_points: int, n_drawn: int, generator: np.random.RandomState | np.random.Generator
) -> IntArray:
    """Places of some points among all, ascending, each once; all if there are no more.

    Examples
    --------
    >>> drawn_places(3, 5, np.random.default_rng(0))
    array([0, 1, 2])
    """
    if n_points > LARGEST_PERMUTATION:
        seed = int(generator.permutation(2**16)[0])
        drawn = sample_without_replacement(n_points, n_drawn, random_state=seed)
    else:
        # For a RandomState this is what `choice` without replacement draws.
        drawn = generator.permutation(n_points)[:n_drawn]
    return np.sort(drawn).astype(np.int64)


class EngineMethods(FittedGallery):
    """fit_engine, use_engine; engine_, fingerprint_."""

    engine: str | Engine

    def fit_engine(
        self,
        y: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit on the gallery that the engine holds already; its vectors stay there.

        Ids and labels are read once to count classes, and the vectors of the points that all is
        fitted on (at most ``max_fit_samples``). Each is searched in the engine and leaves itself
        out by its id.

        Parameters
        ----------
        y : array of shape (n,), optional
            Labels of the points `ids`: given if, and only if, the engine holds none.
        ids : array of shape (n,), optional
            All ids of the engine, in the order of `y` or `groups`.
        groups : array of shape (n,), optional
            Groups of the points `ids`; see `fit`.
        """
        self._check_parameters()
        engine = opened_engine(self.engine)
        check_fits(engine, engine.dimension, self.metric)
        names, own_groups = None, None
        own_ids = None if ids is None else np.asarray(ids)
        if (own_ids is None) != (y is None and groups is None):
            raise InvalidInputError("ids must be given with y or groups, and only then.")
        labels = None if y is None else np.asarray(y)
        if own_ids is not None and labels is not None and labels.shape != own_ids.shape:
            raise InvalidInputError(
                f"y must be one label for each of the {len(own_ids)} ids. "
                f"Got an array of shape {labels.shape} instead."
            )
        if own_ids is not None and groups is not None:
            names, own_groups = groups_and_codes(groups, len(own_ids))
        self._fit_on(open_gallery(engine, labels, own_ids, own_groups))
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = engine.dimension
        self._adapted = False
        self._metric, self._group_names = self.metric, names
        return self

    def use_engine(self, engine: Engine) -> Self:
        """Answer from another engine with the same points, such as a faster copy on a server.

        What was fitted stays; groups, and what is known of changes since the fit, do not. If
        neighbours are found in another way now, confidence may be less well calibrated: `refit`
        fits it through the new engine.

        Parameters
        ----------
        engine : Engine
            Holds vectors of the same length, and labels.

        Warns
        -----
        EngineChangedWarning
            If engine, index type or parameters are others than those of the fit.
        """
        check_is_fitted(self, "classes_")
        self._support = reopen_gallery(engine, self.classes_, self.n_features_in_, self._metric)
        self._group_names, self._self_search, self._rehearsal = None, None, None
        self._fit_mark = 0
        self._warn_if_other_engine()
        return self

    @property
    def fingerprint_(self) -> Fingerprint:
        """Engine, index type and parameters through which everything was fitted."""
        check_is_fitted(self, "classes_")
        return dict(self._fingerprint)

    @property
    def engine_(self) -> Engine | None:
        """The engine that holds the points; None where they are in memory, searched exactly."""
        check_is_fitted(self, "classes_")
        return self._support.engine if isinstance(self._support, EngineGallery) else None

    def _warn_if_other_engine(self) -> None:
        now = fingerprint_of(self._support)
        if now in (self._fingerprint, self._warned_of):
            return
        self._warned_of = now
        changed = sorted(
            name
            for name in {*now, *self._fingerprint}
            if now.get(name) != self._fingerprint.get(name)
        )
        differences = ", ".join(
            f"{name} {self._fingerprint.get(name)!r} -> {now.get(name)!r}" for name in changed
        )
        warnings.warn(
            f"Neighbours are found in another way than at the fit ({differences}). Confidence may "
            "no longer be calibrated: call refit().",
            EngineChangedWarning,
            stacklevel=3,
        )


def opened_engine(engine: str | Engine) -> Engine:
    """An engine as it is, or the one that the environment names."""
    if not isinstance(engine, str):
        return engine
    if engine in SERVERS:
        return open_engine(engine)
    raise InvalidInputError(
        "engine must be an engine that holds points, 'postgres' or 'milvus'. Got the name of an "
        "index in memory, which fit(Z, y) fills, or an address, which open_engine opens."
    )


class EvidenceMethods(FittedGallery):
    """leave_one_out_posterior, predict_own, own_ids, vote_shares."""

    def leave_one_out_posterior(self) -> Posterior:
        """The posterior of the points ``fit_indices_`` that are still there, without themselves."""
        return self._posterior(self._own_pass().neighbors)

    def predict_own(self, ids: ArrayLike | None = None) -> Prediction:
        """What points of the gallery would be taken for if they were not in it.

        Parameters
        ----------
        ids : array of shape (n,), optional
            Their ids; by default `own_ids`, whose searches are kept until the gallery changes.

        Returns
        -------
        Prediction
            As of queries: nothing in it knows the points' own labels, `support_labels`.
        """
        check_is_fitted(self, "classes_")
        if ids is None:
            return self._predicted(self._own_pass().neighbors)
        if len(self._support) == 1:
            raise InvalidInputError("A gallery of one point has nothing to be compared with.")
        k = len(self._support) - 1 if self._all_neighbors else self.n_neighbors_
        return self._predicted(
            self._support.leave_one_out(np.asarray(ids), min(k, len(self._support) - 1))
        )

    def own_ids(self) -> AnyArray:
        """Ids of the points of the fit that are still there, in the order of `predict_own`."""
        return self._own_pass().ids

    def vote_shares(self, neighbors: Neighbors) -> FloatArray:
        """What each neighbour contributes to an answer, before calibration.

        Parameters
        ----------
        neighbors : Neighbors
            Of a prediction.

        Returns
        -------
        array of shape (n, k)
            In [0, 1]; rows sum to 1. Neighbours of one class sum to its probability.
        """
        check_is_fitted(self, "classes_")
        return self._rule.vote_shares(
            neighbors,
            class_sizes=class_sizes(self._support, len(self.classes_)),
            prior_factors=self._prior_factors(),
        )


# Of the points that are watched: the same ones, as long as the gallery is the same.
WATCH_SEED = 0


class GalleryMethods(EngineMethods):
    """add, remove, relabel; staleness, refit."""

    @property
    def support_ids_(self) -> AnyArray:
        """Ids of the points of the gallery: row numbers at the fit, then counted on."""
        check_is_fitted(self, "classes_")
        return self._support.ids

    def support_labels(self, ids: ArrayLike) -> AnyArray:
        """The labels of points of the gallery."""
        check_is_fitted(self, "classes_")
        codes = self._support.codes_of(ids)
        return np.asarray(self.classes_[codes])

    def add(
        self,
        Z: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> IntArray:
        """Add labelled points to the gallery; they vouch for queries from now on.

        Parameters
        ----------
        Z : array of shape (n, n_features)
            Embeddings.
        y : array of shape (n,)
            Labels. A new class goes to the end of ``classes_``, so that codes stay what they were.
        groups : array of shape (n,), optional
            Their groups: given if, and only if, `fit` was given groups.
        ids : array of shape (n,), optional
            Ids that no point has; by default they count on.

        Returns
        -------
        array of shape (n,)
            The ids of the new points.

        Warns
        -----
        StaleFitWarning
            Once, when more than a tenth of the gallery has changed since the fit.
        """
        check_is_fitted(self, "classes_")
        vectors: AnyArray = validate_data(
            self, Z, dtype=[np.float64, np.float32], order="C", reset=False
        )
        labels = self._checked_labels(y, len(vectors))
        names, group_codes = extended_groups(groups, len(vectors), self._group_names)
        if self._metric == "cosine":
            vectors = unit_vectors(vectors)
        support = self._support
        if isinstance(support, EngineGallery):
            new_ids = support.add(vectors, labels, group_codes, ids)
        else:
            classes, codes = extended_names(labels, support.classes)
            new_ids = support.add(vectors, codes, group_codes, ids)
            support.classes = classes
        self._group_names = names
        self._warn_if_stale()
        return new_ids

    def remove(self, ids: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Remove points of the gallery.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids. At least one point must be left.
        allow_empty_class : bool, default False
            Whether a class may lose its last point; it stays in ``classes_``, but no answer has it.
        """
        check_is_fitted(self, "classes_")
        self._support.remove(ids, allow_empty_class=allow_empty_class)
        self._warn_if_stale()

    def relabel(self, ids: ArrayLike, y: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Give points of the gallery other labels.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids.
        y : array of shape (n,)
            Their new labels, of old or new classes.
        allow_empty_class : bool, default False
            Whether a class may lose its last point.
        """
        check_is_fitted(self, "classes_")
        labels, support = self._checked_labels(y, np.size(ids)), self._support
        if isinstance(support, EngineGallery):
            support.relabel(ids, labels, allow_empty_class=allow_empty_class)
        else:
            classes, codes = extended_names(labels, support.classes)
            support.relabel(ids, codes, allow_empty_class=allow_empty_class)
            support.classes = classes
        self._warn_if_stale()

    def staleness(self) -> Staleness:
        """How far the gallery has moved from what was fitted on it, at the cost of one search.

        Raises
        ------
        InvalidInputError
            If nothing was fitted (a given temperature, or a rule without parameters).
        """
        check_is_fitted(self, "classes_")
        if self._fit_loss is None:
            raise InvalidInputError(
                f"Nothing was fitted for rule {self._rule.name!r}, so nothing can be stale: it has "
                "no parameters, or they were given."
            )
        rng = np.random.default_rng(WATCH_SEED)
        watched = self._support.ids_at(drawn_places(len(self._support), WATCHED, rng))
        now, error_now = self._watched_loss(self_search(self._support, watched, self.n_neighbors_))
        then, error_then = self._fit_loss
        share = self._share_changed()
        shared = isinstance(self._support, EngineGallery)
        if isinstance(self._support, EngineGallery):
            share += self._support.changed_elsewhere() / len(self._support)
        return Staleness(
            share,
            then,
            now,
            float(np.hypot(error_now, error_then)),
            others_may_write=shared,
        )

    def refit(self) -> Self:
        """Fit everything anew on the gallery as it is now; only the points of the fit are searched.

        In an engine, what others have changed is seen and counted; where it holds the labels and no
        `prior` names classes, those without points are forgotten.

        Nothing is indexed again. Parameters that were changed with ``set_params`` take effect,
        except `metric`. What `adapt_to_queries` has learned about queries is kept.
        """
        check_is_fitted(self, "classes_")
        before, support = self._known, self._support
        if isinstance(support, EngineGallery):
            if isinstance(self.prior, str):
                support = support.without_empty_classes()
            else:
                support.recount()
        self._fit_on(support)
        if self._adapted and before is not None and self._known is not None:
            shift = before.model
            model = self._known.model.with_shift(novelty=shift.novelty, drift=shift.drift)
            self._known = self._known.with_model(model, before.unknown_share)
        return self

    def _watched_loss(self, own: SelfSearch) -> tuple[float, float]:
        """Mean leave-one-out loss of some points, and its standard error."""
        some = own.take(slice(None, None, -(-len(own.ids) // WATCHED)))
        return mean_and_error(own_losses(self._posterior(some.neighbors), some.codes))

    def _share_changed(self) -> float:
        return self._support.share_changed(self._fit_mark)

    def _checked_labels(self, y: ArrayLike, n_points: int) -> AnyArray:
        """Labels of old and new classes; new ones only where no prior was given by class."""
        classes = self.classes_
        labels = labels_like(y, n_points, classes)
        if isinstance(self._prior, str):
            return labels
        new = labels[codes_of(labels, classes) == len(classes)]
        if new.size:
            raise InvalidInputError(
                f"prior was given for {len(classes)} classes and misses "
                f"{np.unique(new).tolist()[:5]}. Fit again with a prior for all of them."
            )
        return labels

    def _warn_if_stale(self) -> None:
        if self._fit_loss is None or self._warned_stale:
            return
        share = self._share_changed()
        if share > LARGEST_SHARE_CHANGED:
            self._warned_stale = True
            warnings.warn(
                f"{share:.1%} of the gallery changed since the fit. Confidence may no longer be "
                "calibrated: call refit(). staleness() says how far it drifted.",
                StaleFitWarning,
                stacklevel=3,
            )


def available_bytes() -> int:
    """Memory that can still be had without swapping, as far as the system tells."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize  # a system that does not tell: leave it to the allocation to fail


def check_dense_fits(n_queries: int, n_classes: int) -> None:
    """Raise an error if a float64 matrix of this shape would not fit in memory."""
    needed, available = 8 * n_queries * n_classes, available_bytes()
    if needed > available:
        raise DenseResultTooLargeError(
            f"Probabilities of {n_queries} queries over {n_classes} classes would take "
            f"{needed / 2**30:.1f} GiB as a dense array, and {available / 2**30:.1f} GiB are "
            "available. predict_posterior gives the same probabilities in sparse form."
        )


# What scikit-learn's validation notes of the data before anything is fitted.
VALIDATED = ("n_features_in_", "feature_names_in_")


class NEDClassifier(
    GalleryMethods,
    DecisionMethods,
    EvidenceMethods,
    ClassifierMixin,  # type: ignore[misc]  # untyped
    BaseEstimator,  # type: ignore[misc]
):
    """Nearest-neighbour classifier with calibrated confidence.

    NED, rule "ned": p(c | z) is the sum of exp(-|z - z_i|^2 / T) over the k nearest support points
    of class c, divided by the same sum over all k. T is fitted on the support set by the
    likelihood of its own points, each leaving itself out. The default is NED's sharpened, adaptive
    form (`nearsure.forms`), with two more parameters fitted by the same likelihood, and its
    confidence calibrated on the same points.

    Parameters
    ----------
    n_neighbors : "auto", "all" or int, default "auto"
        k. "auto" is min(50, support points - 1): weights fall so fast that more neighbours hardly
        change an answer, while fewer miss the true class of more points. "all" is the full sum of
        the paper's theorem.
    temperature : "auto" or float, default "auto"
        T of rule "ned", in units of a squared distance; "auto" fits it.
    metric : {"euclidean", "cosine"}, default "euclidean"
        "cosine" scales every vector to unit length first: |z - z_i|^2 = 2 - 2 cos.
    rule : {"auto", "adaptive", "sharpened", "ned", "gou", "dudani", "knn", "1nn"}, default "auto"
        "ned" is the paper's formula; "sharpened" fits a sharpness besides T, "adaptive" a query's
        own scale, too; the others are the paper's baselines. "auto" is "adaptive", or "ned" if a
        temperature or another objective is given.
    objective : {"nll", "brier", "top_label"}, default "nll"
        What T of "ned" minimises: see `nearsure.fit_temperature`.
    calibration : {"auto", "none", "shrunk", "platt", "beta", "isotonic", "histogram", "bbq"}
        What is done to the confidence afterwards, fitted on leave-one-out scores: see
        `nearsure.calibration`. "auto" is "shrunk" for the sharpened forms, "none" for the others.
    prior : "support", "uniform", array or mapping, default "support"
        How frequent classes are among the queries: as in the gallery, all alike, or given, in the
        order of ``classes_`` or by label.
    unknown_share : float or None, default None
        Share of the queries, in [0, 1), that is of no class of the gallery. With it, confidence is
        p(known) p(c | known); see `nearsure.unknowns`. None takes every query for known.
    engine : {"auto", "exact", "hnsw", "ivf", "postgres", "milvus"} or Engine, default "auto"
        Where the points live and how they are searched. "exact" keeps them in memory and finds the
        true neighbours; "hnsw" and "ivf" are faiss's indexes for large galleries, which miss some;
        "auto" is "exact" up to 200,000 points, then "hnsw". An `Engine` is an opened gallery
        elsewhere; "postgres" and "milvus" open one from the environment: see `open_engine`.
    max_fit_samples : int or None, default 10,000
        All is fitted on at most this many support points, drawn at random; None takes all. Each
        still has the whole support set as neighbours.
    random_state : int, RandomState instance or None, default 0
        Seed of that draw.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels. Class codes index it. Sorted, but for classes that were added later.
    temperature_ : float or None
        T; None for the rules without one.
    temperature_fit_ : TemperatureFit or None
        How NED's T was fitted: curve, standard error, missed points. None if it was given.
    sharpened_fit_ : SharpenedFit or None
        How the sharpened form was fitted.
    n_neighbors_ : int
        k.
    engine_ : Engine or None
        The engine that holds the points; None where they are in memory, searched exactly.
    fingerprint_ : dict
        Engine, index type and parameters through which everything was fitted.
    fit_indices_ : array of shape (n_fit,)
        Ids of the support points that all was fitted on; ids are row numbers of the gallery.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> Z, y = load_digits(return_X_y=True)
    >>> Z, Q, y, truth = train_test_split(Z, y, test_size=0.5, random_state=0, stratify=y)
    >>> classifier = NEDClassifier().fit(Z, y)
    >>> prediction = classifier.predict_with_confidence(Q)
    >>> float((prediction.labels == truth).mean().round(3))
    0.991
    >>> print(classifier.accept_threshold(precision=0.99))  # doctest: +NORMALIZE_WHITESPACE
    Accept at confidence >= 0.924663: 92.9% of queries, at least 99% right, with 95% certainty
    (measured 99.64% of 834).
    """

    def __init__(
        self,
        n_neighbors: int | Literal["auto", "all"] = "auto",
        temperature: float | Literal["auto"] = "auto",
        *,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        rule: str = "auto",
        objective: ObjectiveName = "nll",
        calibration: str = "auto",
        prior: Prior = "support",
        unknown_share: float | None = None,
        engine: str | Engine = "auto",
        max_fit_samples: int | None = 10_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.temperature = temperature
        self.metric = metric
        self.rule = rule
        self.objective = objective
        self.calibration = calibration
        self.prior = prior
        self.unknown_share = unknown_share
        self.engine = engine
        self.max_fit_samples = max_fit_samples
        self.random_state = random_state

    def fit(self, Z: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Take a labelled gallery and fit everything on it.

        Parameters
        ----------
        Z : array of shape (n_support, n_features)
            Embeddings. Float32 and float64 are kept without a copy and must not change afterwards.
        y : array of shape (n_support,)
            Labels.
        groups : array of shape (n_support,), optional
            Points of one group (a burst, the augmentations of one image, near-duplicates) do not
            count as each other's neighbours while the gallery is asked about itself.
        """
        self._check_parameters()
        before = {name: getattr(self, name) for name in VALIDATED if hasattr(self, name)}
        try:
            vectors: AnyArray
            labels: AnyArray
            vectors, labels = validate_data(self, Z, y, dtype=_float_dtypes(Z), order="C")
            classes, codes = classes_and_codes(labels)
            names, own_groups = None, None
            if groups is not None:
                names, own_groups = groups_and_codes(groups, len(vectors))
            points = unit_vectors(vectors) if self.metric == "cosine" else vectors
            self._fit_on(self._filled_gallery(points, codes, classes, own_groups))
            self._adapted = False
        except BaseException:
            # A failed fit leaves the old one, and what scikit-learn noted of the new data goes.
            for name in VALIDATED:
                self.__dict__.pop(name, None)
            self.__dict__ |= before
            raise
        self._metric, self._group_names = self.metric, names
        return self

    def _filled_gallery(
        self, points: AnyArray, codes: IntArray, classes: AnyArray, groups: IntArray | None
    ) -> SupportSet | EngineGallery:
        engine = opened_engine(self.engine) if self.engine in SERVERS else self.engine
        if not isinstance(engine, str):
            check_metric(engine, self.metric)
            # All that may be wrong is found out before an engine is filled.
            settings_for(self.get_params(deep=False), np.bincount(codes), classes)
        return create_gallery(engine, points, codes, classes, groups)

    def _fit_on(self, support: SupportSet | EngineGallery) -> None:
        """Fit everything on a support set; nothing is assigned before all has succeeded."""
        self._check_parameters()
        classes = support.classes
        sizes = class_sizes(support, len(classes))
        settings = settings_for(self.get_params(deep=False), sizes, classes)
        own: SelfSearch | None = None
        ids = self._draw_fit_ids(support)
        if settings.needs_own_pass:
            own = self_search(support, ids, settings.k)
            if len(support.classes) > len(classes):
                # Somebody has added a class meanwhile.
                self._fit_on(support)
                return
        rule = fit_rule(
            settings.rule,
            own,
            temperature=settings.temperature,
            objective=self.objective,
            calibration=settings.calibration,
            class_sizes=sizes,
            prior_factors=settings.prior_factors,
        )
        known: UnknownDetector | None = None
        rehearsal: Rehearsal | None = None
        if self.unknown_share is not None and own is not None:
            to_posterior = partial(
                rule.posterior, n_classes=len(classes), prior_factors=settings.prior_factors
            )
            rehearsal = rehearse_gallery(support, own, rule, to_posterior, sizes)
            known = fit_unknown_detector(own, rehearsal, float(self.unknown_share), sizes)
        self._support = support
        self.n_neighbors_, self.fit_indices_ = settings.k, ids
        self._all_neighbors = isinstance(self.n_neighbors, str) and self.n_neighbors == "all"
        self._rule, self._known, self._prior = rule, known, settings.prior
        self._self_search = own
        self._rehearsal = None if own is None or rehearsal is None else (own, rehearsal)
        self._fingerprint, self._warned_of = fingerprint_of(support), None
        self._fit_mark, self._warned_stale = support.n_changes, False
        self._fit_loss = self._watched_loss(own) if own is not None else None

    @property
    def temperature_(self) -> float | None:
        """T; None for the rules without one."""
        check_is_fitted(self, "classes_")
        return self._rule.temperature

    @property
    def temperature_fit_(self) -> TemperatureFit | None:
        """How NED's T was fitted; None if it was given, or there is none."""
        check_is_fitted(self, "classes_")
        return self._rule.temperature_fit

    @property
    def sharpened_fit_(self) -> SharpenedFit | None:
        """How the sharpened form was fitted; None for other rules."""
        check_is_fitted(self, "classes_")
        return self._rule.sharpened_fit

    def encode(self, labels: ArrayLike) -> IntArray:
        """Class codes of labels, as `Posterior` and the metrics of a posterior have them.

        Parameters
        ----------
        labels : array of shape (n,)
            Labels; one that the support set never saw gets the code ``len(classes_)``, which no
            prediction has.

        Examples
        --------
        >>> classifier = NEDClassifier(temperature=1.0).fit([[0.0], [1.0]], ["cat", "dog"])
        >>> classifier.encode(["dog", "cat", "emu"])
        array([1, 0, 2])
        """
        check_is_fitted(self, "classes_")
        return codes_of(labels, self.classes_)

    def predict(self, Q: ArrayLike) -> AnyArray:
        """The most probable label of each query."""
        return self.predict_with_confidence(Q).labels

    def predict_proba(self, Q: ArrayLike) -> FloatArray:
        """Probabilities of all classes, shape (n, n_classes), in the order of ``classes_``.

        What the neighbours' classes leave over is shared by the others. Rows sum to 1, or to
        p(known) where unknown queries are expected.

        Raises
        ------
        DenseResultTooLargeError
            If they would not fit in memory; `predict_posterior` gives them in sparse form.
        """
        queries = self._validated_queries(Q)
        check_dense_fits(len(queries), len(self.classes_))
        posterior, p_known, _ = self._judged(self._search(queries))
        totals = np.ones(len(queries)) if p_known is None else p_known
        return to_dense(posterior, totals, class_sizes(self._support, len(self.classes_)) > 0)

    def predict_posterior(self, Q: ArrayLike) -> Posterior:
        """Probabilities of the classes among the neighbours; codes index ``classes_``."""
        return self._judged(self.kneighbors(Q))[0]

    def predict_with_confidence(self, Q: ArrayLike) -> Prediction:
        """Labels, confidence and the neighbours as evidence, from one search.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries.

        Returns
        -------
        Prediction
        """
        return self._predicted(self.kneighbors(Q))

    def _predicted(self, neighbors: Neighbors) -> Prediction:
        posterior, p_known, verdicts = self._judged(neighbors)
        codes, probabilities = posterior.top(1)
        labels = self.classes_[codes[:, 0]]
        return Prediction(labels, probabilities[:, 0], neighbors, posterior, p_known, verdicts)

    def kneighbors(self, Q: ArrayLike, n_neighbors: int | None = None) -> Neighbors:
        """The nearest support points of each query, by squared distance.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries.
        n_neighbors : int, optional
            How many; by default ``n_neighbors_``.
        """
        queries = self._validated_queries(Q)
        if n_neighbors is not None:
            n_neighbors = check_number_of_neighbors(n_neighbors, len(self._support))
        return self._search(queries, n_neighbors)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier to one safetensors file, replacing it whole or not at all."""
        check_is_fitted(self, "classes_")
        write_model(path, *to_state(self))

    def to_bytes(self) -> bytes:
        """What `save` writes, to be kept elsewhere than in a file."""
        check_is_fitted(self, "classes_")
        return model_bytes(*to_state(self))

    @classmethod
    def from_bytes(cls, content: bytes, engine: Engine | None = None) -> Self:
        """The inverse of `to_bytes`; `engine` is as of `load`."""
        return from_state(cls, *read_model_bytes(content), engine)

    @classmethod
    def load(cls, path: str | PathLike[str], engine: str | Engine | None = None) -> Self:
        """Read a classifier that `save` wrote; its answers are the same to the last bit.

        Parameters
        ----------
        path : path-like
            The file.
        engine : Engine, "postgres" or "milvus", optional
            Where the points live, if they are not in the file; or another engine with the same
            points to answer from.
        """
        opened = opened_engine(engine) if isinstance(engine, str) else engine
        return from_state(cls, *read_model(path), opened)

    def __sklearn_clone__(self) -> Self:
        """A clone asks the same engine: it is a place, which cannot be copied."""
        parameters = {
            name: value if name == "engine" else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        return type(self)(**parameters)

    def _check_parameters(self) -> None:
        check_parameters(self.get_params(deep=False))

    def _draw_fit_ids(self, support: SupportSet | EngineGallery) -> AnyArray:
        n_points = len(support)
        if self.max_fit_samples is None or n_points <= self.max_fit_samples:
            return support.ids_at(np.arange(n_points))
        generator = check_random_state(self.random_state)
        return support.ids_at(drawn_places(n_points, self.max_fit_samples, generator))

    def _validated_queries(self, Q: ArrayLike) -> AnyArray:
        check_is_fitted(self, "classes_")
        if not self._is_acceptable(Q):
            Q = validate_data(self, Q, dtype=_float_dtypes(Q), order="C", reset=False)
        queries = np.asarray(Q)
        return unit_vectors(queries) if self._metric == "cosine" else queries

    def _is_acceptable(self, Q: ArrayLike) -> bool:
        """Whether scikit-learn would take Q as it is; asking it costs more than scoring a query."""
        return (
            type(Q) is np.ndarray
            and Q.dtype in (np.float32, np.float64)
            and Q.flags.c_contiguous
            and Q.ndim == 2  # noqa: PLR2004
            and Q.shape[0] >= 1
            and Q.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(Q).all())
        )

    def _search(self, queries: AnyArray, n_neighbors: int | None = None) -> Neighbors:
        # A gallery may have lost points since k was chosen, or gained some that "all" includes.
        k = len(self._support) if self._all_neighbors else self.n_neighbors_
        if isinstance(self._support, SupportSet):
            return self._support.search(queries, min(n_neighbors or k, len(self._support)))
        self._warn_if_other_engine()
        return self._support.search(queries, min(n_neighbors or k, len(self._support)))

    def _posterior(self, neighbors: Neighbors, own: SelfSearch | None = None) -> Posterior:
        """p(c | known)."""
        sizes = class_sizes(self._support, len(self.classes_))
        return self._rule.posterior(
            neighbors,
            n_classes=len(sizes),
            class_sizes=sizes,
            prior_factors=self._prior_factors(),
            own=own,
        )

    def _prior_factors(self) -> FloatArray | None:
        sizes = class_sizes(self._support, len(self.classes_))
        return factors_of_prior(with_newcomers(self._prior, len(sizes)), sizes)

    def _judged(
        self, neighbors: Neighbors
    ) -> tuple[Posterior, FloatArray | None, NDArray[np.str_] | None]:
        """p(c); p(known) and verdicts, if unknown queries are expected."""
        within = self._posterior(neighbors)
        if self._known is None:
            return within, None, None
        p_known = self._known.p_known(neighbors, within)
        return with_p_known(within, p_known), p_known, judge(p_known, within).names

    def _own_pass(self) -> SelfSearch:
        """The gallery of now asked about itself, at the points of the fit that are still there."""
        check_is_fitted(self, "classes_")
        own = self._self_search
        if own is None or own.mark != self._support.n_changes:
            still = self._support.holds(self.fit_indices_)
            if len(self._support) == 1 or not still.any():
                raise InvalidInputError(
                    "The gallery must hold two points, of which one was there at the last fit, to "
                    "be asked about itself. Call refit()."
                )
            own = self_search(self._support, self.fit_indices_[still], self.n_neighbors_)
            self._self_search = own
        return own


def _float_dtypes(Z: ArrayLike) -> list[type[np.floating]]:
    """Half precision becomes single; single and double stay; everything else becomes double."""
    half = getattr(Z, "dtype", None) == np.float16
    return [np.float32] if half else [np.float64, np.float32]
