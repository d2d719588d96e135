"""The threshold from which answers are accepted, as it is used and kept."""

import json
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

from nearsure.classifier import NEDClassifier
from nearsure.schema import BOOLEAN, COUNT, TEXT, misfit, nullable, number

DEFAULT_CERTAINTY = 0.95
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
    """A threshold, and how it came about.

    Parameters
    ----------
    threshold : float or None
        None if none is set, or if the target cannot be promised.
    precision : float or None
        The target it was chosen for; it is then chosen anew after each fit.
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


def make_pending_threshold(precision: float, model: int) -> ThresholdInUse:
    """What is used for a precision as long as the gallery cannot say anything about it."""
    sentence = "No threshold can be chosen on the gallery as it is: nothing is accepted."
    return ThresholdInUse(None, precision, sentence, model)


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
    """The threshold of a new fit: set by hand it stays, for a precision it is chosen anew."""
    if in_use.precision is None:
        return replace(in_use, model=model)
    return replace(choose_threshold(in_use.precision, classifier, model), is_set=in_use.is_set)
