"""Thresholds that keep a target with 95% certainty, in sentences."""

from nearsure.arrays import BoolArray, FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.decisions import AcceptThreshold, choose_threshold
from nearsure.report.document import Promise

TARGETS = (0.9, 0.95, 0.99, 0.995)


def held_out_promises(confidence: FloatArray, correct: BoolArray) -> tuple[Promise, ...]:
    """What the answers to held-out queries allow to promise."""
    return tuple(
        _promise(choose_threshold(confidence, correct, precision=target)) for target in TARGETS
    )


def rehearsed_promises(classifier: NEDClassifier) -> tuple[Promise, ...]:
    """What the gallery's own points do: the same as ``classifier.accept_threshold`` says.

    Where unknown queries are expected, points that leave their class out play them.
    """
    return tuple(_promise(classifier.accept_threshold(precision=target)) for target in TARGETS)


def _promise(chosen: AcceptThreshold) -> Promise:
    return Promise(
        precision=chosen.target,
        threshold=float(chosen.threshold) if chosen.reached else None,
        coverage=float(chosen.coverage) if chosen.reached else None,
        sentence=str(chosen),
    )
