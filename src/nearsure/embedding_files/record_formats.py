"""One class for each format that records are written in; Parquet has a file of its own."""

import csv
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

from nearsure.embedding_files.parquet_records import ParquetRecords
from nearsure.embedding_files.plain_values import (
    Columns,
    cell_text,
    guarded_text,
    json_text,
    plain_column,
)


class RecordFormat(Protocol):
    """Turns columns into bytes."""

    def write(self, columns: Columns) -> None:
        """Write some rows; the columns are those of the first call."""

    def finish(self) -> None:
        """Write what comes after the last row."""

    def abandon(self) -> None:
        """Let go without writing anything more."""


def _rows(columns: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*map(plain_column, columns.values()), strict=True)


def _objects(columns: Columns) -> Iterator[str]:
    return (json_text(dict(zip(columns, row, strict=True))) for row in _rows(columns))


def _sent(stream: BinaryIO, text: str) -> None:
    # Half of a surrogate pair becomes the escape that JSON has for it.
    stream.write(text.encode("utf-8", "backslashreplace"))


class _Lines:
    """Takes the lines of a CSV writer, and ends them as other programs here do."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, line: str) -> int:
        self.written.append(line.removesuffix("\r\n") + "\n")
        return len(line)


class CsvRecords:
    """A header, then a line for each row; formulas may be guarded against."""

    def __init__(self, stream: BinaryIO, *, guard_formulas: bool = False) -> None:
        self._stream = stream
        self._cell = guarded_text if guard_formulas else cell_text
        self._begun = False

    def write(self, columns: Columns) -> None:
        """Write some rows."""
        lines = _Lines()
        # Said to end so, lines have every entry in quotes that holds one of the two.
        writer = csv.writer(lines, lineterminator="\r\n")
        if not self._begun:
            writer.writerow(map(self._cell, columns))
            self._begun = True
        writer.writerows(map(self._cell, row) for row in _rows(columns))
        _sent(self._stream, "".join(lines.written))

    def finish(self) -> None:
        """Nothing comes after the last row."""

    def abandon(self) -> None:
        """Nothing is open."""


class JsonLineRecords:
    """A JSON object on each line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, columns: Columns) -> None:
        """Write some rows."""
        _sent(self._stream, "".join(f"{line}\n" for line in _objects(columns)))

    def finish(self) -> None:
        """Nothing comes after the last row."""

    def abandon(self) -> None:
        """Nothing is open."""


class JsonRecords:
    """One JSON list of objects."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._begun = False

    def write(self, columns: Columns) -> None:
        """Write some rows."""
        text = ",\n".join(_objects(columns))
        if text:
            _sent(self._stream, (",\n" if self._begun else "[\n") + text)
            self._begun = True

    def finish(self) -> None:
        """Close the list."""
        _sent(self._stream, "\n]\n" if self._begun else "[]\n")

    def abandon(self) -> None:
        """The list stays open, so that nobody takes it for whole."""


RECORD_FORMATS: dict[str, Callable[[BinaryIO], RecordFormat]] = {
    "csv": CsvRecords,
    "jsonl": JsonLineRecords,
    "json": JsonRecords,
    "parquet": ParquetRecords,
}
