"""Steps of a run, cached on disk by a digest of their settings.

A stage is a folder whose name ends in a digest of its inputs: settings and the digests of the
stages before it. A file appears in it whole or not at all, so a run that is killed at any moment
finds, when it is started again, what was finished and does the rest.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from nearsure.arrays import AnyArray
from nearsure.atomic import atomic_write
from nearsure.errors import InvalidInputError, NearsureError
from nearsure.schema import is_array_type

# Raised when the meaning of cached files changes, so that old ones are not taken for new ones.
FORMAT = 1
T = TypeVar("T")
Arrays = Mapping[str, AnyArray]


def digest(value: object) -> str:
    """Short name of anything that JSON can hold."""
    text = json.dumps([FORMAT, value], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def to_plain(value: Any) -> Any:  # noqa: ANN401
    """A value in JSON's types: lists for tuples and arrays, None for NaN.

    An object becomes what its `to_dict` gives, or else a dataclass becomes its fields.
    """
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def from_plain(kind: Any, value: Any) -> Any:  # noqa: ANN401, PLR0911
    """The inverse of `to_plain`, for a type such as that of a field.

    Raises
    ------
    InvalidInputError
        If the fields are not those of a dataclass.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        try:
            return kind(**{name: from_plain(hints[name], entry) for name, entry in value.items()})
        except (KeyError, TypeError, AttributeError) as error:
            names = [field.name for field in fields(kind)]
            raise InvalidInputError(
                f"The fields of {kind.__name__} must be {names}. "
                f"{error!r}: was this written by another version, or is it something else?"
            ) from error
    if origin is UnionType:
        return None if value is None else from_plain(parts[0], value)
    if origin in {tuple, Sequence}:
        return tuple(from_plain(parts[0], entry) for entry in value)
    if origin is Mapping:
        key_kind, entry_kind = parts
        return {from_plain(key_kind, k): from_plain(entry_kind, v) for k, v in value.items()}
    if is_array_type(kind):
        return np.array(value, get_args(parts[-1])[0] if origin is np.ndarray else parts[0])
    if kind is int:
        return int(value)  # JSON's keys are text
    return math.nan if kind is float and value is None else value


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_write(path, keep_suffix=True) as draft:
        draft.write_text(text, encoding="utf-8")


def _save_arrays(path: Path, arrays: Arrays) -> None:
    contiguous = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
    with atomic_write(path, keep_suffix=True) as draft:
        save_file(contiguous, draft)


def _save_document(path: Path, document: Any) -> None:  # noqa: ANN401
    write_text(path, json.dumps(document, indent=1) + "\n")


def _load_document(path: Path) -> Any:  # noqa: ANN401
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class CachedStep:
    """One cached step.

    Parameters
    ----------
    root : Path or None
        Folder of all stages; None to keep nothing.
    name : str
        What it does.
    inputs : mapping
        All that its result depends on, in JSON's types.
    """

    root: Path | None
    name: str
    inputs: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Digest of the inputs, an input of the stages that follow."""
        return digest([self.name, dict(self.inputs)])

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return (self.root or Path()) / f"{self.name}-{self.key}"

    def arrays(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """Arrays from the file `name`, which is computed if it is not there."""
        return self._file(f"{name}.safetensors", compute, _save_arrays, load_file)

    def document(self, name: str, compute: Callable[[], T]) -> T:
        """A JSON document from the file `name`, which is computed if it is not there."""
        found: T = self._file(f"{name}.json", compute, _save_document, _load_document)
        return found

    def result(self, kind: type[T], name: str, compute: Callable[[], T]) -> T:
        """A dataclass from the JSON file `name`, which is computed if it is not there."""
        found = self.document(name, lambda: to_plain(compute()))
        try:
            result: T = from_plain(kind, found)
        except InvalidInputError as error:
            raise NearsureError(
                f"{self.folder} was written by another version ({error}). Delete it and run again."
            ) from error
        return result

    def rows(
        self,
        name: str,
        n_rows: int,
        compute: Callable[[range], Arrays],
        *,
        chunk: int,
        track: Callable[[list[range]], Iterable[range]] = iter,
    ) -> Arrays:
        """Arrays of as many rows as there are images, computed and kept a chunk at a time.

        Parameters
        ----------
        name : str
            What the rows are.
        n_rows : int
            How many there are.
        compute : callable
            Gives the arrays of the rows in a range.
        chunk : int
            Rows that are computed, and lost if the process dies, at a time.
        track : callable
            Wraps the list of ranges, to show progress.
        """
        ranges = [range(i, min(i + chunk, n_rows)) for i in range(0, n_rows, chunk)]
        parts = []
        for part in track(ranges):
            file = f"{name}-{part.start:07d}"
            arrays = self.arrays(file, partial(compute, part))
            n_found = min(map(len, arrays.values()))
            if n_found != len(part):
                raise NearsureError(
                    f"{self.folder / file}.safetensors must hold {len(part)} rows. Got {n_found} "
                    "instead. Delete it and run again; it will be made again."
                )
            parts.append(arrays)
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def _file(
        self,
        name: str,
        compute: Callable[[], T],
        save: Callable[[Path, T], None],
        load: Callable[[Path], T],
    ) -> T:
        if self.root is None:
            return compute()
        path = self.folder / name
        if not path.exists():
            if not path.parent.exists():  # what it depends on, for people who look into the folder
                inputs = json.dumps(dict(self.inputs), indent=2, sort_keys=True)
                write_text(self.folder / "inputs.json", inputs + "\n")
            save(path, compute())
        try:
            return load(path)
        except (OSError, ValueError, SafetensorError) as error:
            raise NearsureError(
                f"{path} is damaged ({error}). Delete it and run again; it will be made again."
            ) from error
