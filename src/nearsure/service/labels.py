"""Labelled queries: which are proposed, what is learned from them, and what they promise."""

from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier
from nearsure.classifier.recalibration import FEWEST_LABELS
from nearsure.engines.contract import Engine
from nearsure.index import unit_vectors
from nearsure.service.answers import choose_threshold
from nearsure.service.errors import ProblemError
from nearsure.service.items import SMALLEST_INTEGER, parse_labels

# They are kept with the fit, which is written whole.
MOST_LABELS = 5000
# Precisions for which it is told what the labels promise.
PRECISIONS = 0.9, 0.95, 0.99


def parse_true_labels(
    texts: list[str | None], classifier: NEDClassifier, engine: Engine
) -> AnyArray:
    """True labels of queries as the engine has them; None is for a query of no class.

    Raises
    ------
    ProblemError
        422 if one is no class of the gallery, or None where no such queries are expected.
    """
    if classifier.unknown_share_ is None and None in texts:
        raise ProblemError(
            422,
            "invalid_request",
            "A label may only be null where queries of no class are expected (unknown_share). "
            "Give each query its class, or leave it out.",
        )
    is_text = (engine.capabilities.labels or "text") == "text"
    nobody = "" if is_text else str(SMALLEST_INTEGER)
    labels = parse_labels([nobody if text is None else text for text in texts], engine)
    is_strange = classifier.encode(labels) == len(classifier.classes_)
    strange = set(np.array(texts, object)[is_strange]) - {None}
    if strange:
        named = ", ".join(repr(text) for text in sorted(strange)[:3])
        remedy = "leave these queries out" if classifier.unknown_share_ is None else "send null"
        raise ProblemError(
            422,
            "invalid_request",
            f"The labels must be classes of the gallery. Got {named}: correct this, or {remedy}.",
        )
    return labels


def find_unlabelled(classifier: NEDClassifier, vectors: AnyArray) -> list[int]:
    """Which queries, shape (n, dimension), have no label yet."""
    learned = classifier.recalibrated_
    labelled = set() if learned is None else set(_digest_rows(classifier, learned.vectors))
    digests = _digest_rows(classifier, vectors)
    return [row for row, digest in enumerate(digests) if digest not in labelled]


def _digest_rows(classifier: NEDClassifier, vectors: AnyArray) -> list[bytes]:
    """What tells queries apart."""
    if classifier.metric_ == "cosine" and len(vectors):
        # Rounded, as a vector that is brought to unit length once more may change a little.
        vectors = unit_vectors(vectors).round(5) + 0.0
    return [row.tobytes() for row in vectors.astype(np.float32)]


def learn_labels(classifier: NEDClassifier, *, vectors: AnyArray, labels: AnyArray) -> None:
    """Recalibrate with labelled queries, and those before unless they are labelled again."""
    # Copies of a query are one piece of evidence; the last label counts.
    new = {digest: row for row, digest in enumerate(_digest_rows(classifier, vectors))}
    last = sorted(new.values())
    vectors, labels = vectors[last], labels[last]
    before = classifier.recalibrated_
    if before is not None:
        stay = [digest not in new for digest in _digest_rows(classifier, before.vectors)]
        vectors = np.concatenate([before.vectors[stay], vectors])
        labels = np.concatenate([before.labels[stay], labels])
    n_useful = int((classifier.encode(labels) < len(classifier.classes_)).sum())
    if n_useful < FEWEST_LABELS:
        raise ProblemError(
            409,
            "too_few_labels",
            f"{FEWEST_LABELS} labelled queries of classes of the gallery are needed, with those of "
            f"before. These make {n_useful}: label more.",
        )
    if len(labels) > MOST_LABELS:
        raise ProblemError(
            409,
            "too_many_labels",
            f"At most {MOST_LABELS:,} labelled queries are kept. These would make {len(labels):,}: "
            "DELETE /v1/labels forgets the earlier ones.",
        )
    classifier.recalibrate(vectors, labels)


def describe_labels(classifier: NEDClassifier, model: int) -> dict[str, Any]:
    """A `Labels` document: what was learned, and what can be promised now."""
    learned = classifier.recalibrated_
    if learned is None:
        sentence = "No query is labelled: confidence and promises rest on the gallery alone."
        return {
            "n_labels": 0,
            "n_right": 0,
            "mean_before": None,
            "mean_after": None,
            "sentence": sentence,
            "promises": [],
            "model": model,
        }
    return {
        "n_labels": len(learned),
        "n_right": learned.n_right,
        "mean_before": learned.mean_before,
        "mean_after": learned.mean_after,
        "sentence": str(learned),
        "promises": [
            choose_threshold(precision, classifier, model).document() for precision in PRECISIONS
        ],
        "model": model,
    }
