"""Records as a Parquet file."""

from io import RawIOBase
from typing import Any, BinaryIO

import numpy as np

from nearsure.embedding_files.parquet_arrays import arrow
from nearsure.embedding_files.plain_values import Columns, plain_column
from nearsure.errors import InvalidInputError

# Rows are kept until there are so many: small row groups are slow to read and large on disk.
GROUP_ROWS = 8192


class ParquetRecords:
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
        self._opened().close()

    def abandon(self) -> None:
        """Close the writer, whose directory goes nowhere."""
        self._tap.turn_off()
        if self._writer is not None:
            self._writer.close()

    def _write_waiting(self) -> None:
        if self._waiting:
            whole = self._arrow.concat_tables(self._waiting)
            self._opened().write_table(whole, row_group_size=max(len(whole), 1))
            self._waiting = []

    def _opened(self) -> Any:  # noqa: ANN401
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
