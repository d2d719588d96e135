"""What a person has said of items: labels that are right, and removals that may be undone."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray
from nearsure.engines.contract import Engine
from nearsure.service.store import Notes

log = logging.getLogger("nearsure.service")
CONFIRMED = "confirmed_labels"
# Removed items that are kept, the last ones: an undo comes soon, or not at all.
MOST_REMOVED = 1000
# What engines may hold beside a point: how it is read, and how it is put back.
BESIDE = ("picture", "put_pictures"), ("text", "put_texts")


class ConfirmedLabels:
    """Items whose labels a person has confirmed, kept with the fit.

    A confirmation is of a label and a vector: with another of either it counts no more.

    Parameters
    ----------
    notes : Notes
        Where they are kept.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._digests = _read(notes.get(CONFIRMED))

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, ids: AnyArray, labels: AnyArray, vectors: AnyArray) -> None:
        """Confirm the labels of items, shape (n,), which have these vectors."""
        names = map(str, ids.tolist())
        self._keep({**self._digests, **dict(zip(names, _digest(labels, vectors), strict=True))})

    def discard(self, ids: AnyArray) -> None:
        """Confirm them no longer; for those that are not confirmed nothing changes."""
        gone = set(map(str, ids.tolist()))
        self._keep({name: kept for name, kept in self._digests.items() if name not in gone})

    def named(self, ids: AnyArray) -> BoolArray:
        """Which of some items have been confirmed, be it with another label or vector."""
        return np.array([str(own) in self._digests for own in ids.tolist()], np.bool_)

    def match(self, ids: AnyArray, labels: AnyArray, vectors: AnyArray) -> BoolArray:
        """Which of some items are confirmed with these labels and vectors."""
        digests = zip(map(str, ids.tolist()), _digest(labels, vectors), strict=True)
        return np.array([self._digests.get(name) == own for name, own in digests], np.bool_)

    def _keep(self, digests: dict[str, str]) -> None:
        self._notes.update({CONFIRMED: json.dumps(digests).encode()})
        # Replaced as a whole: others may read it meanwhile.
        self._digests = digests


def _read(kept: bytes | None) -> dict[str, str]:
    try:
        found = {} if kept is None else json.loads(kept)
        if isinstance(found, dict) and all(isinstance(one, str) for one in found.values()):
            return found
        problem = "it is no table of texts"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    log.warning("The confirmed labels cannot be read, and are given up: %s", problem)
    return {}


def _digest(labels: AnyArray, vectors: AnyArray) -> list[str]:
    rows = zip(labels.tolist(), np.asarray(vectors, np.float32), strict=True)
    return [
        sha256(f"{label!r}".encode(errors="surrogatepass") + row.tobytes()).hexdigest()[:32]
        for label, row in rows
    ]


@dataclass(frozen=True, eq=False)
class _Removed:
    label: Any
    vector: AnyArray
    beside: dict[str, Any]


class RemovedItems:
    """The items that were removed last, with all that the engine held of them.

    Parameters
    ----------
    engine : Engine
        Where they were.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: dict[Any, _Removed] = {}

    def read(self, ids: AnyArray, labels: AnyArray, vectors: AnyArray) -> dict[Any, _Removed]:
        """What is to be kept of items, before they are removed."""
        readers = {put: getattr(self._engine, read, None) for read, put in BESIDE}
        return {
            own: _Removed(
                label, vector, {put: read(own) for put, read in readers.items() if read is not None}
            )
            for own, label, vector in zip(ids.tolist(), labels.tolist(), vectors, strict=True)
        }

    def keep(self, removed: dict[Any, _Removed]) -> None:
        """Keep what `read` gave, and forget what is too old."""
        older = {own: one for own, one in self._kept.items() if own not in removed}
        for own in list(older)[: max(0, len(older) + len(removed) - MOST_REMOVED)]:
            del older[own]
        self._kept = older | removed

    def missing(self, ids: AnyArray) -> list[Any]:
        """Those that are not kept, or no longer."""
        return [own for own in ids.tolist() if own not in self._kept]

    def points(self, ids: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Vectors and labels of removed items."""
        found = [self._kept[own] for own in ids.tolist()]
        return np.stack([one.vector for one in found]), np.array([one.label for one in found])

    def put_back(self, ids: Sequence[Any]) -> None:
        """Give items that are there again what the engine held beside them."""
        found = {own: self._kept[own] for own in ids}
        for _, put in BESIDE:
            held = {own: one.beside[put] for own, one in found.items() if one.beside.get(put)}
            if held:
                getattr(self._engine, put)(held)
        for own in found:
            self._kept.pop(own, None)
