"""`NEDClassifier`: fit a gallery, predict, save, load."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.audit import GalleryAudit
from nearsure.bursts import (
    Bursts,
)
from nearsure.classifier.fit import DRAW_SEED, Fit, fit_gallery
from nearsure.classifier.known import (
    mix_in_unknowns,
    rehearse_gallery,
)
from nearsure.classifier.parameters import (
    CalibrationChoice,
    HeadChoice,
    Prior,
    RuleChoice,
    check_number_of_neighbors,
    check_parameters,
    float_dtypes,
    labels_for,
    plain_vectors,
    settings_for,
)
from nearsure.classifier.promises import (
    adapt_prior,
    adapt_to_unknowns,
    check_against_own,
    check_labelled,
    compare_with_own,
    describe_basis,
    fit_sets,
    fit_to_labelled,
    score_labelled,
    score_own_points,
)
from nearsure.classifier.recalibration import Recalibration, choose_rows
from nearsure.classifier.results import (
    LARGEST_SHARE_CHANGED,
    WATCHED,
    Prediction,
    Staleness,
    Support,
    check_dense_fits,
)
from nearsure.classifier.rule import (
    FittedRule,
    SelfSearch,
    class_sizes,
    draw_places,
    self_search,
)
from nearsure.classifier.state import from_state, to_state
from nearsure.decisions import (
    AcceptThreshold,
    ConformalFit,
    PredictionSets,
    ScoreName,
    UnknownClasses,
    choose_threshold,
    prediction_sets,
)
from nearsure.drift import QueryDrift
from nearsure.engines.contract import Engine, Fingerprint
from nearsure.engines.registry import ENGINES
from nearsure.errors import (
    EngineChangedWarning,
    InvalidInputError,
    LowRecallWarning,
    NearCopiesWarning,
    QueriesDifferWarning,
    StaleFitWarning,
)
from nearsure.forms import SharpenedFit
from nearsure.gallery import Gallery
from nearsure.gallery.opening import (
    check_fits,
    check_metric,
    create_gallery,
    describe_difference,
    have_same_ids,
    open_gallery,
    reopen_gallery,
    resolve_engine,
)
from nearsure.gallery.recall import Recall
from nearsure.heads.joint import HeadFit
from nearsure.index import unit_vectors
from nearsure.labels import (
    classes_and_codes,
    codes_of,
    extended_groups,
    groups_and_codes,
    label_array,
)
from nearsure.model_file import model_bytes, read_model, read_model_bytes, write_model
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, to_dense
from nearsure.shift import (
    ClassShares,
    check_enough,
    choose_for_queries,
    describe_differences,
    withdraw,
)
from nearsure.temperature import ObjectiveName, TemperatureFit
from nearsure.unknowns import Rehearsal, ShareEstimate

if TYPE_CHECKING:
    from typing import Self

# What scikit-learn's validation notes of the data before anything is fitted.
VALIDATED = ("n_features_in_", "feature_names_in_")
# Of the points that are watched: the same ones, as long as the gallery is the same.
WATCH_SEED = 0


class NEDClassifier(
    ClassifierMixin,  # type: ignore[misc]  # untyped
    BaseEstimator,  # type: ignore[misc]
):
    """Nearest-neighbour classifier with calibrated confidence.

    NED, rule "ned": p(c | z) is the sum of exp(-|z - z_i|^2 / T) over the k nearest support points
    of class c, divided by the same sum over all k. T is fitted on the support set by the
    likelihood of its own points, each left out itself. The default is NED's sharpened, adaptive
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
    head : {"auto", "means", "logistic"} or None, default "auto"
        Model of whole classes, used beside the neighbours: class means
        in one metric, or logistic regression, to which the logits of the means are added by a
        fitted weight; see `nearsure.heads`. "auto" takes the one with which own points are most
        probable, and None where neither helps. The sharpened forms alone have heads.
    prior : "support", "uniform", array or mapping, default "support"
        How frequent classes are among the queries: as in the gallery, all alike, or given, in the
        order of ``classes_`` or by label.
    unknown_share : float or None, default None
        Share of the queries, in [0, 1), that is of no class of the gallery. With it, confidence is
        p(known) p(c | known); see `nearsure.unknowns`. None takes every query for known.
    engine : {"auto", "exact", "hnsw", "ivf", "postgres", "milvus", ...} or Engine, default "auto"
        Where the points live and how they are searched. "exact" keeps them in memory and finds the
        true neighbours; "hnsw" and "ivf" are faiss's indexes for large galleries, which miss some;
        "auto" is "exact" up to 200,000 points, then "hnsw". An `Engine` is an opened gallery
        elsewhere; "postgres", "milvus", "qdrant", "chroma" and "lance" open one from the
        environment: see `open_engine`.
    max_fit_samples : int or None, default 10,000
        All is fitted on at most this many support points, drawn at random; None takes all. Each
        still has the whole support set as neighbours.
    max_effort : int or None, default None
        The fit measures how many of the true neighbours an approximate engine finds, and raises the
        engine's effort (ef of a graph, probes of lists) until it finds 99% or this effort is
        reached. None is 32 times the effort that the engine is set to, as far as it goes; 0
        measures nothing.
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
    recall_ : Recall or None
        How many of the true neighbours the engine finds, and with which effort; None where the
        search is exact, or nothing was measured.
    fit_indices_ : array of shape (n_fit,)
        Ids of the support points that all was fitted on; ids are row numbers of the gallery.
    n_support_ : int
        Points of the gallery now.
    class_counts_ : array of shape (n_classes,)
        Points of each class now.
    share_changed_ : float
        Points changed through this classifier since the fit, over the points of now.
    rule_ : FittedRule
        From neighbours to p(c | known): the rule that "auto" stands for, and its calibrator.
    prior_ : "support", "uniform" or array of shape (n_classes,)
        The prior of the fit.
    head_fit_ : HeadFit or None
        Which head is used beside the neighbours, and why; None if none was tried.
    bursts_ : Bursts or None
        The own accuracy with and without near-copies within a class, at several cuts; None where
        nothing was fitted. See `nearsure.bursts`.
    unknown_share_ : float or None
        Share of unknown queries that is expected: the parameter, or as `adapt_to_queries` has
        found it. None if every query is taken for known.
    metric_ : {"euclidean", "cosine"}
        The metric of the fit, which `refit` keeps.
    recalibrated_ : Recalibration or None
        The labelled queries that `recalibrate` was given, and what they changed; None before.
    encoder_ : str or None
        Name and version of the encoder that made the vectors, if somebody has said so by setting
        it; it is kept in the model file.

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
    Accept at confidence >= 0.924663: 92.9% of queries, at least 99% right, with 95% certainty, for
    queries like the gallery (measured 99.64% of 834).
    """

    n_neighbors_: int
    fit_indices_: AnyArray
    n_features_in_: int
    encoder_: str | None = None
    _fit: Fit

    def __init__(
        self,
        n_neighbors: int | Literal["auto", "all"] = "auto",
        temperature: float | Literal["auto"] = "auto",
        *,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        rule: RuleChoice = "auto",
        objective: ObjectiveName = "nll",
        calibration: CalibrationChoice = "auto",
        head: HeadChoice | None = "auto",
        prior: Prior = "support",
        unknown_share: float | None = None,
        engine: str | Engine = "auto",
        max_fit_samples: int | None = 10_000,
        max_effort: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.temperature = temperature
        self.metric = metric
        self.rule = rule
        self.objective = objective
        self.calibration = calibration
        self.head = head
        self.prior = prior
        self.unknown_share = unknown_share
        self.engine = engine
        self.max_fit_samples = max_fit_samples
        self.max_effort = max_effort
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | Literal["auto"] | None = None
    ) -> "Self":
        """Take a labelled gallery and fit everything on it.

        Parameters
        ----------
        X : array of shape (n_support, n_features)
            Embeddings. Float32 and float64 are kept without a copy and must not change afterwards;
            bfloat16 and half precision become float32. Tensors of torch may have a gradient.
        y : array of shape (n_support,)
            Labels: numbers, strings, or anything that sorts, such as tuples.
        groups : array of shape (n_support,) or "auto", optional
            Points of one group (a burst, the augmentations of one image, near-duplicates) do not
            count as each other's neighbours where points of the gallery are left out. "auto" makes
            groups of near-copies within a class if they carry the own accuracy, and none if not;
            all points are then searched once more.

        Warns
        -----
        NearCopiesWarning
            If near-copies carry the own accuracy, and are not left out together.
        """
        self._check_parameters()
        before = {name: getattr(self, name) for name in VALIDATED if hasattr(self, name)}
        try:
            vectors: AnyArray
            labels: AnyArray
            X, y = plain_vectors(X), label_array(y)
            vectors, labels = validate_data(self, X, y, dtype=float_dtypes(X), order="C")
            classes, codes = classes_and_codes(labels)
            names, own_groups = None, None
            auto = _is_auto(groups)
            if groups is not None and not auto:
                names, own_groups = groups_and_codes(groups, len(vectors))
            points = unit_vectors(vectors) if self.metric == "cosine" else vectors
            gallery = self._fill_gallery(points, codes, classes, own_groups)
            self._fit_on(gallery, self.metric, names, find_groups=auto)
        except BaseException:
            # A failed fit leaves the old one, and what scikit-learn noted of the new data goes.
            for name in VALIDATED:
                self.__dict__.pop(name, None)
            self.__dict__ |= before
            raise
        return self

    def fit_engine(
        self,
        y: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        groups: ArrayLike | Literal["auto"] | None = None,
    ) -> "Self":
        """Fit on the gallery that the engine holds already; its vectors stay there.

        Ids and labels are read once to count classes, and the vectors of the points that all is
        fitted on (at most ``max_fit_samples``). Each is searched in the engine and left
        out by its id. Where the engine is approximate, all vectors pass by once, in portions, to
        measure how many of the true neighbours it finds, unless there are very many of them;
        ``max_effort=0`` leaves that out.

        Parameters
        ----------
        y : array of shape (n,), optional
            Labels of the points `ids`: given if, and only if, the engine holds none.
        ids : array of shape (n,), optional
            All ids of the engine, in the order of `y` or `groups`.
        groups : array of shape (n,) or "auto", optional
            Groups of the points `ids`, or "auto"; see `fit`.
        """
        self._check_parameters()
        engine = resolve_engine(self.engine)
        check_fits(engine, engine.dimension, self.metric)
        names, own_groups = None, None
        auto = _is_auto(groups)
        if auto:
            groups = None
        own_ids = None if ids is None else np.asarray(ids)
        if (own_ids is None) != (y is None and groups is None):
            raise InvalidInputError("ids must be given with y or groups, and only then.")
        labels = None if y is None else np.asarray(label_array(y))
        if own_ids is not None and labels is not None and labels.shape != own_ids.shape:
            raise InvalidInputError(
                f"y must be one label for each of the {len(own_ids)} ids. "
                f"Got an array of shape {labels.shape} instead."
            )
        if own_ids is not None and groups is not None:
            names, own_groups = groups_and_codes(groups, len(own_ids))
        gallery = open_gallery(engine, labels, own_ids, own_groups)
        self._fit_on(gallery, self.metric, names, find_groups=auto)
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = engine.dimension
        return self

    def refit(self) -> "Self":
        """Refit everything on the gallery as it is now; only the points of the fit are searched.

        In an engine, what others have changed is seen and counted; where it holds the labels and no
        `prior` names classes, those without points are forgotten.

        Nothing is indexed again. Parameters that were changed with ``set_params`` take effect,
        except `metric`. What `adapt_to_queries` has learned about queries is kept, and the labelled
        queries of `recalibrate` are asked again: confidence and promises rest on them still.
        `fit` forgets both.
        """
        check_is_fitted(self, "classes_")
        before = self._fit
        gallery = before.gallery
        if isinstance(self.prior, str):
            gallery = gallery.without_empty_classes()
        else:
            gallery.recount()
        find_groups = before.bursts is not None and before.bursts.grouped
        if find_groups:
            gallery.forget_groups()
        names = None if find_groups else before.group_names
        kept = before, self.n_neighbors_, self.fit_indices_
        self._fit_on(gallery, before.metric, names, find_groups=find_groups)
        self._fit.adapt_like(before)
        if before.recalibration is not None:
            try:
                self._recalibrate(before.recalibration.vectors, before.recalibration.labels)
            except BaseException:
                # Without its labels the new fit would answer as if there had been none.
                self._fit, self.n_neighbors_, self.fit_indices_ = kept
                raise
        return self

    def use_engine(self, engine: Engine) -> "Self":
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
        fit = self._fit
        gallery = reopen_gallery(engine, self.classes_, self.n_features_in_, fit.metric)
        recall, head = fit.gallery.recall, fit.gallery.head
        if recall is not None and recall.fits(engine, fit.fingerprint):
            gallery.recall = recall
        if head is not None:
            same = have_same_ids(fit.gallery, gallery)
            gallery.head = head if same else head.without_points()
        self._fit = replace(
            fit,
            gallery=gallery,
            group_names=None,
            self_search=None,
            rehearsal=None,
            labelled_search=None,
            labelled_traits=None,
            mark=0,
        )
        self._warn_if_other_engine()
        return self

    @property
    def classes_(self) -> AnyArray:
        """The labels, in the order of class codes: the gallery's list, and there is no other."""
        if not hasattr(self, "_fit"):
            raise AttributeError("classes_ is there after fit.")
        return self._fit.gallery.classes

    @property
    def _fitted(self) -> Fit:
        check_is_fitted(self, "classes_")
        return self._fit

    @property
    def temperature_(self) -> float | None:
        """T; None for the rules without one."""
        return self._fitted.rule.temperature

    @property
    def temperature_fit_(self) -> TemperatureFit | None:
        """How NED's T was fitted; None if it was given, or there is none."""
        return self._fitted.rule.temperature_fit

    @property
    def sharpened_fit_(self) -> SharpenedFit | None:
        """How the sharpened form was fitted; None for other rules."""
        return self._fitted.rule.sharpened_fit

    @property
    def head_fit_(self) -> HeadFit | None:
        """Which head is used beside the neighbours, and why; None if none was tried."""
        return self._fitted.rule.head

    @property
    def engine_(self) -> Engine | None:
        """The engine that holds the points; None where they are in memory, searched exactly."""
        gallery = self._fitted.gallery
        return None if gallery.in_memory else gallery.engine

    @property
    def fingerprint_(self) -> Fingerprint:
        """Engine, index type and parameters through which everything was fitted."""
        return dict(self._fitted.fingerprint)

    @property
    def recall_(self) -> Recall | None:
        """How many of the true neighbours the engine finds; None where nothing was measured."""
        return self._fitted.gallery.recall

    @property
    def rule_(self) -> FittedRule:
        """From neighbours to p(c | known), as it was fitted."""
        return self._fitted.rule

    @property
    def prior_(self) -> Literal["support", "uniform"] | FloatArray:
        """The prior of the fit: its name, or a probability for each class."""
        return self._fitted.prior

    @property
    def bursts_(self) -> Bursts | None:
        """What near-copies within a class do to the own accuracy; None if nothing was fitted."""
        return self._fitted.bursts

    @property
    def metric_(self) -> Literal["euclidean", "cosine"]:
        """The metric of the fit."""
        return self._fitted.metric

    @property
    def recalibrated_(self) -> Recalibration | None:
        """The labelled queries that confidence and promises rest on; None if there are none."""
        return self._fitted.recalibration

    @property
    def unknown_share_(self) -> float | None:
        """Share of unknown queries that is expected; None if all are taken for known."""
        known = self._fitted.known
        return None if known is None else float(known.unknown_share)

    @property
    def n_support_(self) -> int:
        """Points of the gallery now."""
        return len(self._fitted.gallery)

    @property
    def class_counts_(self) -> IntArray:
        """Points of each class now, shape (n_classes,), in the order of ``classes_``."""
        return class_sizes(self._fitted.gallery, len(self.classes_))

    @property
    def share_changed_(self) -> float:
        """Points changed through this classifier since the fit, over the points of now."""
        return self._fitted.gallery.share_changed(self._fit.mark)

    @property
    def support_ids_(self) -> AnyArray:
        """Ids of the points of the gallery: row numbers at the fit, then counted on."""
        return self._fitted.gallery.ids

    def support_labels(self, ids: ArrayLike) -> AnyArray:
        """The labels of points of the gallery."""
        check_is_fitted(self, "classes_")
        codes = self._fit.gallery.codes_of(ids)
        return np.asarray(self.classes_[codes])

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

    def predict(self, X: ArrayLike) -> AnyArray:
        """The most probable label of each query."""
        return self._ask(self._validated_queries(X)).labels

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probabilities of all classes, shape (n, n_classes), in the order of ``classes_``.

        What the neighbours' classes leave over is shared by the others. Rows sum to 1, or to
        p(known) where unknown queries are expected.

        Raises
        ------
        DenseResultTooLargeError
            If they would not fit in memory; `predict_posterior` gives them in sparse form.
        """
        queries = self._validated_queries(X)
        check_dense_fits(len(queries), len(self.classes_))
        found = self._ask(queries)
        totals = np.ones(len(queries)) if found.p_known is None else found.p_known
        return to_dense(found.posterior, totals, self.class_counts_ > 0)

    def predict_posterior(self, X: ArrayLike) -> Posterior:
        """Probabilities of the classes among the neighbours; codes index ``classes_``."""
        return self._ask(self._validated_queries(X)).posterior

    def predict_with_confidence(self, X: ArrayLike, *, compare: bool = True) -> Prediction:
        """Labels, confidence and the neighbours as evidence, from one search.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Queries.
        compare : bool, default True
            Whether to check that the queries are like the gallery's own points. The service,
            which answers a few at a time, checks many of them together instead.

        Returns
        -------
        Prediction

        Warns
        -----
        QueriesDifferWarning
            If 30 or more queries are not like the gallery's own points, for which confidence was
            fitted; ``differences`` of the prediction says how.
        """
        queries = self._validated_queries(X)
        return self._ask(queries) if compare else self._predicted(self._search(queries))

    def kneighbors(self, X: ArrayLike, n_neighbors: int | None = None) -> Neighbors:
        """The nearest support points of each query, by squared distance.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Queries.
        n_neighbors : int, optional
            How many; by default ``n_neighbors_``.
        """
        queries = self._validated_queries(X)
        if n_neighbors is not None:
            n_neighbors = check_number_of_neighbors(n_neighbors, len(self._fit.gallery))
        return self._search(queries, n_neighbors)

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
        return self._fitted.vote_shares(neighbors)

    def support(self, prediction: Prediction) -> Support:
        """How probable answers are by the neighbours alone, and by the class as a whole alone.

        Parameters
        ----------
        prediction : Prediction
            Of this classifier.

        Returns
        -------
        Support
            Before calibration, as `vote_shares`, and without p(known).
        """
        return self._fitted.support(prediction.neighbors, prediction.posterior.labels)

    def find_differences(self, neighbors: Neighbors) -> tuple[str, ...] | None:
        """How queries differ from the gallery's own points, by their neighbours; cheap.

        Returns
        -------
        tuple of str, or None
            As ``differences`` of a `Prediction`.
        """
        return self._fitted.find_differences(neighbors)

    def predict_own(self, ids: ArrayLike | None = None) -> Prediction:
        """What points of the gallery would be taken for if they were not in it.

        Parameters
        ----------
        ids : array of shape (n,), optional
            Their ids; by default `own_ids`, whose searches are kept until the gallery changes.

        Returns
        -------
        Prediction
            As of queries: the points' own labels, `support_labels`, take no part in it.
        """
        check_is_fitted(self, "classes_")
        if ids is None:
            return self._predicted(self._self_search().neighbors)
        gallery = self._fit.gallery
        k = len(gallery) - 1 if self._fit.all_neighbors else self.n_neighbors_
        return self._predicted(gallery.leave_one_out(np.asarray(ids), k))

    def own_ids(self) -> AnyArray:
        """Ids of the points of the fit that are still there, in the order of `predict_own`."""
        return self._self_search().ids

    def own_points(
        self, ids: ArrayLike | None = None
    ) -> tuple[AnyArray, IntArray, IntArray | None]:
        """Vectors as they are compared, class codes and groups, if there are any, of points.

        Parameters
        ----------
        ids : array of shape (n,), optional
            Their ids; by default `own_ids`.
        """
        wanted = self.own_ids() if ids is None else np.asarray(ids)
        points = self._fitted.gallery.points_of(wanted)
        return points.vectors, points.codes, self._fitted.groups_of(points.ids)

    def leave_one_out_posterior(self) -> Posterior:
        """The posterior of the points ``fit_indices_`` that are still there, without themselves."""
        return self._fitted.posterior(self._self_search().neighbors)

    def accept_threshold(
        self,
        *,
        precision: float | None = None,
        error: float | None = None,
        false_accept_rate: float | None = None,
        certainty: float = 0.95,
        queries: ArrayLike | None = None,
    ) -> AcceptThreshold:
        """The confidence from which answers may be accepted without a second look.

        It is for queries like the gallery: whether those that come are, `queries` tells. After
        `recalibrate` it rests on the labelled queries alone, is for queries like them, and says so.

        It is chosen on the gallery's own points, each left out itself, with a bound for their
        finite number; see `nearsure.decisions`. A point that is left out has a fellow less than a
        query has, which makes the choice a careful one where classes are small. With
        another `prior` than the gallery's, points of each class take part in that proportion.

        Where unknown queries are expected, points whose class is left out stand for them, in the
        share that is expected and in one that is a quarter larger, with a bound for the finite
        number of classes, here and to come: the promise then holds as far as unknown classes are
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
        queries : array of shape (n, n_features), optional
            Queries as they come, without labels, 30 or more. If they differ from the gallery, own
            points that are as unsure take part instead, and the promise is adjusted, never to a
            laxer one; if none can, it is withdrawn. Where unknown queries are expected, they are
            compared with own points and points without their class, in the expected share, and
            the promise is withdrawn if they differ. After `recalibrate` they are compared with
            the labelled queries, and what rests on these is withdrawn if they differ from them.
            See `nearsure.shift`.

        Returns
        -------
        AcceptThreshold
            ``accepts(prediction)`` says which answers to act on; printed, it is a sentence. If the
            target cannot be promised, it says so and accepts nothing.
        """
        choose = partial(
            choose_threshold,
            precision=precision,
            error=error,
            false_accept_rate=false_accept_rate,
            certainty=certainty,
        )
        if self._fitted.recalibration is not None:
            plain = choose(*self.rehearsed_scores())
        else:
            confidence, correct, unknowns = self._own_scores()
            plain = choose(confidence, correct, unknowns=unknowns)
        plain = replace(plain, rests_on=describe_basis(self._fit))
        if queries is None:
            return plain
        found = self.kneighbors(queries)
        if self._fit.recalibration is not None:
            check_enough(found)
            differences = self._fit.find_differences(found)
            return withdraw(plain, differences) if differences else plain
        check = check_against_own(self._fit, self._self_search(), found)
        return choose_for_queries(plain, check, choose)

    def rehearsed_scores(self) -> tuple[FloatArray, BoolArray]:
        """Confidence of the gallery's own points, and whether their answers are right.

        What `accept_threshold` is chosen on: each point is left out; of a group, one point takes
        part, as its points are right or wrong together; where unknown queries are expected, points
        whose class is left out stand for them, in the share that is expected; with another prior,
        points of each class take part in that proportion. After `recalibrate` they are those of
        the labelled queries instead, in the gallery as it is now.

        Returns
        -------
        confidence, correct : array of shape (n,)
            Of as many points as take part.
        """
        check_is_fitted(self, "classes_")
        if self._fit.recalibration is not None:
            return score_labelled(self._fit, self._fit.recalibration, self._search)
        confidence, correct, unknowns = self._own_scores()
        if unknowns is None:
            return confidence, correct
        return mix_in_unknowns(confidence, correct, unknowns, seed=DRAW_SEED)

    def predict_set(
        self, X: ArrayLike, alpha: float = 0.1, score: ScoreName = "aps"
    ) -> PredictionSets:
        """Sets of classes that hold the true one of at least 1 - alpha of the known queries.

        They are calibrated on the gallery's own points, each left out itself. The coverage is
        near 1 - alpha, as one point more hardly changes a vote, but not guaranteed in the worst
        case. After `recalibrate` they rest on the labelled queries, and it is, for queries like
        these; 1 / alpha - 1 of them are needed, or sets rest on the gallery. `conformal_fit` says
        which. Either way classes are ranked and cut by the gallery's own confidence.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Queries.
        alpha : float, default 0.1
            Share of the queries whose set may miss the true class, in (0, 1).
        score : {"aps", "lac"}, default "aps"
            "aps" makes sets as long as the query is hard; "lac" the smallest sets on average.

        Returns
        -------
        PredictionSets
            ``sets[i]`` are the labels of query i, best first, ``sets.contains(y)`` says whose set
            holds its label, ``to_list()``, ``to_frame()`` and ``to_csr()`` are other forms.
        """
        fit, to_posterior = self._fit_sets(alpha, score)
        sets = prediction_sets(to_posterior(self.kneighbors(X, fit.n_neighbors)), fit)
        return replace(sets, classes=self.classes_)

    def conformal_fit(self, alpha: float, score: ScoreName = "aps") -> ConformalFit:
        """The score up to which classes belong to the sets of `predict_set`.

        Where so many points miss their class that nothing could be ruled out, they are searched
        four times as deep, again and again, as far as memory allows.
        """
        return self._fit_sets(alpha, score)[0]

    def _fit_sets(
        self, alpha: float, score: ScoreName
    ) -> tuple[ConformalFit, Callable[[Neighbors], Posterior]]:
        own, k = self._self_search(), self.n_neighbors_
        return fit_sets(self._fit, own, self._search, k=k, alpha=alpha, score=score)

    def adapt_to_queries(
        self, X: ArrayLike, unknown_share: float | None = None, *, seed: int = 0
    ) -> ShareEstimate | None:
        """Fit p(known) to unlabelled queries, which may be farther away than the gallery rehearsed.

        Parameters
        ----------
        X : array of shape (n, n_features)
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
        neighbors, fit = self.kneighbors(X), self._fit
        if fit.known is None:
            raise InvalidInputError(
                "p(known) was not fitted. Give unknown_share (0.1, say; this method replaces it) "
                "and fit again."
            )
        return adapt_to_unknowns(fit, fit.known, neighbors, unknown_share, seed=seed)

    def adapt_prior(self, X: ArrayLike) -> ClassShares:
        """Expect classes as often as unlabelled queries ask for them, until the next fit or refit.

        The prior changes only if class shares differ beyond chance from those expected so far, and
        queries do not lie elsewhere for another reason: without such a shift, answers stay.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Queries as they come, some hundreds or more.

        Returns
        -------
        ClassShares
            How often classes are asked for, beside the prior as it was; all ``ratios`` are 1 if it
            stays. ``prior_`` holds the new one.
        """
        if self._fitted.known is not None or self._fit.recalibration is not None:
            raise InvalidInputError(
                "The prior cannot be adapted where unknown queries are expected, or after "
                "recalibrate: both were fitted with the prior as it is. Fit without unknown_share, "
                "and call recalibrate afterwards."
            )
        return adapt_prior(self._fit, self._self_search(), self.kneighbors(X))

    def choose_queries_to_label(self, X: ArrayLike, n: int = 20, *, seed: int = 0) -> IntArray:
        """Choose queries whose labels say the most to `recalibrate` and are still a fair sample.

        They are spread evenly over confidence and predicted classes, and each query is as likely
        as any other, so that promises made from them hold for all.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)
            Queries as they come.
        n : int, default 20
            How many to choose; 100 or more to be able to promise something.
        seed : int
            Of the draws.

        Returns
        -------
        array of shape (n,)
            Rows of `X`, ascending.
        """
        prediction = self._predicted(self.kneighbors(X))
        rng = np.random.default_rng(seed)
        return choose_rows(prediction.confidence, prediction.posterior.labels, n, rng)

    def recalibrate(self, X: ArrayLike, labels: ArrayLike) -> Recalibration:
        """Fit the confidence to labelled queries, with the gallery's own fit as prior.

        20 labels show whether confidence is far off, about 100 bring it near; `accept_threshold`
        rests on these queries from now on, and no more on the gallery: their bound is exact, but
        59 of them, all right, are needed to promise 95%, and 299 to promise 99%. They must be a
        fair sample of the queries to come: drawn at random, or by `choose_queries_to_label`.

        Labels and their ranking stay what they are. Queries of an earlier call are replaced. The
        labelled queries are kept, in the model file, too, and `refit` scores them again.

        Where unknown queries are expected, labels that the gallery lacks are those of unknown
        queries: they count as wrong where promises are made, and p(known) stays as it was fitted.
        The bound is then exact but for the line of two numbers, which takes part in the order.

        Sets (`predict_set`) rest on these queries, too. What compares queries with the gallery
        (`compare_queries`, and `accept_threshold` with queries) goes by the gallery's own
        confidence. `predict_own` and a report on the gallery show its points with the confidence
        that queries are given now, which may not fit them.

        Parameters
        ----------
        X : array of shape (n, n_features)
            At least 20 queries; they must not be in the gallery.
        labels : array of shape (n,)
            Their true labels.

        Returns
        -------
        Recalibration
            What was changed, as a sentence if printed; also ``recalibrated_``.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> Z, y = load_digits(return_X_y=True)
        >>> classifier = NEDClassifier().fit(Z[:900], y[:900])
        >>> moved = np.roll(Z[900:], 1, axis=1)  # every image a pixel to the right
        >>> rows = classifier.choose_queries_to_label(moved, 100)
        >>> found = classifier.recalibrate(moved[rows], y[900:][rows])
        >>> print(found)  # doctest: +NORMALIZE_WHITESPACE
        100 labelled queries, 58.0% of them answered correctly: mean confidence 75.7% by the gallery
        alone, 63.7% now. The gallery's own calibration holds for them with probability 6.5e-06.
        """
        queries = self._validated_queries(X)
        return self._recalibrate(queries, check_labelled(self._fit, labels, len(queries)))

    def forget_labels(self) -> None:
        """Let confidence and promises rest on the gallery alone again, as before `recalibrate`."""
        self._fit = self._fitted.before_labels()

    def _recalibrate(self, queries: AnyArray, labels: AnyArray) -> Recalibration:
        """Recalibrate with queries that were checked; nothing is assigned before all is done."""
        fit, mark = self._fit, self._fit.gallery.n_changes
        neighbors = self._search(queries)
        has_own = len(fit.gallery) > 1 and fit.gallery.holds(self.fit_indices_).any()
        own = self._self_search() if has_own else None
        self._fit, found = fit_to_labelled(
            fit, own, queries, labels, neighbors=neighbors, mark=mark
        )
        return found

    def add(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> IntArray:
        """Add labelled points to the gallery; they support answers from now on.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Embeddings.
        y : array of shape (n,)
            Labels. A new class goes to the end of ``classes_``, so that codes stay what they were.
        groups : array of shape (n,), optional
            Their groups: given if, and only if, `fit` was given groups. With "auto", each new point
            has a group of its own until `refit`.
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
        X = plain_vectors(X)
        vectors: AnyArray = validate_data(
            self, X, dtype=[np.float64, np.float32], order="C", reset=False
        )
        labels = labels_for(y, len(vectors), self.classes_, self.prior)
        own_names = self._fit.group_names
        bursts = self._fit.bursts
        if groups is None and own_names is not None and bursts is not None and bursts.grouped:
            groups = len(own_names) + np.arange(len(vectors))
        names, group_codes = extended_groups(groups, len(vectors), own_names)
        gallery = self._fit.gallery
        if self._fit.metric == "cosine" and gallery.engine.metric != "cosine":
            vectors = unit_vectors(vectors)
        new_ids = gallery.add(vectors, labels, group_codes, ids)
        self._fit.group_names = names
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
        self._fit.gallery.remove(ids, allow_empty_class=allow_empty_class)
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
        labels = labels_for(y, np.size(ids), self.classes_, self.prior)
        self._fit.gallery.relabel(ids, labels, allow_empty_class=allow_empty_class)
        self._warn_if_stale()

    def recount(self, changed_ids: ArrayLike = ()) -> None:
        """Recount points and classes, after others have changed what an engine holds.

        Parameters
        ----------
        changed_ids : array of shape (n,)
            Points that count as changed since the fit from now on.
        """
        check_is_fitted(self, "classes_")
        gallery = self._fit.gallery
        given = np.asarray(changed_ids)
        changed = gallery.check_ids(np.unique(given) if given.ndim == 1 else given)
        gallery.recount()
        gallery.mark_changed(changed)

    def staleness(self) -> Staleness:
        """How far the gallery has moved from what was fitted on it, at the cost of one search.

        Raises
        ------
        InvalidInputError
            If nothing was fitted (a given temperature, or a rule without parameters).
        """
        check_is_fitted(self, "classes_")
        if self._fit.loss is None:
            raise InvalidInputError(
                f"Nothing was fitted for rule {self.rule_.name!r}, so nothing can be stale: it has "
                "no parameters, or they were given."
            )
        gallery, rng = self._fit.gallery, np.random.default_rng(WATCH_SEED)
        watched = gallery.ids_at(draw_places(len(gallery), WATCHED, rng))
        now, error_now = self._fit.watch_loss(self_search(gallery, watched, self.n_neighbors_))
        then, error_then = self._fit.loss
        return Staleness(
            self.share_changed_ + gallery.changed_elsewhere() / len(gallery),
            then,
            now,
            float(np.hypot(error_now, error_then)),
            others_may_write=not gallery.in_memory,
        )

    def audit(self, **options: float) -> GalleryAudit:
        """What looks wrong in the gallery: labels, duplicates, classes.

        All points are searched, each left out itself. Where a head is used beside the neighbours,
        labels are judged by both together.

        Parameters
        ----------
        **options
            Of `nearsure.audit.audit`: thresholds of what is reported.
        """
        return self._fitted.audit(self.n_neighbors_, options)

    def compare_queries(self, X: ArrayLike, *, seed: int = 0) -> QueryDrift:
        """Whether unlabelled queries look like the gallery's points, and what to expect of them.

        Confidence is the gallery's own here, as in `accept_threshold` with queries, even after
        `recalibrate`: what labelled queries have taught is about queries, not about its points.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Queries, some dozens or more.
        seed : int
            Of the intervals.

        Returns
        -------
        QueryDrift
            Shifts of confidence and distance with an alarm, the estimated accuracy and the range
            in which it should lie, and how far class shares differ.
        """
        found = self.kneighbors(X)
        return compare_with_own(self._fit.before_labels(), self._self_search(), found, seed=seed)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier to one safetensors file, replacing it whole or not at all.

        Missing folders are made.
        """
        check_is_fitted(self, "classes_")
        write_model(path, *to_state(self, self._fit))

    def to_bytes(self) -> bytes:
        """What `save` writes, to be kept elsewhere than in a file."""
        check_is_fitted(self, "classes_")
        return model_bytes(*to_state(self, self._fit))

    @classmethod
    def load(cls, path: str | PathLike[str], engine: str | Engine | None = None) -> "Self":
        """Read a classifier that `save` wrote; its answers are the same to the last bit.

        Parameters
        ----------
        path : path-like
            The file.
        engine : Engine or the name of one, such as "postgres", optional
            Where the points live, if they are not in the file; or another engine with the same
            points to answer from.
        """
        opened = resolve_engine(engine) if isinstance(engine, str) else engine
        return cls._from_model(*read_model(path), opened)

    @classmethod
    def _from_model(
        cls, manifest: dict[str, Any], tensors: dict[str, AnyArray], engine: Engine | None
    ) -> "Self":
        parameters, fit_ids, fit = from_state(manifest, tensors, engine)
        classifier = cls(**parameters)
        classifier._fit = fit
        classifier.n_features_in_ = manifest["n_features"]
        classifier.n_neighbors_, classifier.fit_indices_ = manifest["n_neighbors"], fit_ids
        classifier.encoder_ = manifest.get("encoder")
        if manifest["feature_names"]:
            classifier.feature_names_in_ = np.array(manifest["feature_names"], object)
        classifier._warn_if_other_engine()
        return classifier

    @classmethod
    def from_bytes(cls, content: bytes, engine: Engine | None = None) -> "Self":
        """The inverse of `to_bytes`; `engine` is as of `load`."""
        return cls._from_model(*read_model_bytes(content), engine)

    def __sklearn_clone__(self) -> "Self":
        """A clone asks the same engine: it is a place, which cannot be copied."""
        parameters = {
            name: value if name == "engine" else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        return type(self)(**parameters)

    def _check_parameters(self) -> None:
        check_parameters(self.get_params(deep=False))

    def _fill_gallery(
        self, points: AnyArray, codes: IntArray, classes: AnyArray, groups: IntArray | None
    ) -> Gallery:
        engine = resolve_engine(self.engine) if self.engine in ENGINES else self.engine
        if not isinstance(engine, str):
            check_metric(engine, self.metric)
            # All that may be wrong is found out before an engine is filled.
            settings_for(self.get_params(deep=False), np.bincount(codes), classes)
        return create_gallery(engine, points, codes, classes, groups)

    def _fit_on(
        self,
        gallery: Gallery,
        metric: Literal["euclidean", "cosine"],
        group_names: AnyArray | None,
        *,
        find_groups: bool = False,
    ) -> None:
        """Fit everything on a gallery; nothing is assigned before all has succeeded."""
        self._check_parameters()
        parameters = self.get_params(deep=False)
        fit, k, ids = fit_gallery(gallery, parameters, metric, group_names, find_groups=find_groups)
        self._fit, self.n_neighbors_, self.fit_indices_ = fit, k, ids
        recall = fit.gallery.recall
        if recall is not None and not recall.is_enough:
            more = "" if recall.effort is None else "allow a larger max_effort, "
            warnings.warn(
                f"{recall}. Answers and confidence suffer from what it misses: {more}build "
                "the index with more links or lists, or search exactly.",
                LowRecallWarning,
                stacklevel=3,
            )
        if fit.bursts is not None and fit.bursts.suspicious and not fit.bursts.grouped:
            warnings.warn(
                f"{fit.bursts} Promises may break for queries that have no copy in it: fit with "
                'groups, or with groups="auto".',
                NearCopiesWarning,
                stacklevel=3,
            )

    def _validated_queries(self, X: ArrayLike) -> AnyArray:
        check_is_fitted(self, "classes_")
        if hasattr(self, "feature_names_in_") or not _is_plain(X, self.n_features_in_):
            X = plain_vectors(X)
            X = validate_data(self, X, dtype=float_dtypes(X), order="C", reset=False)
        queries = np.asarray(X)
        return unit_vectors(queries) if self._fit.metric == "cosine" else queries

    def _search(self, queries: AnyArray, n_neighbors: int | None = None) -> Neighbors:
        # A gallery may have lost points since k was chosen, or gained some that "all" includes.
        n_points = len(self._fit.gallery)
        k = n_points if self._fit.all_neighbors else self.n_neighbors_
        self._warn_if_other_engine()
        return self._fit.gallery.search(queries, min(n_neighbors or k, n_points))

    def _ask(self, queries: AnyArray) -> Prediction:
        prediction = self._predicted(self._search(queries))
        differences = self._fit.find_differences(prediction.neighbors)
        if differences:
            others = "the gallery" if self._fit.recalibration is None else "those labelled"
            message = describe_differences(differences, others)
            warnings.warn(message, QueriesDifferWarning, stacklevel=3)
        return replace(prediction, differences=differences)

    def _predicted(self, neighbors: Neighbors) -> Prediction:
        posterior, p_known, verdicts = self._fit.calibrated(neighbors)
        codes, probabilities = posterior.top(1)
        labels = self.classes_[codes[:, 0]]
        return Prediction(labels, probabilities[:, 0], neighbors, posterior, p_known, verdicts)

    def _self_search(self) -> SelfSearch:
        """Leave-one-out neighbours of those points of the fit that are still there."""
        check_is_fitted(self, "classes_")
        own = self._fit.self_search
        if own is None or own.mark != self._fit.gallery.n_changes:
            still = self._fit.gallery.holds(self.fit_indices_)
            if len(self._fit.gallery) == 1 or not still.any():
                raise InvalidInputError(
                    "The gallery must hold two points, one of them from the last fit, to score its "
                    "own points. Call refit()."
                )
            own = self_search(self._fit.gallery, self.fit_indices_[still], self.n_neighbors_)
            self._fit.self_search = own
        return own

    def _own_scores(self) -> tuple[FloatArray, BoolArray, UnknownClasses | None]:
        own = self._self_search()
        rehearsal = None if self._fit.known is None else self._rehearsal_of(own)
        return score_own_points(self._fit, own, rehearsal)

    def _rehearsal_of(self, own: SelfSearch) -> Rehearsal:
        """The points of an own pass as known and as unknown queries, kept beside it."""
        # Others may ask at the same time: what is kept is looked at once, and replaced as one.
        kept = self._fit.rehearsal
        if kept is not None and kept[0] is own:
            return kept[1]
        sizes = self.class_counts_
        rehearsal = rehearse_gallery(
            self._fit.gallery, own, self._fit.rule, self._fit.gallery_posterior, sizes
        )
        self._fit.rehearsal = own, rehearsal
        return rehearsal

    def _warn_if_stale(self) -> None:
        if self._fit.loss is None or self._fit.warned_stale:
            return
        share = self.share_changed_
        if share > LARGEST_SHARE_CHANGED:
            self._fit.warned_stale = True
            warnings.warn(
                f"{share:.1%} of the gallery changed since the fit. Confidence may no longer be "
                "calibrated: call refit(). staleness() says how far it drifted.",
                StaleFitWarning,
                stacklevel=3,
            )

    def _warn_if_other_engine(self) -> None:
        now = self._fit.gallery.fingerprint()
        if now in (self._fit.fingerprint, self._fit.warned_of):
            return
        self._fit.warned_of = now
        differences = describe_difference(self._fit.fingerprint, now)
        warnings.warn(
            f"Neighbours are found in another way than at the fit ({differences}). Confidence may "
            "no longer be calibrated: call refit().",
            EngineChangedWarning,
            stacklevel=3,
        )


def _is_auto(groups: ArrayLike | None) -> bool:
    if isinstance(groups, str) and groups != "auto":
        raise InvalidInputError(
            f"The 'groups' parameter must be an array, \"auto\" or None. Got {groups!r} instead."
        )
    return isinstance(groups, str)


def _is_plain(X: ArrayLike, n_features: int) -> bool:
    """Whether scikit-learn would take X as it is; asking it costs more than scoring a query."""
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float32, np.float64)
        and X.flags.c_contiguous
        and X.ndim == 2  # noqa: PLR2004
        and X.shape[0] >= 1
        and X.shape[1] == n_features
        and bool(np.isfinite(X).all())
    )
