"""Where the service keeps its fit, the number of the fit and the threshold."""

import json
import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.atomic import atomic_write, remove_dead_drafts
from nearsure.classifier import NEDClassifier, Prediction
from nearsure.engines.contract import Engine
from nearsure.errors import FitWarning, InvalidInputError
from nearsure.model_file import read_model_bytes
from nearsure.schema import COUNT, TEXT, check_fields, nullable
from nearsure.service.answers import Answers, PromiseState, ThresholdInUse, make_answers
from nearsure.service.promise import UNCHECKED, Promise

log = logging.getLogger("nearsure.service")
MODEL, NUMBER, THRESHOLD = "model", "model_number", "threshold"
_STORED = {"number": COUNT, "sha256": TEXT, "last_change": nullable(COUNT)}


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted classifier in use; replaced as a whole, so that no reader gets half of one.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted on the gallery in the engine.
    number : int
        Grows with each fit.
    threshold : ThresholdInUse
        From which confidence its answers are accepted.
    n_unseen : int
        At least so many points changed since the fit without being counted.
    last_change : int or None
        Number of the last change that the fit has seen, in an engine that writes changes down.
    promise : Promise
        What recent queries have shown about the threshold.
    """

    classifier: NEDClassifier
    number: int
    threshold: ThresholdInUse
    n_unseen: int = 0
    last_change: int | None = None
    promise: Promise = UNCHECKED

    def answer(self, prediction: Prediction) -> Answers:
        """A prediction of its classifier with all that is shown beside it."""
        return make_answers(
            self.classifier, prediction, self.accepting, self.number, self.promise_state
        )

    @cached_property
    def accepting(self) -> ThresholdInUse:
        """The threshold, as far as its promise stands."""
        return self.threshold if self.promise_state is None else self.promise.apply(self.threshold)

    @cached_property
    def promise_state(self) -> PromiseState | None:
        """State of the promise; None if none is made."""
        is_made = self.threshold.precision is not None and self.threshold.threshold is not None
        return self.promise.state if is_made else None

    @property
    def share_changed(self) -> float:
        """Share of the gallery that changed since the fit, in [0, 1]."""
        unseen = self.n_unseen / max(1, self.classifier.n_support_)
        return min(1.0, self.classifier.share_changed_ + unseen)


def ignore_fit_warnings() -> None:
    """Let no warning about a fit become an error or a line in the log: see `share_changed`."""
    warnings.simplefilter("ignore", FitWarning)


def fit_gallery(engine: Engine, before: bytes | None) -> NEDClassifier:
    """A new classifier, fitted on what an engine holds, with the parameters of an earlier one."""
    ignore_fit_warnings()
    if before is None:
        return NEDClassifier(engine=engine, metric=engine.metric).fit_engine()
    return NEDClassifier.from_bytes(before, engine).refit()


def load_counted(model: bytes, engine: Engine) -> NEDClassifier:
    """A kept classifier, with classes of the sizes that they have in an engine."""
    ignore_fit_warnings()
    classifier = NEDClassifier.from_bytes(model, engine)
    classifier.recount()
    return classifier


def count_changes(classifier: NEDClassifier, written: Iterable[AnyArray]) -> None:
    """Count points that were changed while it was being fitted, or by others."""
    changed = [ids for ids in written if len(ids)]
    if changed:
        classifier.recount(np.unique(np.concatenate(changed)))


def count_least_changes(classifier: NEDClassifier, model: bytes) -> int:
    """How many points must have changed for its classes to have other sizes than were kept.

    Parameters
    ----------
    classifier : NEDClassifier
        Counted after it was loaded.
    model : bytes
        What was kept of it.
    """
    known = read_model_bytes(model)[1].get("class_counts")
    if known is None:
        return 0
    now = classifier.class_counts_
    gained = np.zeros(max(len(now), len(known)), np.int64)
    gained[: len(now)] = now
    gained[: len(known)] -= known
    # A point that was given another label is missed in one class and found in another.
    return int(max(gained[gained > 0].sum(), -gained[gained < 0].sum()))


class Notes(Protocol):
    """Bytes by name; a note is replaced whole or not at all, and stays when the power fails.

    The notes of an engine, a dictionary that ends with the service, or a `FileStore`.
    """

    def get(self, name: str, /) -> bytes | None:
        """A note, or None."""

    def update(self, notes: Mapping[str, bytes], /) -> None:
        """Write some, one after the other: all or none, or else all up to one of them."""


class FileStore:
    """A model file, and files beside it whose names begin with its name."""

    def __init__(self, model: Path) -> None:
        if not model.parent.is_dir():
            raise InvalidInputError(f"There is no folder {model.parent} to keep the fit in.")
        remove_dead_drafts(model.parent)
        self._model = model

    def get(self, name: str, /) -> bytes | None:
        """A note, or None."""
        path = self._path(name)
        return path.read_bytes() if path.is_file() else None

    def update(self, notes: Mapping[str, bytes], /) -> None:
        """Write some, each before the next."""
        for name, content in notes.items():
            path = self._path(name)
            with atomic_write(path) as draft:
                draft.write_bytes(content)
            _make_durable(path.parent)

    def _path(self, name: str) -> Path:
        return self._model if name == MODEL else self._model.with_name(f"{self._model.name}.{name}")


def _make_durable(folder: Path) -> None:
    """A new name in a folder is only safe once the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RecordedChanges(Protocol):
    """Which points were changed, as an engine writes it down with the change."""

    def watch(self) -> None:
        """Write changes down from now on."""

    def last(self) -> int:
        """The number of the last change."""

    def since(self, number: int) -> AnyArray:
        """Ids that were changed after it."""

    def forget(self, number: int) -> None:
        """Forget changes up to it."""


