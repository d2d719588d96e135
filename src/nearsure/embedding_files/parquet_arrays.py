"""Columns of Parquet files, a batch of rows at a time."""

from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.stored_arrays import StoredArray, in_even_pieces
from nearsure.errors import EmbeddingsFileError
from nearsure.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

# Without a buffer, pyarrow holds all of a row group's bytes at once.
BUFFER_BYTES = 1 << 20


def arrow(module: str = "pyarrow") -> ModuleType:
    """Pyarrow, or a module of it."""
    return require(module, extra="parquet", purpose="Reading or writing a Parquet file")


def in_parquet(source: Source) -> dict[str, StoredArray]:
    """The columns of a file; one of lists is an array of two dimensions."""
    types = arrow("pyarrow.types")
    with arrow("pyarrow.parquet").ParquetFile(source.file) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    found: dict[str, StoredArray] = {}
    for field in schema:
        if field.name in found:
            raise EmbeddingsFileError(
                f"{source} has two columns {field.name!r}: give each a name of its own."
            )
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
        read = partial(_column_pieces, source, field.name, len(shape) > 1, kind)
        found[field.name] = StoredArray(shape, kind, str(entry_type), read)
    return found


def _numpy_name(arrow_type: Any) -> str:  # noqa: ANN401
    known = {"float": "float32", "double": "float64", "halffloat": "float16", "bool": "bool"}
    name = known.get(str(arrow_type), str(arrow_type))
    return name if name.startswith(("float", "int", "uint", "bool")) else "object"


def _column_pieces(
    source: Source,
    name: str,
    is_list: bool,  # noqa: FBT001
    kind: str,
    rows: int,
) -> Iterator[AnyArray]:
    if kind == "O":
        raise EmbeddingsFileError(
            f"The column {name!r} of {source} must hold numbers, texts or lists of numbers."
        )
    yield from in_even_pieces(_batches(source, name, is_list, kind, rows), rows)


def _batches(
    source: Source,
    name: str,
    is_list: bool,  # noqa: FBT001
    kind: str,
    rows: int,
) -> Iterator[AnyArray]:
    parquet = arrow("pyarrow.parquet")
    options = {"buffer_size": BUFFER_BYTES, "pre_buffer": False}
    first_row, length = 0, None
    with in_one_sentence(source), parquet.ParquetFile(source.file, **options) as file:
        for batch in file.iter_batches(rows, columns=[name]):
            column = batch.column(0)
            if is_list:
                _check_no_nulls(source, name, column, first_row)
                length = _one_length(source, name, column, first_row, length)
                # A missing entry becomes NaN, which the check of the vectors finds.
                values: AnyArray = column.flatten().to_numpy(zero_copy_only=False)
                yield values.reshape(len(column), length)
            elif kind == "U":
                # Not as numpy's texts, which lose a zero byte at their end.
                yield np.array(column.to_pylist(), object)
            else:
                _check_no_nulls(source, name, column, first_row)
                yield np.asarray(column.to_numpy(zero_copy_only=False))
            first_row += len(column)


def _check_no_nulls(source: Source, name: str, column: "pa.Array", first_row: int) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise EmbeddingsFileError(
            f"The column {name!r} of {source} must have an entry in every row. "
            f"Row {first_row + row} has none."
        )


def _one_length(
    source: Source, name: str, column: "pa.Array", first_row: int, expected: int | None
) -> int:
    """The length of every list of a batch, which must be that of the batches before."""
    lengths = arrow("pyarrow.compute").list_value_length(column).to_numpy(zero_copy_only=False)
    length = int(lengths[0]) if expected is None else expected
    other = np.flatnonzero(lengths != length)
    if other.size:
        row = int(other[0])
        raise EmbeddingsFileError(
            f"The vectors in the column {name!r} of {source} must have one length, {length} as "
            f"in row 0. Row {first_row + row} has {lengths[row]} entries."
        )
    return length
