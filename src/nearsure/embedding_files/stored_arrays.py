"""What a file of arrays holds, told before anything is read: npz, npy, Parquet, safetensors."""

import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open

from nearsure.arrays import AnyArray
from nearsure.errors import EmbeddingsFileError
from nearsure.extras import require

# What the libraries raise about a file that is cut off, altered or of another format. Arrow's
# errors are ValueErrors or OSErrors.
BROKEN = (zipfile.BadZipFile, zlib.error, SafetensorError, EOFError, OSError, ValueError)
# The one array of an npy file, which has no name.
ONLY = "array"

Result = TypeVar("Result")


@dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Parameters
    ----------
    shape : tuple of int or None
        Its shape; None for a length that is known only once it is read.
    kind : str
        numpy's letter for the kind of its entries: f, i, u, b, U, S; O for what is refused.
    dtype : str
        Their type, for messages.
    read : callable
        Gives the array.
    """

    shape: tuple[int | None, ...]
    kind: str
    dtype: str
    read: Callable[[], AnyArray]

    def __str__(self) -> str:
        lengths = ", ".join("?" if length is None else str(length) for length in self.shape)
        return f"{self.dtype} ({lengths})"


def stored_arrays(path: Path) -> dict[str, StoredArray]:
    """What a file holds, by name.

    Raises
    ------
    EmbeddingsFileError
        If there is no such file, its suffix is none of the four, or it is broken.
    """
    readers = {
        ".npz": _in_npz,
        ".npy": _in_npy,
        ".parquet": _in_parquet,
        ".safetensors": _in_safetensors,
    }
    if path.suffix.lower() not in readers:
        raise EmbeddingsFileError(
            f"A file of embeddings must end in {', '.join(readers)}. Got {path.name} instead."
        )
    return read_whole(path, partial(readers[path.suffix.lower()], path))


def read_whole(path: Path, read: Callable[[], Result]) -> Result:
    """The result of a read; what a broken file makes a library raise becomes one sentence."""
    if not path.is_file():
        raise EmbeddingsFileError(f"There is no file {path}: check the path.")
    try:
        return read()
    except EmbeddingsFileError:
        raise
    except BROKEN as error:
        raise EmbeddingsFileError(
            f"{path} cannot be read as {path.suffix}: {error}. It may be cut off or of another "
            "format: copy or write it anew."
        ) from error


def _in_npz(path: Path) -> dict[str, StoredArray]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as stream:
                    shape, dtype = _npy_header(stream)
                name = member.removesuffix(".npy")
                read = partial(_read_npz, path, name, dtype)
                found[name] = StoredArray(shape, dtype.kind, str(dtype), read)
    return found


def _read_npz(path: Path, name: str, dtype: np.dtype[Any]) -> AnyArray:
    _refuse_objects(path, name, dtype)
    with np.load(path, allow_pickle=False) as file:
        array: AnyArray = file[name]
    return array


def _in_npy(path: Path) -> dict[str, StoredArray]:
    with path.open("rb") as stream:
        shape, dtype = _npy_header(stream)
    return {ONLY: StoredArray(shape, dtype.kind, str(dtype), partial(_read_npy, path, dtype))}


def _read_npy(path: Path, dtype: np.dtype[Any]) -> AnyArray:
    _refuse_objects(path, ONLY, dtype)
    array: AnyArray = np.load(path, allow_pickle=False)
    return array


def _npy_header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:  # noqa: ANN401
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    return shape, dtype


def _refuse_objects(path: Path, name: str, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise EmbeddingsFileError(
            f"{name!r} in {path} holds Python objects, which only pickle could read, and a pickle "
            "may run any program. Save labels with numpy.array(labels, dtype=str)."
        )


def _in_safetensors(path: Path) -> dict[str, StoredArray]:
    kinds = {"F": "f", "I": "i", "U": "u", "B": "b"}
    found = {}
    with safe_open(path, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            part = file.get_slice(name)
            dtype = str(part.get_dtype())
            # BF16, F8 and smaller, complex: what numpy cannot hold is refused when it is read.
            known = not dtype.startswith(("BF", "F8", "F6", "F4"))
            kind = kinds.get(dtype[0], "O") if known else "O"
            read = partial(_read_tensor, path, name, dtype, kind)
            found[name] = StoredArray(tuple(part.get_shape()), kind, dtype, read)
        metadata = file.metadata() or {}
    for name, text in metadata.items():
        array = _listed(text)
        if array is not None and name not in found:
            found[name] = StoredArray(
                array.shape, array.dtype.kind, f"{array.dtype} in the metadata", array.copy
            )
    return found


def _read_tensor(path: Path, name: str, dtype: str, kind: str) -> AnyArray:
    if kind == "O":
        raise EmbeddingsFileError(
            f"{name!r} in {path} is {dtype}, which numpy does not know. Save it as float32."
        )
    with safe_open(path, framework="numpy") as file:
        tensor: AnyArray = file.get_tensor(name)
    return tensor


def _listed(text: str) -> AnyArray | None:
    """The array that a JSON list of strings or of integers stands for."""
    try:
        entries = json.loads(text)
    except ValueError:
        return None
    if isinstance(entries, list) and entries:
        for kind in (str, int):
            if all(type(entry) is kind for entry in entries):
                return np.array(entries)
    return None


def _in_parquet(path: Path) -> dict[str, StoredArray]:
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Reading a Parquet file")
    types = require("pyarrow.types", extra="parquet", purpose="Reading a Parquet file")
    with parquet.ParquetFile(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    found = {}
    for field in schema:
        entry_type = field.type
        shape: tuple[int | None, ...] = (n_rows,)
        if types.is_fixed_size_list(entry_type):
            shape, entry_type = (n_rows, entry_type.list_size), entry_type.value_type
        elif types.is_list(entry_type) or types.is_large_list(entry_type):
            shape, entry_type = (n_rows, None), entry_type.value_type
        if types.is_dictionary(entry_type):
            entry_type = entry_type.value_type
        is_text = types.is_string(entry_type) or types.is_large_string(entry_type)
        kind = "U" if is_text else np.dtype(_numpy_name(entry_type)).kind
        read = partial(_read_column, path, field.name, len(shape) > 1, kind)
        found[field.name] = StoredArray(shape, kind, str(entry_type), read)
    return found


def _numpy_name(arrow_type: Any) -> str:  # noqa: ANN401
    known = {"float": "float32", "double": "float64", "halffloat": "float16", "bool": "bool"}
    name = known.get(str(arrow_type), str(arrow_type))
    return name if name.startswith(("float", "int", "uint", "bool")) else "object"


def _read_column(path: Path, name: str, is_list: bool, kind: str) -> AnyArray:  # noqa: FBT001
    if kind == "O":
        raise EmbeddingsFileError(
            f"The column {name!r} of {path} must hold numbers, texts or lists of numbers."
        )
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Reading a Parquet file")
    column = parquet.read_table(path, columns=[name]).column(name).combine_chunks()
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise EmbeddingsFileError(
            f"The column {name!r} of {path} must have an entry in every row. Row {row} has none."
        )
    if not is_list:
        return np.asarray(column.to_numpy(zero_copy_only=False), str if kind == "U" else None)
    compute = require("pyarrow.compute", extra="parquet", purpose="Reading a Parquet file")
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths != lengths[0]).any():
        row = int(np.flatnonzero(lengths != lengths[0])[0])
        raise EmbeddingsFileError(
            f"The vectors in the column {name!r} of {path} must have one length, {lengths[0]} as "
            f"in row 0. Row {row} has {lengths[row]} entries."
        )
    # A missing entry becomes NaN, which the check of the vectors finds.
    values: AnyArray = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(lengths), -1)
