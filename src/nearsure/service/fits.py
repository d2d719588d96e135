"""A fit that can be kept, read again, and repeated while the old one goes on answering."""

import json
import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier import NEDClassifier
from nearsure.engines.contract import Engine
from nearsure.errors import FitWarning
from nearsure.model_file import read_model_bytes
from nearsure.service.kept_notes import MODEL, NUMBER, THRESHOLD, Notes
from nearsure.service.thresholds import ThresholdInUse, chosen_for

log = logging.getLogger("nearsure.service")


@dataclass(frozen=True, eq=False)
class Fit:
    """What answers; it is replaced as a whole, so that nobody sees half of one.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted on the gallery in the engine.
    number : int
        Grows with each fit.
    threshold : ThresholdInUse
        From which confidence its answers are accepted.
    n_unseen : int
        At least so many points changed since the fit while nobody counted.
    """

    classifier: NEDClassifier
    number: int
    threshold: ThresholdInUse
    n_unseen: int = 0

    @property
    def rule(self) -> str:
        """Name of the rule that answers."""
        return self.classifier._rule.name  # noqa: SLF001

    @property
    def class_counts(self) -> IntArray:
        """Members of each class now."""
        return self.classifier._support.class_counts  # noqa: SLF001

    @property
    def share_changed(self) -> float:
        """Share of the gallery that changed since the fit, in [0, 1]."""
        support = self.classifier._support  # noqa: SLF001
        counted = support.share_changed(self.classifier._fit_mark)  # noqa: SLF001
        return min(1.0, counted + self.n_unseen / max(1, len(support)))


def ignore_fit_warnings() -> None:
    """Let no warning about a fit become an error or a line in the log: `share_changed` says it."""
    warnings.simplefilter("ignore", FitWarning)


def fitted_from_nothing(engine: Engine) -> NEDClassifier:
    """The first fit on what an engine holds."""
    ignore_fit_warnings()
    return NEDClassifier(engine=engine, metric=engine.metric).fit_engine()


def fitted_again(classifier: NEDClassifier, engine: Engine) -> NEDClassifier:
    """A new classifier with the same parameters, fitted on the gallery of now."""
    ignore_fit_warnings()
    return NEDClassifier.from_bytes(classifier.to_bytes(), engine).refit()


def with_changes(classifier: NEDClassifier, written: Iterable[AnyArray]) -> None:
    """Count what was written while it was being fitted."""
    changed = list(written)
    if not changed:
        return
    support = classifier._support  # noqa: SLF001
    support.recount()  # type: ignore[union-attr]  # it lives in an engine
    support.mark_changed(np.unique(np.concatenate(changed)))  # type: ignore[union-attr]


def keep(fit: Fit, notes: Notes) -> None:
    """Write a fit and its threshold, so that the next start goes on with them.

    The number goes first: should the rest not be written any more, the next start sees that the
    model is not the one that was numbered, and counts on.
    """
    model = fit.classifier.to_bytes()
    notes.put(NUMBER, json.dumps({"number": fit.number, "sha256": _digest(model)}).encode())
    notes.put(MODEL, model)
    notes.put(THRESHOLD, fit.threshold.to_bytes())


def read_fit(notes: Notes, engine: Engine, precision: float | None) -> Fit | None:
    """The fit that was kept, with the gallery counted as it is now; None if none was.

    Parameters
    ----------
    notes : Notes
        Where it was kept.
    engine : Engine
        Holds the gallery, which others may have changed.
    precision : float or None
        Target of the threshold, if none was set.
    """
    model = notes.get(MODEL)
    if model is None:
        return None
    ignore_fit_warnings()
    classifier = NEDClassifier.from_bytes(model, engine)
    if dict(engine.fingerprint()) != classifier.fingerprint_:
        log.warning("The fit was made through another engine or index; a refit is due.")
    n_unseen = _recounted(classifier, model)
    number = _number(notes, model)
    kept = notes.get(THRESHOLD)
    threshold = ThresholdInUse() if kept is None else ThresholdInUse.from_bytes(kept)
    if kept is None and precision is not None:
        threshold = chosen_for(classifier, precision, number)
    elif threshold.precision is not None and threshold.model != number:
        threshold = chosen_for(classifier, threshold.precision, number)
    return Fit(classifier, number, threshold, n_unseen)


def _number(notes: Notes, model: bytes) -> int:
    """The number of a model; one more than the last if somebody else has written it since."""
    kept = notes.get(NUMBER)
    if kept is None:
        return 1
    last = json.loads(kept)
    return int(last["number"]) + int(last["sha256"] != _digest(model))


def _recounted(classifier: NEDClassifier, model: bytes) -> int:
    """Count classes anew; by how many points they differ from what the model knew."""
    known = read_model_bytes(model)[1].get("class_counts")
    support = classifier._support  # noqa: SLF001
    support.recount()  # type: ignore[union-attr]
    if known is None:
        return 0
    now = support.class_counts
    before = np.zeros(max(len(now), len(known)), np.int64)
    before[: len(known)] = known
    before[: len(now)] -= now
    return int(np.abs(before).sum())


def _digest(model: bytes) -> str:
    return sha256(model).hexdigest()
