"""Where the service keeps its fit, the fit's number and the threshold."""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Protocol, cast

from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError
from nearsure.whole_files import remove_dead_drafts, written_whole

MODEL, NUMBER, THRESHOLD = "model", "model_number", "threshold"


class Notes(Protocol):
    """Bytes by name; a note is replaced whole or not at all, and stays when the power fails."""

    def get(self, name: str) -> bytes | None:
        """A note, or None."""

    def put(self, notes: Mapping[str, bytes]) -> None:
        """Write some, one after the other: all or none, or else all up to one of them."""


class NotesInEngine:
    """In the file of the gallery itself."""

    def __init__(self, notes: MutableMapping[str, bytes]) -> None:
        self._notes = notes

    def get(self, name: str) -> bytes | None:
        """A note, or None."""
        return self._notes.get(name)

    def put(self, notes: Mapping[str, bytes]) -> None:
        """Write some, all or none."""
        self._notes.update(notes)


class NotesInFiles:
    """A model file, and files beside it whose names begin with its name."""

    def __init__(self, model: Path) -> None:
        if not model.parent.is_dir():
            raise InvalidInputError(f"There is no folder {model.parent} to keep the fit in.")
        remove_dead_drafts(model.parent)
        self._model = model

    def get(self, name: str) -> bytes | None:
        """A note, or None."""
        path = self._path(name)
        return path.read_bytes() if path.is_file() else None

    def put(self, notes: Mapping[str, bytes]) -> None:
        """Write some, each before the next."""
        for name, content in notes.items():
            path = self._path(name)
            with written_whole(path) as draft:
                draft.write_bytes(content)
            _make_durable(path.parent)

    def _path(self, name: str) -> Path:
        return self._model if name == MODEL else self._model.with_name(f"{self._model.name}.{name}")


class NotesInMemory:
    """For a gallery that lives no longer than the service."""

    def __init__(self) -> None:
        self._notes: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        """A note, or None."""
        return self._notes.get(name)

    def put(self, notes: Mapping[str, bytes]) -> None:
        """Write some."""
        self._notes.update(notes)


def notes_in(engine: Engine) -> Notes | None:
    """The notes of an engine that keeps some."""
    notes = getattr(engine, "notes", None)
    return None if notes is None else NotesInEngine(cast("MutableMapping[str, bytes]", notes))


def _make_durable(folder: Path) -> None:
    """A new name in a folder is only safe once the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
