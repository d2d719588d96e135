"""Steps of a run, cached on disk by a digest of their settings.

A stage is a folder whose name ends in a digest of its inputs: settings and the digests of the
stages before it. A file appears in it whole or not at all, so a run that is killed at any moment
finds, when it is started again, what was finished and does the rest.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from nearsure.arrays import AnyArray
from nearsure.atomic import atomic_write
from nearsure.errors import InvalidInputError, NearsureError

# Raised when the meaning of cached files changes, so that old ones are not taken for new ones.
FORMAT = 1


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
        return fields_to_plain(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def fields_to_plain(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """The fields of a dataclass in JSON's types."""
    return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}


def from_plain(kind: Any, value: Any) -> Any:  # noqa: ANN401, PLR0911
    """The inverse of `to_plain`, for a type such as that of a field."""
    origin, parts = get_origin(kind), get_args(kind)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if is_dataclass(kind):
        return fields_from_plain(kind, value)
    if origin is UnionType:
        return None if value is None else from_plain(parts[0], value)
    if origin in {tuple, Sequence}:
        return tuple(from_plain(parts[0], entry) for entry in value)
    if origin is Mapping:
        key_kind, entry_kind = parts
        return {from_plain(key_kind, k): from_plain(entry_kind, v) for k, v in value.items()}
    if origin is np.ndarray:
        return np.array(value, get_args(parts[1])[0])  # None becomes NaN
    if kind is int:
        return int(value)  # JSON's keys are text
    return math.nan if kind is float and value is None else value


def fields_from_plain(kind: Any, value: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """A dataclass from its fields in JSON's types.

    Raises
    ------
    InvalidInputError
        If the fields are not those of the class.
    """
    hints = get_type_hints(kind)
    try:
        return kind(**{name: from_plain(hints[name], entry) for name, entry in value.items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"The fields of {kind.__name__} must be {[field.name for field in fields(kind)]}. "
            f"{error!r}: was this written by another version, or is it something else?"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_write(path, keep_suffix=True) as draft:
        draft.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class CachedStep:
    """One cached step.

    Parameters
    ----------
    root : Path
        Folder of all stages.
    name : str
        What it does.
    inputs : mapping
        All that its result depends on, in JSON's types.
    """

    root: Path
    name: str
    inputs: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Digest of the inputs, an input of the stages that follow."""
        return digest([self.name, dict(self.inputs)])

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.root / f"{self.name}-{self.key}"

    def describe(self) -> None:
        """Write down what the stage depends on, for people who look into the folder."""
        path = self.folder / "inputs.json"
        if not path.exists():
            write_text(path, json.dumps(dict(self.inputs), indent=2, sort_keys=True) + "\n")

    def arrays(
        self, name: str, compute: Callable[[], Mapping[str, AnyArray]]
    ) -> dict[str, AnyArray]:
        """Arrays from the file `name`, which is computed if it is not there."""
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            self.describe()
            result = {key: np.ascontiguousarray(value) for key, value in compute().items()}
            with atomic_write(path, keep_suffix=True) as draft:
                save_file(result, draft)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise NearsureError(
                f"{path} is damaged ({error}). Delete it and run again; it will be made anew."
            ) from error

    def document(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """A JSON document from the file `name`, which is computed if it is not there."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            self.describe()
            write_text(path, json.dumps(compute(), indent=1) + "\n")
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise NearsureError(
                f"{path} is damaged ({error}). Delete it and run again; it will be made anew."
            ) from error
        return found

    def rows(
        self,
        name: str,
        n_rows: int,
        compute: Callable[[range], AnyArray],
        *,
        chunk: int,
        track: Callable[[list[range]], Iterator[range]] = iter,
    ) -> AnyArray:
        """A row for each of many images, computed and kept a chunk at a time.

        Parameters
        ----------
        name : str
            What the rows are.
        n_rows : int
            How many there are.
        compute : callable
            Gives the array of the rows in a range.
        chunk : int
            Rows that are computed, and lost if the process dies, at a time.
        track : callable
            Wraps the list of ranges, to show progress.
        """
        ranges = [range(i, min(i + chunk, n_rows)) for i in range(0, n_rows, chunk)]

        def chunk_of(part: range) -> AnyArray:
            file = f"{name}-{part.start:07d}"
            rows = self.arrays(file, lambda: {"rows": compute(part)})["rows"]
            if len(rows) != len(part):
                raise NearsureError(
                    f"{self.folder / file}.safetensors must hold {len(part)} rows. Got {len(rows)} "
                    "instead. Delete it and run again; it will be made anew."
                )
            return rows

        return np.concatenate([chunk_of(part) for part in track(ranges)])
