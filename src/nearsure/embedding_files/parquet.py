"""Parquet files, read and written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import RawIOBase
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.embedding_files.rows import Columns, RecordFormat, StoredArray, plain_column
from nearsure.embedding_files.source import Source, file_source, translate_errors
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.extras import require

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


# Without a buffer, pyarrow holds all of a row group's bytes at once.
BUFFER_BYTES = 1 << 20
BATCH_ROWS = 1 << 16


def arrow(module: str = "pyarrow") -> ModuleType:
    """Pyarrow, or a module of it."""
    return require(module, extra="parquet", purpose="Reading or writing a Parquet file")


@contextmanager
def open_parquet(file: Source | Path) -> Iterator["pq.ParquetFile"]:
    """Open a file; errors of pyarrow about a broken one, also later, become one sentence."""
    source = file_source(file, "parquet") if isinstance(file, Path) else file
    parquet = arrow("pyarrow.parquet")
    with (
        translate_errors(source),
        parquet.ParquetFile(source.file, buffer_size=BUFFER_BYTES, pre_buffer=False) as opened,
    ):
        yield opened


def read_rows(
    source: Source | Path,
    columns: Sequence[str] | None = None,
    *,
    first_row: int = 0,
    n_rows: int | None = None,
    batch_size: int = BATCH_ROWS,
) -> Iterator[tuple[int, "pa.RecordBatch"]]:
    """Some rows of a file in batches, each with the number of its first row in the file.

    Parameters
    ----------
    source : Source or Path
        The file.
    columns : sequence of str, optional
        By default all.
    first_row, n_rows : int, optional
        Which rows; by default all.
    batch_size : int
        The most rows that a batch has.
    """
    with open_parquet(source) as file:
        check_columns(file, source, columns or ())
        last_row = file.metadata.num_rows if n_rows is None else first_row + n_rows
        firsts = first_rows(file)
        if firsts[-1] < last_row:
            raise EmbeddingsFileError(
                f"{source} must have at least {last_row} rows. Got {firsts[-1]}: it has changed. "
                "Start again."
            )
        groups = [
            group
            for group, first in enumerate(firsts[:-1])
            if first < last_row and firsts[group + 1] > first_row
        ]
        if not groups:
            return
        start = firsts[groups[0]]
        for batch in file.iter_batches(batch_size, row_groups=groups, columns=columns):
            skipped = max(0, first_row - start)
            part = batch.slice(skipped, max(0, last_row - max(start, first_row)))
            if len(part):
                yield start + skipped, part
            start += len(batch)


def first_rows(file: "pq.ParquetFile") -> list[int]:
    """The first row of each row group of a file, and at the end the number of all rows."""
    groups = range(file.metadata.num_row_groups)
    return list(accumulate((file.metadata.row_group(g).num_rows for g in groups), initial=0))


def check_columns(file: "pq.ParquetFile", source: Source | Path, columns: Sequence[str]) -> None:
    """Raise an error that lists the columns of a file if one is missing."""
    there = file.schema_arrow.names
    missing = [name for name in columns if name not in there]
    if missing:
        raise EmbeddingsFileError(
            f"{source} must have a column {missing[0]!r}. It has {', '.join(map(repr, there))}."
        )


def open_columns(source: Source) -> dict[str, StoredArray]:
    """The columns of a file; one of lists is an array of two dimensions."""
    with open_parquet(source) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    found: dict[str, StoredArray] = {}
    for field in schema:
        if field.name in found:
            raise EmbeddingsFileError(
                f"{source} has two columns {field.name!r}: give each a name of its own."
            )
        found[field.name] = _stored_column(source, field, n_rows)
    return found


def _stored_column(source: Source, field: "pa.Field", n_rows: int) -> StoredArray:
    name, (is_list, entry, kind) = field.name, _entries(field.type)

    def read_batches(rows: int) -> Iterator[AnyArray]:
        if kind == "O":
            raise EmbeddingsFileError(
                f"The column {name!r} of {source} must hold numbers, texts or lists of numbers."
            )
        length = None
        for first_row, batch in read_rows(source, [name], batch_size=rows):
            column = batch.column(0)
            if is_list:
                vectors = _stack_lists(column, name, source, first_row, length)
                length = vectors.shape[1]
                yield vectors
            elif kind == "U":
                # Not as numpy's texts, which lose a zero byte at their end.
                yield np.array(column.to_pylist(), object)
            else:
                _check_no_nulls(column, name, source, first_row)
                yield np.asarray(column.to_numpy(zero_copy_only=False))

    length = getattr(field.type, "list_size", None)
    shape = (n_rows, length) if is_list else (n_rows,)
    return StoredArray(shape, kind, str(entry), lambda rows: even_pieces(read_batches(rows), rows))


def even_pieces(pieces: Iterator[AnyArray], rows: int) -> Iterator[AnyArray]:
    """Pieces of any lengths as pieces of `rows` rows each, the last one shorter.

    Examples
    --------
    >>> uneven = iter([np.arange(3), np.arange(3, 4), np.arange(4, 9)])
    >>> [piece.tolist() for piece in even_pieces(uneven, 4)]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    """
    waiting: list[AnyArray] = []
    n_waiting = 0
    for piece in pieces:
        rest = piece
        while n_waiting + len(rest) >= rows:
            cut = rows - n_waiting
            yield _join([*waiting, rest[:cut]])
            rest, waiting, n_waiting = rest[cut:], [], 0
        if len(rest):
            waiting.append(rest)
            n_waiting += len(rest)
    if waiting:
        yield _join(waiting)


def _join(parts: list[AnyArray]) -> AnyArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _entries(column: "pa.DataType") -> tuple[bool, "pa.DataType", str]:
    """Whether a column holds lists; the type of its entries, and numpy's letter for their kind."""
    types = arrow("pyarrow.types")
    is_list = any(
        test(column) for test in (types.is_fixed_size_list, types.is_list, types.is_large_list)
    )
    entry = column.value_type if is_list else column
    entry = entry.value_type if types.is_dictionary(entry) else entry
    kinds = {
        types.is_floating: "f",
        types.is_signed_integer: "i",
        types.is_unsigned_integer: "u",
        types.is_boolean: "b",
        types.is_string: "U",
        types.is_large_string: "U",
    }
    return is_list, entry, next((kind for test, kind in kinds.items() if test(entry)), "O")


