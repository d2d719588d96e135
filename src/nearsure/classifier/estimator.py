"""NEDClassifier: fit a gallery, ask it, save it."""

from functools import partial
from os import PathLike
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.calibration.filled import filled
from nearsure.classifier.chosen_gallery import (
    check_metric,
    fingerprint_of,
    loaded,
)
from nearsure.classifier.class_sizes import class_sizes, factors_of_prior, with_newcomers
from nearsure.classifier.decision_methods import DecisionMethods
from nearsure.classifier.drawn_places import drawn_places
from nearsure.classifier.engine_methods import opened_engine
from nearsure.classifier.evidence_methods import EvidenceMethods
from nearsure.classifier.fit_settings import settings_for
from nearsure.classifier.fitted_rule import fit_rule
from nearsure.classifier.gallery_methods import GalleryMethods
from nearsure.classifier.known_judge import (
    KnownJudge,
    fit_known_judge,
    rehearse_gallery,
    with_p_known,
)
from nearsure.classifier.own_pass import OwnPass, own_pass
from nearsure.classifier.parameters import (
    Prior,
    check_number_of_neighbors,
    check_parameters,
)
from nearsure.classifier.prediction import Prediction
from nearsure.classifier.stored_state import from_state, to_state
from nearsure.engine_gallery import EngineGallery
from nearsure.engines.contract import Engine
from nearsure.engines.registry import SERVERS
from nearsure.errors import InvalidInputError
from nearsure.forms import SharpenedFit
from nearsure.index import unit_vectors
from nearsure.labels import classes_and_codes, codes_of, groups_and_codes
from nearsure.memory import check_dense_fits
from nearsure.model_file import model_bytes, read_model, read_model_bytes, write_model
from nearsure.neighbors import Neighbors
from nearsure.objectives import ObjectiveName
from nearsure.posterior import Posterior
from nearsure.support_set import SupportSet
from nearsure.temperature import TemperatureFit
from nearsure.unknowns import Rehearsal, judge

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
        return loaded(engine, points, codes, classes, groups)

    def _fit_on(self, support: SupportSet | EngineGallery) -> None:
        """Fit everything on a support set; nothing is assigned before all has succeeded."""
        self._check_parameters()
        classes = support.classes
        sizes = class_sizes(support, len(classes))
        settings = settings_for(self.get_params(deep=False), sizes, classes)
        own: OwnPass | None = None
        ids = self._draw_fit_ids(support)
        if settings.needs_own_pass:
            own = own_pass(support, ids, settings.k)
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
        known: KnownJudge | None = None
        rehearsal: Rehearsal | None = None
        if self.unknown_share is not None and own is not None:
            to_posterior = partial(
                rule.posterior, n_classes=len(classes), prior_factors=settings.prior_factors
            )
            rehearsal = rehearse_gallery(support, own, rule, to_posterior, sizes)
            known = fit_known_judge(own, rehearsal, float(self.unknown_share), sizes)
        self._support = support
        self.n_neighbors_, self.fit_indices_ = settings.k, ids
        self._all_neighbors = isinstance(self.n_neighbors, str) and self.n_neighbors == "all"
        self._rule, self._known, self._prior = rule, known, settings.prior
        self._own = own
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
        return filled(posterior, totals, class_sizes(self._support, len(self.classes_)) > 0)

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

    def _posterior(self, neighbors: Neighbors, own: OwnPass | None = None) -> Posterior:
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

    def _own_pass(self) -> OwnPass:
        """The gallery of now asked about itself, at the points of the fit that are still there."""
        check_is_fitted(self, "classes_")
        own = self._own
        if own is None or own.mark != self._support.n_changes:
            still = self._support.holds(self.fit_indices_)
            if len(self._support) == 1 or not still.any():
                raise InvalidInputError(
                    "The gallery must hold two points, of which one was there at the last fit, to "
                    "be asked about itself. Call refit()."
                )
            own = own_pass(self._support, self.fit_indices_[still], self.n_neighbors_)
            self._own = own
        return own


def _float_dtypes(Z: ArrayLike) -> list[type[np.floating]]:
    """Half precision becomes single; single and double stay; everything else becomes double."""
    half = getattr(Z, "dtype", None) == np.float16
    return [np.float32] if half else [np.float64, np.float32]
