"""A fit as it is written down, so that the next start goes on with it."""

import json
import logging
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol, cast

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine
from nearsure.schema import COUNT, TEXT, check_fields, nullable
from nearsure.service.gallery.fits import Fit
from nearsure.service.gallery.kept_notes import MODEL, NUMBER, THRESHOLD, Notes
from nearsure.service.gallery.thresholds import ThresholdInUse

log = logging.getLogger("nearsure.service")
_STORED = {"number": COUNT, "sha256": TEXT, "last_change": nullable(COUNT)}


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


def changes_in(engine: Engine) -> RecordedChanges | None:
    """The changes of an engine that writes them down, from now on; None for others."""
    changes = cast("RecordedChanges | None", getattr(engine, "changes", None))
    if changes is not None:
        changes.watch()
    return changes


@dataclass(frozen=True, eq=False)
class KeptFit:
    """What is needed to go on with a fit, on the gallery of now or by fitting again.

    Parameters
    ----------
    model : bytes
        The classifier.
    number : int
        Of the fit.
    threshold : ThresholdInUse or None
        None if there is none that can be read.
    last_change : int or None
        Number of the last change that the fit has seen; None if nobody knows.
    """

    model: bytes
    number: int
    threshold: ThresholdInUse | None
    last_change: int | None = None


def keep(fit: Fit, notes: Notes) -> None:
    """Write a fit and its threshold.

    Where they cannot be written as one, the number goes first: should the rest not be written any
    more, the next start sees that the model is not the one that was numbered, and counts on. A
    threshold of another fit is chosen anew then, or stays if it was set by hand.
    """
    model = fit.classifier.to_bytes()
    notes.put(
        {
            NUMBER: _numbered(fit.number, model, fit.last_change),
            MODEL: model,
            THRESHOLD: fit.threshold.to_bytes(),
        }
    )


def read_kept(notes: Notes, changes: RecordedChanges | None) -> KeptFit | None:
    """The fit that was kept; None if none was.

    One that somebody else has written since gets the next number, at once and for good.
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
    notes.put({NUMBER: _numbered(last + 1, model, seen)})
    # What has changed between that fit and now, nobody knows.
    return KeptFit(model, last + 1, threshold)


def _read_threshold(notes: Notes) -> ThresholdInUse | None:
    kept = notes.get(THRESHOLD)
    try:
        return None if kept is None else ThresholdInUse.from_bytes(kept)
    except (ValueError, RecursionError) as error:
        log.warning("The threshold that was kept cannot be read, and is given up: %s", error)
        return None


def _numbered(number: int, model: bytes, last_change: int | None) -> bytes:
    note = {"number": number, "sha256": _digest(model), "last_change": last_change}
    return json.dumps(note).encode()


def _digest(model: bytes) -> str:
    return sha256(model).hexdigest()