def _stack_lists(
    lists: "pa.Array", name: str, source: Source | Path, first_row: int, length: int | None
) -> AnyArray:
    """Lists of one length, that of the rows before if it is given; a missing entry is NaN."""
    _check_no_nulls(lists, name, source, first_row)
    lengths = arrow("pyarrow.compute").list_value_length(lists).to_numpy(zero_copy_only=False)
    before, expected = (first_row, int(lengths[0])) if length is None else (first_row - 1, length)
    other = np.flatnonzero(lengths != expected)
    if other.size or not expected:
        row = int(other[0]) if other.size else 0
        raise EmbeddingsFileError(
            f"The vectors in the column {name!r} of {source} must have one length, at least 1. "
            f"Row {before} has {expected} entries, and row {first_row + row} {lengths[row]}."
        )
    values: AnyArray = lists.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(lists), expected)


def _check_no_nulls(column: "pa.Array", name: str, source: Source | Path, first_row: int) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise EmbeddingsFileError(
            f"The column {name!r} of {source} must have an entry in every row. "
            f"Row {first_row + row} has none."
        )


def read_vectors(
    batch: "pa.RecordBatch", column: str, path: Path, first_row: int, length: int | None = None
) -> AnyArray:
    """The vectors of a batch, float32 or float64, finite, shape (n, dimension)."""
    lists = batch.column(column)
    is_list, _, kind = _entries(lists.type)
    if not is_list or kind not in "fiu":
        raise EmbeddingsFileError(
            f"The column {column!r} of {path} must hold lists of numbers. Got {lists.type} instead."
        )
    vectors = _stack_lists(lists, column, path, first_row, length)
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype == np.float16 else np.float64)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = first_row + int(np.flatnonzero(~finite)[0])
        raise EmbeddingsFileError(
            f"The vectors in the column {column!r} of {path} must be finite. Row {row} has NaN, "
            f"infinity or a missing entry ({int((~finite).sum())} such rows among "
            f"{len(vectors)}): leave them out or compute them again."
        )
    return vectors


