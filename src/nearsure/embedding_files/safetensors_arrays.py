"""Arrays of safetensors files, read in slices; lists of labels in the metadata."""

import json
from collections.abc import Iterator
from functools import partial

import numpy as np
from safetensors import safe_open

from nearsure.arrays import AnyArray
from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.stored_arrays import StoredArray, pieces_of
from nearsure.errors import EmbeddingsFileError

_KINDS = {"F": "f", "I": "i", "U": "u", "B": "b"}
# What numpy cannot hold is refused when it is read.
_UNKNOWN_TO_NUMPY = ("BF", "F8", "F6", "F4")


def in_safetensors(source: Source) -> dict[str, StoredArray]:
    """The tensors of a file, and the JSON lists of texts or of integers in its metadata."""
    found = {}
    with safe_open(source.file, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            part = file.get_slice(name)
            dtype = str(part.get_dtype())
            known = not dtype.startswith(_UNKNOWN_TO_NUMPY)
            kind = _KINDS.get(dtype[0], "O") if known else "O"
            pieces = partial(_slices, source, name, dtype, kind)
            found[name] = StoredArray(tuple(part.get_shape()), kind, dtype, pieces)
        metadata = file.metadata() or {}
    for name, text in metadata.items():
        array = _listed(text)
        if array is not None and name not in found:
            kind, dtype = ("U", "text") if array.dtype == object else ("i", str(array.dtype))
            found[name] = StoredArray(
                array.shape, kind, f"{dtype} in the metadata", partial(pieces_of, array)
            )
    return found


def _slices(source: Source, name: str, dtype: str, kind: str, rows: int) -> Iterator[AnyArray]:
    if kind == "O":
        raise EmbeddingsFileError(
            f"{name!r} in {source} is {dtype}, which numpy does not know. Save it as float32."
        )
    with in_one_sentence(source), safe_open(source.file, framework="numpy") as file:
        part = file.get_slice(name)
        n_rows = part.get_shape()[0]
        for first in range(0, n_rows, rows):
            yield part[first : min(first + rows, n_rows)]


def _listed(text: str) -> AnyArray | None:
    """The array that a JSON list of strings or of integers stands for."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(entries, list) and entries:
        for kind in (str, int):
            if all(type(entry) is kind for entry in entries):
                return np.array(entries, object if kind is str else None)
    return None
