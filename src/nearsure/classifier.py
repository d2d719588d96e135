"""The estimator: a labelled gallery in, labels with calibrated confidence out."""

from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex, unit_vectors
from nearsure.labels import (
    classes_and_codes,
    codes_of,
    group_codes,
    restored_classes,
    stored_classes,
)
from nearsure.leave_one_out import search_leaving_one_out
from nearsure.memory import check_dense_fits
from nearsure.model_file import read_model, write_model
from nearsure.neighbors import Neighbors
from nearsure.objectives import ObjectiveName, check_objective
from nearsure.posterior import Posterior, score
from nearsure.rules import RuleName, check_rule, check_temperature
from nearsure.temperature import TemperatureFit, fit_temperature

AUTO_NEIGHBORS = 50


@dataclass(frozen=True, eq=False)
class Prediction:
    """Labels, how sure they are, and the neighbours that vouch for them.

    Parameters
    ----------
    labels : array of shape (n,)
        The most probable class of each query.
    confidence : array of shape (n,)
        Its probability, in [0, 1].
    neighbors : Neighbors
        The evidence; ``neighbors.ids`` are row numbers of the gallery.
    posterior : Posterior
        The probabilities of all classes among the neighbours; codes index ``classes_``.
    """

    labels: AnyArray
    confidence: FloatArray
    neighbors: Neighbors
    posterior: Posterior


class NEDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped base
    """Nearest-neighbour classifier with calibrated confidence.

    p(c | z) is the sum of exp(-|z - z_i|^2 / T) over the k nearest support points of class c,
    divided by the same sum over all k. The one parameter T is fitted on the support set by the
    likelihood of its own points, each leaving itself out.

    Parameters
    ----------
    n_neighbors : "auto", "all" or int, default "auto"
        k. "auto" is min(50, support points - 1): NED's weights fall so fast that more neighbours
        hardly change an answer, while fewer miss the true class of more points. "all" is the full
        sum of the paper's theorem.
    temperature : "auto" or float, default "auto"
        T, in units of a squared distance; "auto" fits it. Only rule "ned" has one.
    metric : {"euclidean", "cosine"}, default "euclidean"
        "cosine" scales every vector to unit length first: |z - z_i|^2 = 2 - 2 cos.
    rule : {"ned", "1nn", "knn", "dudani", "gou"}, default "ned"
        The paper's formula, or one of its baselines.
    objective : {"nll", "brier", "top_label"}, default "nll"
        What T minimises: see `nearsure.fit_temperature`.
    max_fit_samples : int or None, default 10,000
        T is fitted on at most this many support points, drawn at random; None takes all. Each
        still has the whole support set as neighbours.
    random_state : int, RandomState instance or None, default 0
        Seed of that draw.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels, sorted. Class codes index it.
    temperature_ : float or None
        T; None for the rules without one.
    temperature_fit_ : TemperatureFit or None
        How T was fitted: curve, standard error, missed points. None if it was given.
    n_neighbors_ : int
        k.
    fit_indices_ : array of shape (n_fit,)
        Row numbers of the support points whose leave-one-out neighbours T is fitted on.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> Z, y = load_digits(return_X_y=True)
    >>> classifier = NEDClassifier().fit(Z[:1200], y[:1200])
    >>> prediction = classifier.predict_with_confidence(Z[1200:])
    >>> float((prediction.labels == y[1200:]).mean().round(3))
    0.968
    >>> sure = prediction.confidence > 0.95
    >>> float((prediction.labels == y[1200:])[sure].mean().round(3))
    0.987
    """

    def __init__(
        self,
        n_neighbors: int | Literal["auto", "all"] = "auto",
        temperature: float | Literal["auto"] = "auto",
        *,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        rule: RuleName = "ned",
        objective: ObjectiveName = "nll",
        max_fit_samples: int | None = 10_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.temperature = temperature
        self.metric = metric
        self.rule = rule
        self.objective = objective
        self.max_fit_samples = max_fit_samples
        self.random_state = random_state

    def fit(self, Z: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Take a labelled gallery and fit the temperature on it.

        Parameters
        ----------
        Z : array of shape (n_support, n_features)
            Embeddings. Float32 and float64 are kept without a copy and must not change afterwards.
        y : array of shape (n_support,)
            Labels.
        groups : array of shape (n_support,), optional
            Points of one group (a burst, the augmentations of one image, near-duplicates) do not
            count as each other's neighbours while T is fitted.
        """
        self._check_parameters()
        vectors: AnyArray
        labels: AnyArray
        vectors, labels = validate_data(self, Z, y, dtype=_float_dtypes(Z), order="C")
        classes, codes = classes_and_codes(labels)
        own_groups = None if groups is None else group_codes(groups, len(vectors))
        index = ExactIndex(unit_vectors(vectors) if self.metric == "cosine" else vectors)
        k = self._number_of_neighbors(len(vectors))
        fit_indices = self._draw_fit_indices(len(vectors))
        own: Neighbors | None = None
        fit: TemperatureFit | None = None
        temperature: float | None = None
        if self.rule == "ned" and self.temperature != "auto":
            temperature = float(self.temperature)
        elif self.rule == "ned":
            if len(vectors) == 1:
                raise InvalidInputError(
                    "T cannot be fitted on n_samples = 1 support point. Give the temperature."
                )
            own = _leave_one_out(index, codes, fit_indices, k, own_groups)
            fit = fit_temperature(own, codes[fit_indices], objective=self.objective)
            temperature = fit.temperature
        # Nothing is assigned before everything has succeeded: a failed fit leaves the old one.
        self.classes_, self._support_codes, self._groups = classes, codes, own_groups
        self._index, self._metric, self._rule = index, self.metric, self.rule
        self.n_neighbors_, self.fit_indices_ = k, fit_indices
        self.temperature_, self.temperature_fit_ = temperature, fit
        self._leave_one_out_neighbors = own
        return self

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
        """The most probable class of each query, shape (n,)."""
        posterior = self.predict_posterior(Q)
        return self.classes_[posterior.labels]

    def predict_proba(self, Q: ArrayLike) -> FloatArray:
        """Probabilities of all classes, shape (n, n_classes), in the order of ``classes_``.

        Raises
        ------
        DenseResultTooLargeError
            If they would not fit in memory; `predict_posterior` gives them in sparse form.
        """
        queries = self._validated_queries(Q)
        check_dense_fits(len(queries), len(self.classes_))
        return self._posterior(self._search(queries)).to_csr().toarray()

    def predict_posterior(self, Q: ArrayLike) -> Posterior:
        """Probabilities of the classes among the neighbours; codes index ``classes_``."""
        return self._posterior(self.kneighbors(Q))

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
        neighbors = self.kneighbors(Q)
        posterior = self._posterior(neighbors)
        codes, probabilities = posterior.top(1)
        return Prediction(self.classes_[codes[:, 0]], probabilities[:, 0], neighbors, posterior)

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
            n_neighbors = _check_number_of_neighbors(n_neighbors, len(self._index))
        return self._search(queries, n_neighbors)

    def leave_one_out_posterior(self) -> Posterior:
        """The posterior of the support points ``fit_indices_``, each leaving itself out."""
        check_is_fitted(self, "classes_")
        if self._leave_one_out_neighbors is None:
            self._leave_one_out_neighbors = _leave_one_out(
                self._index, self._support_codes, self.fit_indices_, self.n_neighbors_, self._groups
            )
        return self._posterior(self._leave_one_out_neighbors)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier to one safetensors file, replacing it whole or not at all."""
        check_is_fitted(self, "classes_")
        write_model(path, *self._state())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a classifier that `save` wrote; its answers are the same to the last bit."""
        return cls._from_state(*read_model(path))

    def _check_parameters(self) -> None:
        check_rule(self.rule)
        check_objective(self.objective)
        if self.metric not in {"euclidean", "cosine"}:
            raise InvalidInputError(
                f"metric must be 'euclidean' or 'cosine'. Got {self.metric!r} instead."
            )
        if self.temperature != "auto":
            check_temperature(self.temperature)
            if self.rule != "ned":
                raise InvalidInputError(
                    f"temperature must be 'auto' for rule {self.rule!r}, which has none. "
                    f"Got {self.temperature!r} instead."
                )
        if self.max_fit_samples is not None and not (
            isinstance(self.max_fit_samples, Integral) and self.max_fit_samples >= 1
        ):
            raise InvalidInputError(
                f"max_fit_samples must be None or an integer >= 1. Got {self.max_fit_samples!r}."
            )

    def _number_of_neighbors(self, n_support: int) -> int:
        if isinstance(self.n_neighbors, str):
            if self.n_neighbors == "auto":
                return max(1, min(AUTO_NEIGHBORS, n_support - 1))
            if self.n_neighbors == "all":
                return n_support
        return _check_number_of_neighbors(self.n_neighbors, n_support)

    def _draw_fit_indices(self, n_support: int) -> IntArray:
        if self.max_fit_samples is None or n_support <= self.max_fit_samples:
            return np.arange(n_support)
        generator = check_random_state(self.random_state)
        return np.sort(generator.choice(n_support, self.max_fit_samples, replace=False))

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
        sq_distances, ids = self._index.search(queries, n_neighbors or self.n_neighbors_)
        return Neighbors(sq_distances, self._support_codes[ids], ids)

    def _posterior(self, neighbors: Neighbors) -> Posterior:
        return score(
            neighbors,
            rule=self._rule,
            temperature=self.temperature_,
            n_classes=len(self.classes_),
        )

    def _state(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        manifest = {
            "parameters": _storable(self.get_params()),
            "metric": self._metric,
            "rule": self._rule,
            "n_neighbors": int(self.n_neighbors_),
            "temperature": self.temperature_,
            "temperature_fit": self.temperature_fit_ and self.temperature_fit_.to_dict(),
            "classes_dtype": self.classes_.dtype.str,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        tensors = {
            "support_vectors": self._index.vectors,
            "support_codes": self._support_codes,
            "classes": stored_classes(self.classes_),
            "fit_indices": self.fit_indices_,
        }
        if self._groups is not None:
            tensors["groups"] = self._groups
        return manifest, tensors

    @classmethod
    def _from_state(cls, manifest: dict[str, Any], tensors: dict[str, AnyArray]) -> Self:
        classifier = cls(**manifest["parameters"])
        classifier.classes_ = restored_classes(tensors["classes"], manifest["classes_dtype"])
        classifier.n_features_in_ = tensors["support_vectors"].shape[1]
        if manifest["feature_names"]:
            classifier.feature_names_in_ = np.array(manifest["feature_names"], object)
        classifier.n_neighbors_ = manifest["n_neighbors"]
        classifier.temperature_ = manifest["temperature"]
        fit = manifest["temperature_fit"]
        classifier.temperature_fit_ = fit and TemperatureFit.from_dict(fit)
        classifier.fit_indices_ = tensors["fit_indices"]
        classifier._metric, classifier._rule = manifest["metric"], manifest["rule"]
        classifier._support_codes = tensors["support_codes"]
        classifier._groups = tensors.get("groups")
        classifier._index = ExactIndex(tensors["support_vectors"])
        classifier._leave_one_out_neighbors = None
        return classifier


def _float_dtypes(Z: ArrayLike) -> list[type[np.floating]]:
    """Half precision becomes single; single and double stay; everything else becomes double."""
    half = getattr(Z, "dtype", None) == np.float16
    return [np.float32] if half else [np.float64, np.float32]


def _check_number_of_neighbors(n_neighbors: object, n_support: int) -> int:
    k = n_neighbors if isinstance(n_neighbors, int | np.integer) else 0
    if isinstance(k, bool) or not 1 <= k <= n_support:
        raise InvalidInputError(
            f"n_neighbors must be 'auto', 'all' or an integer in [1, {n_support}], the number of "
            f"support points. Got {n_neighbors!r} instead."
        )
    return int(k)


def _leave_one_out(
    index: ExactIndex, codes: IntArray, points: IntArray, k: int, groups: IntArray | None
) -> Neighbors:
    return search_leaving_one_out(index, index.vectors[points], points, codes, k=k, groups=groups)


def _storable(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them; numpy's numbers become Python's."""
    seed = parameters["random_state"]
    if not (seed is None or isinstance(seed, Integral)):
        raise InvalidInputError(
            f"random_state must be an integer or None for a model to be saved. Got {seed!r}."
        )
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in parameters.items()
    }
