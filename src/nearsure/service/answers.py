"""What the service answers, and the threshold from which answers are accepted."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier, Prediction, Support
from nearsure.report.document import plain_number
from nearsure.schema import BOOLEAN, COUNT, TEXT, misfit, nullable, number
from nearsure.service.items import show_names
from nearsure.service.window import LONGEST_TEXT

DEFAULT_CERTAINTY = 0.95
PromiseState = Literal["holds", "adjusted", "withdrawn"]
_FRACTION = nullable(number("a number in [0, 1]", 0.0, 1.0))
_STORED = {
    "threshold": _FRACTION,
    "precision": _FRACTION,
    "sentence": TEXT,
    "model": COUNT,
    "is_set": BOOLEAN,
}


@dataclass(frozen=True)
class ThresholdInUse:
    """A threshold, and how it was chosen.

    Parameters
    ----------
    threshold : float or None
        None if none is set, or if the target cannot be promised.
    precision : float or None
        The target it was chosen for; it is then chosen again after each fit.
    sentence : str
        What it means.
    model : int
        The fit it was chosen on.
    is_set : bool
        Whether it was set while the service ran, be it to none.
    """

    threshold: float | None = None
    precision: float | None = None
    sentence: str = "No threshold is set: answers are neither accepted nor refused."
    model: int = 0
    is_set: bool = False

    def accepts(self, confidence: float) -> bool | None:
        """Whether an answer of this confidence is accepted; None if no threshold is set."""
        if self.threshold is not None:
            return confidence >= self.threshold
        return None if self.precision is None else False

    def document(self) -> dict[str, Any]:
        """As `Threshold` has it."""
        return {
            "threshold": self.threshold,
            "precision": self.precision,
            "sentence": self.sentence,
        }

    def to_bytes(self) -> bytes:
        """For `from_bytes`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, kept: bytes) -> "ThresholdInUse":
        """What `to_bytes` gave.

        Raises
        ------
        ValueError
            If it is something else.
        """
        document = json.loads(kept)
        if (problem := misfit(document, _STORED)) is not None:
            raise ValueError(f"It is no threshold: {problem}.")
        return cls(**document)


def make_fixed_threshold(threshold: float | None, model: int) -> ThresholdInUse:
    """A threshold that a user has set, or none."""
    if threshold is None:
        return ThresholdInUse(model=model, is_set=True)
    sentence = f"Accept at confidence >= {threshold:.6g}, as it was set."
    return ThresholdInUse(threshold, None, sentence, model, is_set=True)


def make_pending_threshold(precision: float) -> ThresholdInUse:
    """What is used for a precision as long as no threshold can be chosen for it."""
    sentence = "No threshold can be chosen on the gallery as it is: nothing is accepted."
    return ThresholdInUse(None, precision, sentence)


def choose_threshold(
    precision: float,
    classifier: NEDClassifier,
    model: int,
    *,
    certainty: float = DEFAULT_CERTAINTY,
) -> ThresholdInUse:
    """The laxest threshold that keeps a precision, by the gallery's own points."""
    chosen = classifier.accept_threshold(precision=precision, certainty=certainty)
    threshold = chosen.threshold if isfinite(chosen.threshold) else None
    return ThresholdInUse(threshold, precision, str(chosen), model)


def choose_again(in_use: ThresholdInUse, classifier: NEDClassifier, model: int) -> ThresholdInUse:
    """The threshold of a new fit: kept if set by hand, chosen again if for a precision."""
    if in_use.precision is None:
        return replace(in_use, model=model)
    return replace(choose_threshold(in_use.precision, classifier, model), is_set=in_use.is_set)


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers to several queries, of one fit; each becomes a document when it is sent.

    Parameters
    ----------
    prediction : Prediction
        Of the classifier.
    classes : array of shape (n_classes,)
        Its labels, by code.
    support : Support
        Of the answers, by each neighbour and by the class as a whole.
    threshold : ThresholdInUse
        From which confidence answers are accepted.
    model : int
        Number of the fit.
    promise : {"holds", "adjusted", "withdrawn"} or None
        State of what the threshold promises; None if that is nothing.
    texts : callable or None
        From ids of items to their texts, read from the engine; None if it keeps none.
    """

    prediction: Prediction
    classes: AnyArray
    support: Support
    threshold: ThresholdInUse
    model: int
    promise: PromiseState | None
    texts: Callable[[AnyArray], dict[Any, str]] | None = None

    def document(self, row: int, *, neighbors: int, classes: int) -> dict[str, Any]:
        """The `Answer` of one query, as JSON has it."""
        prediction, support = self.prediction, self.support
        confidence = prediction.confidence[row].item()
        return {
            "label": show_names(prediction.labels[row : row + 1])[0],
            "confidence": confidence,
            "accepted": self.accepted(row),
            "promise": self.promise,
            "verdict": None if prediction.verdicts is None else str(prediction.verdicts[row]),
            "p_known": None if prediction.p_known is None else prediction.p_known[row].item(),
            "p_neighbors": None if support.head is None else support.neighbors[row].item(),
            "p_head": None if support.head is None else plain_number(support.head[row].item()),
            "classes": self._classes(row, classes),
            "neighbors": self.neighbors(row, neighbors),
            "model": self.model,
        }

    def accepted(self, row: int) -> bool | None:
        """Whether one answer may be acted on; None if no threshold is set."""
        accepted = self.threshold.accepts(self.prediction.confidence[row].item())
        # An answer without neighbours is never accepted, however lax the threshold is.
        return accepted and bool(self.prediction.neighbors.counts[row])

    def neighbors(self, row: int, most: int) -> list[dict[str, Any]]:
        """The nearest neighbours of one query, as `NeighborShown`."""
        found = self.prediction.neighbors
        shown = slice(min(most, int(found.counts[row])))
        ids = np.asarray(found.ids)[row, shown]
        names = zip(
            show_names(ids),
            show_names(self.classes[found.labels[row, shown]]),
            found.sq_distances[row, shown].tolist(),
            self.support.shares[row, shown].tolist(),
            strict=True,
        )
        described: list[dict[str, Any]] = [
            {"id": own, "label": label, "sq_distance": sq_distance, "share": share}
            for own, label, sq_distance, share in names
        ]
        if self.texts is not None:
            texts = self.texts(ids)
            for neighbor, own in zip(described, ids.tolist(), strict=True):
                text = texts.get(own)
                neighbor["text"] = None if text is None else text[:LONGEST_TEXT]
        return described

    def _classes(self, row: int, most: int) -> list[dict[str, Any]]:
        posterior = self.prediction.posterior
        first, end = int(posterior.indptr[row]), int(posterior.indptr[row + 1])
        shown = slice(first, min(end, first + most))
        labels = show_names(self.classes[posterior.codes[shown]])
        probabilities = posterior.probabilities[shown].tolist()
        return [
            {"label": label, "probability": probability}
            for label, probability in zip(labels, probabilities, strict=True)
        ]


def make_answers(
    classifier: NEDClassifier,
    prediction: Prediction,
    threshold: ThresholdInUse,
    model: int,
    promise: PromiseState | None = None,
) -> Answers:
    """A prediction with all that is shown beside it."""
    engine = classifier.engine_
    return Answers(
        prediction,
        classifier.classes_,
        classifier.support(prediction),
        threshold,
        model,
        promise,
        getattr(engine, "texts", None) if getattr(engine, "has_texts", False) else None,
    )
