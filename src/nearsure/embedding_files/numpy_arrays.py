"""Arrays of npy and npz files, a piece at a time; never pickled."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.stored_arrays import StoredArray, pieces_of
from nearsure.errors import EmbeddingsFileError

# The one array of an npy file, which has no name.
ONLY = "array"

_PART_BYTES = 1 << 20


def in_npy(source: Source) -> dict[str, StoredArray]:
    """The array of an npy file."""
    with source.file.open("rb") as stream:
        shape, in_columns, dtype = _header(stream)
        there = source.file.stat().st_size - stream.tell()
    _check_size(shape, dtype, there)
    pieces = partial(_mapped_file if in_columns else _read_file, source, dtype)
    return {ONLY: StoredArray(shape, dtype.kind, str(dtype), pieces)}


def in_npz(source: Source) -> dict[str, StoredArray]:
    """The arrays of an npz file."""
    found = {}
    with zipfile.ZipFile(source.file) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as stream:
                    shape, in_columns, dtype = _header(stream)
                    _check_size(shape, dtype, member.file_size - stream.tell())
                name = member.filename.removesuffix(".npy")
                read = _mapped_member if in_columns else _read_member
                pieces = partial(read, source, name, dtype)
                found[name] = StoredArray(shape, dtype.kind, str(dtype), pieces)
    return found


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns lie together in place of rows, and type."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, in_columns, dtype = np.lib.format.read_array_header_2_0(stream)
    return shape, in_columns, dtype


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any], there: int) -> None:
    needed = dtype.itemsize
    for length in shape:
        needed *= length
    if not dtype.hasobject and there < needed:
        raise EOFError(f"an array of shape {shape} needs {needed} bytes, and {there} are there")


def _read_file(source: Source, dtype: np.dtype[Any], rows: int) -> Iterator[AnyArray]:
    _refuse_objects(source, ONLY, dtype)
    with in_one_sentence(source), source.file.open("rb") as stream:
        yield from _pieces_in(stream, rows)


def _mapped_file(source: Source, dtype: np.dtype[Any], rows: int) -> Iterator[AnyArray]:
    """Of an array whose rows are spread over the whole file."""
    _refuse_objects(source, ONLY, dtype)
    with in_one_sentence(source):
        yield from _mapped(source.file, rows)


def _mapped(path: Path, rows: int) -> Iterator[AnyArray]:
    yield from pieces_of(np.load(path, mmap_mode="r", allow_pickle=False), rows)


def _read_member(source: Source, name: str, dtype: np.dtype[Any], rows: int) -> Iterator[AnyArray]:
    _refuse_objects(source, name, dtype)
    with (
        in_one_sentence(source),
        zipfile.ZipFile(source.file) as archive,
        archive.open(f"{name}.npy") as stream,
    ):
        yield from _pieces_in(stream, rows)
        # The archive's checksum is compared where the member ends.
        stream.read(1)


def _mapped_member(
    source: Source, name: str, dtype: np.dtype[Any], rows: int
) -> Iterator[AnyArray]:
    """Of an array whose rows are spread over the whole member, unpacked to a temporary file."""
    _refuse_objects(source, name, dtype)
    with in_one_sentence(source), tempfile.NamedTemporaryFile(suffix=".npy") as copy:
        with (
            zipfile.ZipFile(source.file) as archive,
            archive.open(f"{name}.npy") as stream,
        ):
            shutil.copyfileobj(stream, copy)
        copy.flush()
        yield from _mapped(Path(copy.name), rows)


def _pieces_in(stream: IO[bytes], rows: int) -> Iterator[AnyArray]:
    shape, _, dtype = _header(stream)
    n_rows, *row_shape = shape
    row_bytes = dtype.itemsize * int(np.prod(row_shape, dtype=np.int64))
    for first in range(0, n_rows, rows):
        n_piece = min(rows, n_rows - first)
        content = bytearray(n_piece * row_bytes)
        read = _filled(stream, memoryview(content))
        if read < len(content):
            raise EOFError(f"it ends within row {first + read // row_bytes}")
        yield np.frombuffer(content, dtype).reshape(n_piece, *row_shape)


def _filled(stream: IO[bytes], content: memoryview) -> int:
    """Fill a buffer from a stream; a little at a time, so that nothing is in memory twice."""
    read = 0
    while part := stream.read(min(_PART_BYTES, len(content) - read)):
        content[read : read + len(part)] = part
        read += len(part)
    return read


def _refuse_objects(source: Source, name: str, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise EmbeddingsFileError(
            f"{name!r} in {source} holds Python objects, which only pickle could read, and a "
            "pickle may run any program. Save labels with numpy.array(labels, dtype=str)."
        )