def watch_changes(engine: Engine) -> RecordedChanges | None:
    """The changes of an engine that writes them down, from now on; None for others."""
    changes: RecordedChanges | None = getattr(engine, "changes", None)
    if changes is not None:
        changes.watch()
    return changes


@dataclass(frozen=True, eq=False)
class KeptFit:
    """What is needed to go on with a fit, on the current gallery or by fitting again.

    Parameters
    ----------
    model : bytes
        The classifier.
    number : int
        Of the fit.
    threshold : ThresholdInUse or None
        None if there is none that can be read.
    last_change : int or None
        Number of the last change that the fit has seen; None if unknown.
    """

    model: bytes
    number: int
    threshold: ThresholdInUse | None
    last_change: int | None = None


def keep(fit: Fit, notes: Notes) -> None:
    """Write a fit and its threshold.

    Where they cannot be written as one, the number goes first: should the rest not be written any
    more, the next start sees that the model is not the one that was numbered, and counts on. A
    threshold of another fit is chosen again then, or stays if it was set by hand.
    """
    model = fit.classifier.to_bytes()
    number = _write_number(fit.number, model, fit.last_change)
    notes.update({NUMBER: number, MODEL: model, THRESHOLD: fit.threshold.to_bytes()})


def read_kept(notes: Notes, changes: RecordedChanges | None) -> KeptFit | None:
    """The fit that was kept; None if none was.

    One that was written elsewhere since gets the next number, at once and for good.
    """
    model = notes.get(MODEL)
    if model is None:
        return None
    threshold = _read_threshold(notes)
    last = 0 if threshold is None else threshold.model
    kept = notes.get(NUMBER)
    try:
        if kept is not None:
            known = json.loads(kept)
            check_fields("The number of the fit", known, _STORED)
            if known["sha256"] == _digest(model):
                return KeptFit(model, known["number"], threshold, known["last_change"])
            last = max(last, known["number"])
    except (ValueError, RecursionError) as error:
        log.warning("The number of the fit cannot be read, and is counted on: %r", error)
    seen = None if changes is None else changes.last()
    notes.update({NUMBER: _write_number(last + 1, model, seen)})
    # What has changed between that fit and now is unknown.
    return KeptFit(model, last + 1, threshold)


def _read_threshold(notes: Notes) -> ThresholdInUse | None:
    kept = notes.get(THRESHOLD)
    try:
        return None if kept is None else ThresholdInUse.from_bytes(kept)
    except (ValueError, RecursionError) as error:
        log.warning("The threshold that was kept cannot be read, and is given up: %s", error)
        return None


def _write_number(number: int, model: bytes, last_change: int | None) -> bytes:
    note = {"number": number, "sha256": _digest(model), "last_change": last_change}
    return json.dumps(note).encode()


def _digest(model: bytes) -> str:
    return sha256(model).hexdigest()
