"""Files of arrays: npz, npy and safetensors, and which array is which."""

import json
import math
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import safe_open

from nearsure.arrays import AnyArray
from nearsure.embedding_files.parquet import open_columns
from nearsure.embedding_files.rows import (
    EmbeddingChunk,
    Keys,
    RowReader,
    StoredArray,
    as_float32,
    as_names,
    as_texts,
    row_place,
)
from nearsure.embedding_files.source import Source, translate_errors
from nearsure.errors import EmbeddingsFileError

Arrays = Mapping[str, StoredArray]


@dataclass(frozen=True)
class _Role:
    """What an array may be: its name in messages, the option of its key, usual names and kinds."""

    name: str
    option: str
    usual_names: tuple[str, ...]
    kinds: str


# Usual names decide where a file holds several arrays that would fit.
LABEL_NAMES = ("labels", "label", "y")
_VECTOR_NAMES = ("embeddings", "embedding", "vectors", "vector", "x", "features")
_VECTORS = _Role("vectors", "vectors_key", _VECTOR_NAMES, "fiu")
_LABELS = _Role("labels", "labels_key", LABEL_NAMES, "biufUSO")
_IDS = _Role("ids", "ids_key", ("ids", "id"), "iuUS")
_PICTURES = _Role("pictures", "pictures_key", ("images", "image", "pictures", "picture"), "US")
_TEXTS = _Role("texts", "", ("texts", "text"), "US")
_GROUPS = _Role("groups", "groups_key", (), "biuUS")


def _choose_arrays(source: Source, stored: Arrays, keys: Keys) -> dict[str, str]:
    """The name of the array of vectors, and of those of the other roles that are there."""
    choose = partial(_choose, source, stored)
    tables = {name: array for name, array in stored.items() if len(array.shape) == 2}  # noqa: PLR2004
    floats = [name for name, array in tables.items() if array.kind == "f"]
    integers = [name for name, array in tables.items() if array.kind in "iu"]
    vectors = choose(_VECTORS, keys.vectors, floats or integers)
    if vectors is None:
        raise EmbeddingsFileError(
            f"{source} must hold an array of vectors, of shape (n, d) and of float32, float16 or "
            f"float64. It holds {listing(stored)}."
        )
    shape = stored[vectors].shape[:1]
    columns = [name for name, array in stored.items() if array.shape == shape and name != vectors]

    def with_usual_name(role: _Role) -> list[str]:
        named = [name for name in columns if name.lower() in role.usual_names]
        return [name for name in named if stored[name].kind in role.kinds]

    ids = choose(_IDS, keys.ids, with_usual_name(_IDS))
    pictures = choose(_PICTURES, keys.pictures, with_usual_name(_PICTURES))
    texts = choose(_TEXTS, None, with_usual_name(_TEXTS))
    groups = choose(_GROUPS, keys.groups, [])
    labels = None
    if keys.wanted == "required":
        others = [name for name in columns if name not in (ids, pictures, texts, groups)]
        # Floats are labels only under a usual name.
        named = [name for name in others if name.lower() in LABEL_NAMES]
        labels = choose(
            _LABELS, keys.labels, named or [n for n in others if stored[n].kind in "biuUSO"]
        )
        if labels is None:
            raise EmbeddingsFileError(
                f"{source} must hold one label for each of its {shape[0]} vectors, or be given a "
                f"file of them (labels_path). It holds {listing(stored)}."
            )
    elif keys.wanted != "none":
        labels = choose(_LABELS, keys.labels, with_usual_name(_LABELS))
    chosen = {
        "picture": pictures,
        "text": texts,
        "vector": vectors,
        "label": labels,
        "id": ids,
        "group": groups,
    }
    return {role: name for role, name in chosen.items() if name is not None}


def _choose(
    source: Source, stored: Arrays, role: _Role, key: str | None, candidates: list[str]
) -> str | None:
    """The array of a key that was given, or the only candidate; None if there is none."""
    if key is not None:
        if key not in stored:
            raise EmbeddingsFileError(
                f"{source} has no array {key!r} ({role.option}). It holds {listing(stored)}."
            )
        return key
    named = [name for name in candidates if name.lower() in role.usual_names] or candidates
    if len(named) > 1:
        raise EmbeddingsFileError(
            f"{', '.join(map(repr, named))} could each be the {role.name} of {source}: say which "
            f"({role.option}). It holds {listing(stored)}."
        )
    return named[0] if named else None


