"""Queries with answers and truth, and facts about the classifier and its gallery."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.classifier import NEDClassifier
from nearsure.classifier.results import Prediction
from nearsure.comparison import ProbeScores, score_probes
from nearsure.errors import InvalidInputError
from nearsure.index import unit_vectors
from nearsure.labels import codes_of
from nearsure.neighbors import Neighbors
from nearsure.report.document import Label, plain_label
from nearsure.temperature import fit_temperature

NO_ANSWER = "(no answer)"


@dataclass(frozen=True, eq=False)
class Answered:
    """Queries of known truth, answered by a classifier.

    Parameters
    ----------
    prediction : Prediction
        The answers.
    classes : array of shape (n_classes,)
        Labels that class codes stand for.
    ids : array of shape (n,)
        What the queries are called.
    truth : array of shape (n,)
        Their true labels.
    codes : array of shape (n,)
        The class codes of these; ``n_classes`` for a class that the gallery lacks.
    """

    prediction: Prediction
    classes: AnyArray
    ids: AnyArray
    truth: AnyArray
    codes: IntArray

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def answers(self) -> IntArray:
        """Class codes of the answers; -1 for a query that found no neighbour."""
        return self.prediction.posterior.labels

    @cached_property
    def confidence(self) -> FloatArray:
        """How sure they are."""
        return self.prediction.posterior.confidence

    @cached_property
    def correct(self) -> BoolArray:
        """Whether they are right; never, for a class that the gallery lacks."""
        return np.asarray(self.answers == self.codes, np.bool_)

    @cached_property
    def known(self) -> BoolArray:
        """Whether a query is of a class that the gallery has."""
        return np.asarray(self.codes < len(self.classes), np.bool_)

    def label_of(self, code: int) -> Label:
        """The label of an answer."""
        return NO_ANSWER if code < 0 else plain_label(self.classes[code])


def one_each(name: str, values: ArrayLike, n_queries: int) -> AnyArray:
    """One value for each query, as an array."""
    array = np.asarray(values)
    if array.shape != (n_queries,):
        raise InvalidInputError(
            f"The '{name}' parameter must have one entry for each of the {n_queries} queries. "
            f"Got an array of shape {array.shape} instead."
        )
    return array


def check_truth(labels: ArrayLike, n_queries: int, classes: AnyArray) -> AnyArray:
    """True labels, one for each query and of the gallery's kind.

    Text never equals a number: a mixture would make every answer wrong without a word.
    """
    truth = one_each("labels", labels, n_queries)
    kinds = _kind(truth), _kind(classes)
    if object not in (truth.dtype, classes.dtype) and kinds[0] != kinds[1]:
        raise InvalidInputError(
            f"The 'labels' parameter must hold labels of the gallery's kind, {kinds[1]}. "
            f"Got {kinds[0]} instead."
        )
    return truth


def codes_in_gallery(truth: AnyArray, classes: AnyArray, class_sizes: IntArray) -> IntArray:
    """Class codes of true labels; ``n_classes`` for a class that has no point in the gallery.

    Parameters
    ----------
    truth : array of shape (n,)
        The labels.
    classes : array of shape (n_classes,)
        Labels of the classes.
    class_sizes : array of shape (n_classes,)
        Their points; a class may have lost its last.
    """
    codes = codes_of(truth, classes)
    has_points = np.append(class_sizes[: len(classes)] > 0, False)
    return np.where(has_points[codes], codes, len(classes))


def _kind(labels: AnyArray) -> str:
    return "numbers" if labels.dtype.kind in "biuf" else "text"


def texts_of(classifier: NEDClassifier, ids: AnyArray) -> dict[Any, str]:
    """The texts of points of a gallery by id, as far as its engine keeps them."""
    find = getattr(classifier.engine_, "texts", None)
    found: dict[Any, str] = {} if find is None else find(ids)
    return found


def engine_name(classifier: NEDClassifier) -> str:
    """Where the points are and how they are searched: "faiss exact", "postgres hnsw"."""
    fingerprint = classifier.fingerprint_
    return " ".join(str(fingerprint[part]) for part in ("engine", "index") if fingerprint.get(part))


def ned_temperature(classifier: NEDClassifier) -> float | None:
    """T of NED, whatever the rule is; None if the gallery does not determine it."""
    fit = classifier.temperature_fit_
    if fit is not None:
        return fit.temperature
    if classifier.temperature_ is not None:
        return classifier.temperature_
    try:
        own = classifier.predict_own()
        labels = classifier.support_labels(classifier.own_ids())
        return fit_temperature(own.neighbors, classifier.encode(labels)).temperature
    except InvalidInputError:
        return None


def probes_of(classifier: NEDClassifier, queries: ArrayLike | None, *, seed: int) -> ProbeScores:
    """What linear probes make of queries, fitted on the points of the classifier's fit.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted.
    queries : array of shape (n, n_features) or None
        None: the points themselves, `own_ids`, each by a probe that was fitted without it.
    seed : int
        Of the folds.
    """
    try:
        vectors, codes, groups = classifier.own_points()
    except InvalidInputError as error:
        return ProbeScores({}, (f"Probes were left out. {error}",))
    asked = None if queries is None else np.asarray(queries)
    if asked is not None and classifier.metric_ == "cosine":
        asked = unit_vectors(asked)
    return score_probes(
        vectors,
        codes,
        asked,
        seed=seed,
        n_classes=len(classifier.classes_),
        groups=groups,
    )


# Of the squared distance to the second neighbour: similarities of half-precision vectors put a
# point no nearer to itself.
NEARLY_ZERO = 0.01
# More can hardly be duplicates.
SUSPICIOUS_SHARE = 0.5


def nearly_found(neighbors: Neighbors, codes: IntArray) -> BoolArray:
    """Whether the first neighbour is of the query's class, and as good as the query itself.

    Parameters
    ----------
    neighbors : Neighbors
        Of n queries.
    codes : array of shape (n,)
        Their class codes.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> found = Neighbors([[1e-4, 0.3], [0.2, 0.3], [0.0, 0.3]], [[1, 0], [1, 0], [1, 0]])
    >>> nearly_found(found, np.array([1, 1, 0])).tolist()
    [True, False, False]
    """
    distances = neighbors.sq_distances
    # A single neighbour has nothing to be compared with, but zero.
    second = np.zeros(len(neighbors))
    if neighbors.k > 1:
        second = np.where(neighbors.counts > 1, distances[:, 1], 0.0)
    near = (distances[:, 0] <= NEARLY_ZERO * second) & (neighbors.counts > 0)
    return np.asarray(near & (neighbors.labels[:, 0] == codes), np.bool_)


def are_most(rows: BoolArray) -> bool:
    """Whether so many are hardly a coincidence."""
    return bool(rows.mean() > SUSPICIOUS_SHARE)
