"""Rows of a Parquet file as numpy arrays, a few at a time; every fault names file and row."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.errors import EmbeddingsFileError
from nearsure.extras import require

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Without a buffer, pyarrow holds all of a row group's bytes at once.
BUFFER_BYTES = 1 << 20


def arrow(module: str = "pyarrow") -> ModuleType:
    """Pyarrow, or a module of it."""
    return require(module, extra="batch", purpose="Reading and writing Parquet files")


@contextmanager
def opened(path: Path) -> Iterator["pq.ParquetFile"]:
    """An open file; what pyarrow raises about a broken one, also later, becomes one sentence."""
    parquet, errors = arrow("pyarrow.parquet"), arrow("pyarrow.lib")
    try:
        with parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
            yield file
    except EmbeddingsFileError:
        raise
    except FileNotFoundError:
        raise EmbeddingsFileError(f"There is no file {path}: check the path.") from None
    except (OSError, errors.ArrowException) as error:
        raise EmbeddingsFileError(
            f"{path} cannot be read as Parquet: {error}. It may be cut off or of another format: "
            "copy or write it anew."
        ) from error


def read_rows(
    path: Path, columns: Sequence[str], *, first_row: int, n_rows: int, batch_size: int
) -> Iterator[tuple[int, "pa.RecordBatch"]]:
    """Some rows of a file in batches, each with the number of its first row in the file."""
    with opened(path) as file:
        check_columns(file, path, columns)
        last_row = first_row + n_rows
        groups: list[int] = []
        start = reached = 0
        for group in range(file.metadata.num_row_groups):
            n_group = file.metadata.row_group(group).num_rows
            if reached < last_row and reached + n_group > first_row:
                start = start if groups else reached
                groups.append(group)
            reached += n_group
        if reached < last_row:
            raise EmbeddingsFileError(
                f"{path} must have at least {last_row} rows. Got {reached}: it has changed. "
                "Start again."
            )
        if not groups:
            return
        for batch in file.iter_batches(batch_size, row_groups=groups, columns=list(columns)):
            skipped = max(0, first_row - start)
            part = batch.slice(skipped, max(0, last_row - max(start, first_row)))
            if len(part):
                yield start + skipped, part
            start += len(batch)


def check_columns(file: "pq.ParquetFile", path: Path, columns: Sequence[str]) -> None:
    """Raise an error that lists the columns of a file if one is missing."""
    there = file.schema_arrow.names
    missing = [name for name in columns if name not in there]
    if missing:
        raise EmbeddingsFileError(
            f"{path} must have a column {missing[0]!r}. It has {', '.join(map(repr, there))}."
        )


def vectors_in(batch: "pa.RecordBatch", column: str, path: Path, first_row: int) -> AnyArray:
    """The vectors of a batch, float32 or float64, finite, shape (n, dimension)."""
    compute, types = arrow("pyarrow.compute"), arrow("pyarrow.types")
    lists = batch.column(column)
    is_list = (types.is_fixed_size_list, types.is_list, types.is_large_list)
    entry = lists.type.value_type if any(test(lists.type) for test in is_list) else None
    if entry is None or not (types.is_floating(entry) or types.is_integer(entry)):
        raise EmbeddingsFileError(
            f"The column {column!r} of {path} must hold lists of numbers. Got {lists.type} instead."
        )
    _check_no_nulls(lists, column, path, first_row)
    lengths = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    other = np.flatnonzero(lengths != lengths[0])
    if other.size or not lengths[0]:
        row = int(other[0]) if other.size else 0
        raise EmbeddingsFileError(
            f"The vectors in the column {column!r} of {path} must have one length, at least 1. "
            f"Row {first_row} has {lengths[0]} entries, and row {first_row + row} {lengths[row]}."
        )
    # A missing entry becomes NaN.
    values: AnyArray = lists.flatten().to_numpy(zero_copy_only=False)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32 if values.dtype == np.float16 else np.float64)
    vectors = values.reshape(len(lists), -1)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = first_row + int(np.flatnonzero(~finite)[0])
        raise EmbeddingsFileError(
            f"The vectors in the column {column!r} of {path} must be finite. Row {row} has NaN, "
            f"infinity or a missing entry ({int((~finite).sum())} such rows among "
            f"{len(vectors)}): leave them out or compute them anew."
        )
    return vectors


def values_in(batch: "pa.RecordBatch", column: str, path: Path, first_row: int) -> AnyArray:
    """Ids or labels of a batch, int64 or text, shape (n,)."""
    types = arrow("pyarrow.types")
    values = batch.column(column)
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    _check_no_nulls(values, column, path, first_row)
    dtype = kind_of(values.type, column, path)
    array: AnyArray = np.asarray(values.to_numpy(zero_copy_only=False))
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise EmbeddingsFileError(
            f"The column {column!r} of {path} must fit in 64 bits with a sign. Got {array.max()}."
        )
    return array.astype(dtype)


def kind_of(entry: "pa.DataType", column: str, path: Path) -> type[np.int64] | type[str]:
    """What ids or labels of an arrow type become; columns without entries may be of no type."""
    types = arrow("pyarrow.types")
    if types.is_dictionary(entry):
        entry = entry.value_type
    if types.is_integer(entry) or types.is_boolean(entry) or types.is_null(entry):
        return np.int64
    if types.is_string(entry) or types.is_large_string(entry):
        return str
    raise EmbeddingsFileError(
        f"The column {column!r} of {path} must hold integers or texts. Got {entry} instead."
    )


def _check_no_nulls(values: "pa.Array", column: str, path: Path, first_row: int) -> None:
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise EmbeddingsFileError(
            f"The column {column!r} of {path} must have an entry in every row. "
            f"Row {first_row + row} has none."
        )