def read_values(batch: "pa.RecordBatch", column: str, path: Path, first_row: int) -> AnyArray:
    """Ids or labels of a batch, int64 or text, shape (n,)."""
    values = batch.column(column)
    if arrow("pyarrow.types").is_dictionary(values.type):
        values = values.dictionary_decode()
    _check_no_nulls(values, column, path, first_row)
    dtype = numpy_type(values.type, column, path)
    array: AnyArray = np.asarray(values.to_numpy(zero_copy_only=False))
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise EmbeddingsFileError(
            f"The column {column!r} of {path} must fit in 64 bits with a sign. Got {array.max()}."
        )
    return array.astype(dtype)


def numpy_type(entry: "pa.DataType", column: str, path: Path) -> type[np.int64] | type[str]:
    """What ids or labels of an arrow type become; columns without entries may be of no type."""
    is_list, single, kind = _entries(entry)
    if not is_list and (kind in "iub" or arrow("pyarrow.types").is_null(single)):
        return np.int64
    if not is_list and kind == "U":
        return str
    raise EmbeddingsFileError(
        f"The column {column!r} of {path} must hold integers or texts. "
        f"Got {entry if is_list else single} instead."
    )


# Rows are kept until there are so many: small row groups are slow to read and large on disk.
GROUP_ROWS = 8192


class ParquetRecords(RecordFormat):
    """A Parquet file, whose types are those of the first rows; a column of None alone is text."""

    def __init__(self, stream: BinaryIO) -> None:
        self._tap = _Tap(stream)
        self._arrow = arrow()
        self._parquet = arrow("pyarrow.parquet")
        self._schema: Any = None
        self._writer: Any = None
        self._waiting: list[Any] = []

    def write(self, columns: Columns) -> None:
        """Write some rows, at the latest when there are enough of them for a row group."""
        table = self._table(columns)
        self._schema = table.schema
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= GROUP_ROWS:
            self._write_waiting()

    def finish(self) -> None:
        """Write the rows that are left, and the directory at the end of the file."""
        self._write_waiting()
        self._open_writer().close()

    def abandon(self) -> None:
        """Close the writer, without the directory that it writes at the end."""
        self._tap.turn_off()
        if self._writer is not None:
            self._writer.close()

    def _write_waiting(self) -> None:
        if self._waiting:
            whole = self._arrow.concat_tables(self._waiting)
            self._open_writer().write_table(whole, row_group_size=max(len(whole), 1))
            self._waiting = []

    def _open_writer(self) -> Any:  # noqa: ANN401
        if self._writer is None:
            schema = self._arrow.schema([]) if self._schema is None else self._schema
            self._writer = self._parquet.ParquetWriter(self._tap, schema)
        return self._writer

    def _table(self, columns: Columns) -> Any:  # noqa: ANN401
        arrays = {}
        for name, values in columns.items():
            known = None if self._schema is None else self._schema.field(name).type
            try:
                arrays[name] = self._array(values, known)
            except (self._arrow.ArrowException, OverflowError) as error:
                kind = "of one type" if known is None else f"of type {known}, as the first are,"
                raise InvalidInputError(
                    f"The column {name!r} must be {kind} in all rows of a Parquet file: {error}."
                ) from error
        return self._arrow.table(arrays, schema=self._schema)

    def _array(self, values: Any, known: Any) -> Any:  # noqa: ANN401
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and values.ndim <= 2:  # noqa: PLR2004
            # As they are, not as Python's numbers, which are twice as wide as float32.
            array = self._arrow.array(np.ascontiguousarray(values).reshape(-1), from_pandas=True)
            if values.ndim == 2 and values.shape[1]:  # noqa: PLR2004
                array = self._arrow.FixedSizeListArray.from_arrays(array, values.shape[1])
            return array if known is None or known == array.type else array.cast(known)
        plain = plain_column(values)
        array = self._arrow.array(plain, known)
        is_null = self._arrow.types.is_null(array.type)
        return array.cast(self._arrow.string()) if is_null else array


class _Tap(RawIOBase):
    """A stream that can be turned off: a writer's last bytes would make a part look whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: BinaryIO | None = stream

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:  # noqa: ANN401
        if self._stream is not None:
            self._stream.write(content)
        return len(content)

    def turn_off(self) -> None:
        self._stream = None
