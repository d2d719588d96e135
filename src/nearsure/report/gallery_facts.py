"""What a report says of a classifier and its gallery; the one file that looks inside of it."""

from nearsure.arrays import IntArray
from nearsure.classifier import NEDClassifier
from nearsure.classifier.class_sizes import class_sizes
from nearsure.errors import InvalidInputError
from nearsure.temperature import fit_temperature


def gallery_size(classifier: NEDClassifier) -> int:
    """Points of the gallery; an engine's ids are not read for it."""
    return len(classifier._support)  # noqa: SLF001


def members_of_classes(classifier: NEDClassifier) -> IntArray:
    """Points of each class, in the order of ``classes_``."""
    return class_sizes(classifier._support, len(classifier.classes_))  # noqa: SLF001


def expected_unknowns(classifier: NEDClassifier) -> float | None:
    """Share of unknown queries that is reckoned with, which may have been learned from queries."""
    known = classifier._known  # noqa: SLF001
    return None if known is None else float(known.unknown_share)


def has_another_prior(classifier: NEDClassifier) -> bool:
    """Whether classes are expected in other proportions than the gallery's."""
    prior = classifier._prior  # noqa: SLF001
    return not (isinstance(prior, str) and prior == "support")


def rule_and_calibration(classifier: NEDClassifier) -> tuple[str, str]:
    """What answers: parameters may be "auto", or changed since the fit."""
    fitted = classifier._rule  # noqa: SLF001
    return fitted.name, fitted.calibrator.name


def metric_name(classifier: NEDClassifier) -> str:
    """How distances are measured."""
    return classifier._metric  # noqa: SLF001


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
        own = classifier._own_pass()  # noqa: SLF001
        return fit_temperature(own.neighbors, own.codes).temperature
    except InvalidInputError:
        return None