def listing(stored: Arrays) -> str:
    """What a file holds, for messages."""
    return ", ".join(f"{name!r} {array}" for name, array in stored.items()) or "no array"


# The one array of an npy file, which has no name.
ONLY = "array"

_PART_BYTES = 1 << 20

Opener = Callable[[], AbstractContextManager[IO[bytes]]]


def open_npy(source: Source) -> dict[str, StoredArray]:
    """The array of an npy file."""
    n_bytes = source.file.stat().st_size
    return {ONLY: _stored_array(source, ONLY, lambda: source.file.open("rb"), n_bytes)}


def open_npz(source: Source) -> dict[str, StoredArray]:
    """The arrays of an npz file."""
    with zipfile.ZipFile(source.file) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    found = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        opener = partial(_open_member, source.file, member.filename)
        found[name] = _stored_array(source, name, opener, member.file_size)
    return found


@contextmanager
def _open_member(path: Path, name: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive, archive.open(name) as stream:
        yield stream
        # The archive's checksum is compared where the member ends.
        stream.read(1)


def _stored_array(source: Source, name: str, opener: Opener, n_bytes: int) -> StoredArray:
    with opener() as stream:
        shape, in_columns, dtype = _header(stream)
        there = n_bytes - stream.tell()
    needed = dtype.itemsize * math.prod(shape)
    if not dtype.hasobject and there < needed:
        raise EOFError(f"an array of shape {shape} needs {needed} bytes, and {there} are there")

    def pieces(rows: int) -> Iterator[AnyArray]:
        if dtype.hasobject:
            raise EmbeddingsFileError(
                f"{name!r} in {source} holds Python objects, which only pickle could read, and a "
                "pickle may run any program. Save labels with numpy.array(labels, dtype=str)."
            )
        with translate_errors(source), opener() as stream:
            yield from (_columns_in if in_columns else _rows_in)(stream, rows)

    return StoredArray(shape, dtype.kind, str(dtype), pieces)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns lie together in place of rows, and type."""
    is_first = np.lib.format.read_magic(stream) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = read(stream)
    return shape, in_columns, dtype


def _columns_in(stream: IO[bytes], rows: int) -> Iterator[AnyArray]:
    """Of an array whose rows are spread over the whole file; one in an archive is unpacked."""
    with ExitStack() as stack:
        file = stream
        if isinstance(stream, zipfile.ZipExtFile):
            file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".npy"))
            shutil.copyfileobj(stream, file)
            file.flush()
        yield from pieces_of(np.load(file.name, mmap_mode="r", allow_pickle=False), rows)


def pieces_of(array: AnyArray, rows: int) -> Iterator[AnyArray]:
    """An array that is in memory, or mapped to it, in pieces that are copies."""
    for first in range(0, len(array), rows):
        yield np.array(array[first : first + rows])


def _rows_in(stream: IO[bytes], rows: int) -> Iterator[AnyArray]:
    shape, _, dtype = _header(stream)
    n_rows, *row_shape = shape
    row_bytes = dtype.itemsize * math.prod(row_shape)
    for first in range(0, n_rows, rows):
        n_piece = min(rows, n_rows - first)
        content = bytearray(n_piece * row_bytes)
        read = _fill(memoryview(content), stream)
        if read < len(content):
            raise EOFError(f"it ends within row {first + read // row_bytes}")
        yield np.frombuffer(content, dtype).reshape(n_piece, *row_shape)


def _fill(content: memoryview, stream: IO[bytes]) -> int:
    """Fill a buffer from a stream; a little at a time, so that nothing is in memory twice."""
    read = 0
    while part := stream.read(min(_PART_BYTES, len(content) - read)):
        content[read : read + len(part)] = part
        read += len(part)
    return read


_KINDS = {"F": "f", "I": "i", "U": "u", "B": "b"}
# What numpy cannot hold is refused when it is read.
_NOT_IN_NUMPY = ("BF", "F8", "F6", "F4")


def open_safetensors(source: Source) -> dict[str, StoredArray]:
    """The tensors of a file, and the JSON lists of texts or of integers in its metadata."""
    found = {}
    with safe_open(source.file, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            part = file.get_slice(name)
            dtype = str(part.get_dtype())
            known = not dtype.startswith(_NOT_IN_NUMPY)
            kind = _KINDS.get(dtype[0], "O") if known else "O"
            pieces = partial(_slices, source, name, dtype, kind)
            found[name] = StoredArray(tuple(part.get_shape()), kind, dtype, pieces)
        metadata = file.metadata() or {}
    for name, text in metadata.items():
        array = _parse_list(text)
        if array is not None and name not in found:
            kind, dtype = ("U", "text") if array.dtype == object else ("i", str(array.dtype))
            found[name] = StoredArray(
                array.shape, kind, f"{dtype} in the metadata", partial(pieces_of, array)
            )
    return found


def _slices(source: Source, name: str, dtype: str, kind: str, rows: int) -> Iterator[AnyArray]:
    if kind == "O":
        raise EmbeddingsFileError(
            f"{name!r} in {source} is {dtype}, which numpy does not support. Save it as float32."
        )
    with translate_errors(source), safe_open(source.file, framework="numpy") as file:
        part = file.get_slice(name)
        n_rows = part.get_shape()[0]
        for first in range(0, n_rows, rows):
            yield part[first : min(first + rows, n_rows)]


def _parse_list(text: str) -> AnyArray | None:
    """A JSON list of strings or of integers as an array; None for anything else."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(entries, list) and entries:
        for kind in (str, int):
            if all(type(entry) is kind for entry in entries):
                return np.array(entries, object if kind is str else None)
    return None


_READERS = {
    "npz": open_npz,
    "npy": open_npy,
    "parquet": open_columns,
    "safetensors": open_safetensors,
}


def open_arrays(source: Source) -> dict[str, StoredArray]:
    """What a file of arrays holds, by name.

    Raises
    ------
    EmbeddingsFileError
        If it is broken.
    """
    with translate_errors(source):
        return _READERS[source.format](source)


class ArrayRows(RowReader):
    """The arrays of a file that were chosen, in step."""

    n_rows: int

    def __init__(self, source: Source, keys: Keys) -> None:
        stored = open_arrays(source)
        if source.format == "npy" and keys.vectors is not None:
            raise EmbeddingsFileError(
                f"{source} holds one array without a name: leave out the key {keys.vectors!r} of "
                "vectors."
            )
        chosen = _choose_arrays(source, stored, keys)
        self._arrays = {
            role: (f"{name!r} in {source}", stored[name]) for role, name in chosen.items()
        }
        where, vectors = self._arrays["vector"]
        self.n_rows = _check_length(source, where, vectors)
        for role, (column, array) in self._arrays.items():
            if role != "vector":
                check_one_each(role, column, array, self.n_rows)
        # Reading a row also finds an array that cannot be read, before anything is done with it.
        first = next(vectors.pieces(1))
        self.dimension = vectors.shape[1] or first.shape[1]

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        pieces = {role: array.pieces(rows) for role, (_, array) in self._arrays.items()}
        for first in range(0, self.n_rows, rows):
            place = partial(row_place, first)
            columns: dict[str, Any] = {}
            for role, (where, _) in self._arrays.items():
                part = next(pieces[role], None)
                if part is None:
                    raise EmbeddingsFileError(f"{where} lost rows while it was read.")
                if role == "vector":
                    columns["vectors"] = as_float32(where, part, place)
                elif role in ("picture", "text"):
                    columns[f"{role}s"] = as_texts(where, part)
                else:
                    columns[f"{role}s"] = as_names(role, where, part, place)
            yield EmbeddingChunk(**columns, first_row=first)


def check_one_each(role: str, where: str, array: StoredArray, n_rows: int) -> None:
    """Raise an error if an array does not have one entry for each vector."""
    if array.shape != (n_rows,):
        what = "the text of its path" if role == "picture" else "an integer or a text"
        raise EmbeddingsFileError(
            f"{where} must be one {role}, {what}, for each of the {n_rows} vectors. "
            f"Got {array.dtype} of shape {array.shape} instead."
        )


def _check_length(source: Source, where: str, vectors: StoredArray) -> int:
    n_rows = vectors.shape[0] if vectors.shape else None
    if len(vectors.shape) != 2 or vectors.kind not in "fiuO" or n_rows is None:  # noqa: PLR2004
        raise EmbeddingsFileError(
            f"{where} must be numbers of shape (n, d) to be vectors. "
            f"Got {vectors.dtype} of shape {vectors.shape} instead."
        )
    if 0 in vectors.shape:
        raise EmbeddingsFileError(
            f"{source} does not hold embeddings: {where} must have at least one row and one "
            f"column. Got {vectors.dtype} of shape {vectors.shape} instead."
        )
    return n_rows
