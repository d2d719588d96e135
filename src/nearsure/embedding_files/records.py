"""`open_records`: rows written as CSV, JSON lines, JSON or Parquet."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO, TypeAlias, cast

from nearsure.atomic import Draft
from nearsure.embedding_files.parquet import ParquetRecords, arrow
from nearsure.embedding_files.rows import Columns, RecordFormat, plain_column
from nearsure.errors import EmbeddingsFileError, InvalidInputError

if TYPE_CHECKING:
    from typing import Self

# What makes a cell a formula in a spreadsheet.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def json_text(value: Any) -> str:  # noqa: ANN401
    """A plain value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def guard_formula(value: Any) -> Any:  # noqa: ANN401
    """A cell as `cell_text` makes it, with ' before a text that a spreadsheet would compute.

    Examples
    --------
    >>> guard_formula("=1+1"), guard_formula("a=b"), guard_formula(-1)
    ("'=1+1", 'a=b', -1)
    """
    cell = cell_text(value)
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def cell_text(value: Any) -> Any:  # noqa: ANN401
    """A plain value as a cell of a CSV file: nothing for None, JSON for what has parts."""
    if isinstance(value, bool | list | dict):
        return json_text(value)
    return value


def _rows(columns: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*map(plain_column, columns.values()), strict=True)


def _objects(columns: Columns) -> Iterator[str]:
    return (json_text(dict(zip(columns, row, strict=True))) for row in _rows(columns))


class _Lines:
    """Lines of a CSV writer, ended with a line feed alone."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, line: str) -> int:
        self.written.append(line.removesuffix("\r\n") + "\n")
        return len(line)


class _TextRecords(RecordFormat):
    """A text in UTF-8."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._has_begun = False

    def _send(self, text: str) -> None:
        # Half of a surrogate pair becomes the escape that JSON has for it.
        self._stream.write(text.encode("utf-8", "backslashreplace"))


class CsvRecords(_TextRecords):
    """A header, then a line for each row; formulas may be guarded against."""

    def __init__(self, stream: BinaryIO, *, guard_formulas: bool = False) -> None:
        super().__init__(stream)
        self._cell = guard_formula if guard_formulas else cell_text

    def write(self, columns: Columns) -> None:
        """Write some rows."""
        lines = _Lines()
        # With this end, the writer quotes every entry that holds one of the two characters.
        writer = csv.writer(lines, lineterminator="\r\n")
        if not self._has_begun:
            writer.writerow(map(self._cell, columns))
            self._has_begun = True
        writer.writerows(map(self._cell, row) for row in _rows(columns))
        self._send("".join(lines.written))


class JsonLineRecords(_TextRecords):
    """A JSON object on each line."""

    def write(self, columns: Columns) -> None:
        """Write some rows."""
        self._send("".join(f"{line}\n" for line in _objects(columns)))


class JsonRecords(_TextRecords):
    """One JSON list of objects; after an error it stays open, so that it cannot pass for whole."""

    def write(self, columns: Columns) -> None:
        """Write some rows."""
        text = ",\n".join(_objects(columns))
        if text:
            self._send((",\n" if self._has_begun else "[\n") + text)
            self._has_begun = True

    def finish(self) -> None:
        """Close the list."""
        self._send("\n]\n" if self._has_begun else "[]\n")


RECORD_FORMATS: dict[str, Callable[[BinaryIO], RecordFormat]] = {
    "csv": CsvRecords,
    "jsonl": JsonLineRecords,
    "json": JsonRecords,
    "parquet": ParquetRecords,
}


@dataclass(frozen=True)
class Destination:
    """A stream, and the draft that it writes; without one, standard output, which stays open."""

    stream: BinaryIO
    draft: Draft | None = None


def _open_file(path: Path) -> Destination:
    if path.is_dir():
        raise EmbeddingsFileError(f"{path} is a folder: name a file in it.")
    try:
        draft = Draft.of(path)
        return Destination(draft.path.open("wb"), draft)
    except OSError as error:
        raise EmbeddingsFileError(
            f"{path} cannot be written: {error.strerror or error}."
        ) from error


def _standard_output(format_name: str) -> Destination:
    text = sys.stdout
    if text is None or text.closed:
        raise EmbeddingsFileError("Standard output is closed: name a file to write to.")
    text.flush()
    # A notebook's takes text alone.
    has_bytes = hasattr(text, "buffer")
    if format_name == "parquet" and (not has_bytes or text.isatty()):
        raise InvalidInputError(
            "A Parquet file must not be written to a terminal: name a file, or pipe it on."
        )
    return Destination(text.buffer if has_bytes else cast("BinaryIO", _AsText(text)))


def _silence(stream: BinaryIO) -> None:
    """Send what Python still buffers for a reader that has gone nowhere, without an error."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _AsText(RawIOBase):
    """Bytes of UTF-8 written to a stream of text, whole characters at a time."""

    def __init__(self, text: TextIO) -> None:
        self._text = text

    def write(self, content: Any) -> int:  # noqa: ANN401
        self._text.write(bytes(content).decode("utf-8"))
        return len(content)

    def flush(self) -> None:
        self._text.flush()


RecordFormatName: TypeAlias = Literal["csv", "jsonl", "json", "parquet"]


class RecordWriter:
    """Open records, which `open_records` makes; a context manager.

    A file appears when the block ends well; after any exception, also Ctrl-C, there is none, or
    the one that was there before.
    """

    def __init__(self, name: str, destination: Destination, records: RecordFormat) -> None:
        self._name = name
        self._stream, self._draft = destination.stream, destination.draft
        self._records = records
        self._columns: list[str] | None = None
        self._is_wanted = True

    @property
    def is_wanted(self) -> bool:
        """False once the reader of standard output has gone, as ``| head`` does."""
        return self._is_wanted

    def write(self, columns: Columns) -> None:
        """Write some rows.

        Parameters
        ----------
        columns : mapping of name to values
            Equally long sequences or arrays; the same names in every call. Values may be numbers,
            texts, None, or lists of these. NaN is written as None, and so is infinity, which only
            Parquet can hold.
        """
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidInputError(f"Columns must be equally long. Got {lengths} instead.")
        if self._columns is None:
            self._columns = list(columns)
        if sorted(columns) != sorted(self._columns):
            raise InvalidInputError(
                f"Every call must write the same columns, {self._columns}. "
                f"Got {list(columns)} instead."
            )
        in_order = {name: columns[name] for name in self._columns}
        self._write_unless_unread(partial(self._records.write, in_order), self._stream.flush)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write_unless_unread(self._records.finish, self._stream.flush, self._commit)
        finally:
            # After a commit nothing is left to be abandoned or discarded.
            self._records.abandon()
            # On a full or lost disk this fails, too, and would hide why.
            with suppress(OSError):
                (self._stream.flush if self._draft is None else self._stream.close)()
            if self._draft is not None:
                self._draft.discard()

    def _commit(self) -> None:
        if self._draft is not None:
            self._stream.close()
            self._draft.commit()

    def _write_unless_unread(self, *actions: Callable[[], None]) -> None:
        try:
            for action in actions:
                if self._is_wanted:
                    action()
        except BrokenPipeError:
            self._is_wanted = False
            if self._draft is None:
                _silence(self._stream)
        except OSError as error:
            raise EmbeddingsFileError(
                f"{self._name} cannot be written: {error.strerror or error}."
            ) from error


def open_records(
    destination: str | Path | None,
    format: RecordFormatName,  # noqa: A002
    *,
    guard_formulas: bool = False,
) -> RecordWriter:
    """Open a file, or standard output, to write records to.

    Parameters
    ----------
    destination : path or None
        A file, which is written under another name beside it and renamed at the end; its folder
        is made if need be. None is standard output.
    format : {"csv", "jsonl", "json", "parquet"}
        A CSV file has a header, nothing for None and JSON for lists; "json" is one list of
        objects. The types of a Parquet file are those of the first rows.
    guard_formulas : bool
        Of "csv" alone: whether a text that begins with = + - @, a tab or a carriage return gets a '
        before it, so that no spreadsheet computes it. Numbers stay as they are.

    Returns
    -------
    RecordWriter

    Raises
    ------
    EmbeddingsFileError
        If the file cannot be written.

    Examples
    --------
    >>> with open_records(None, "csv") as records:
    ...     records.write({"label": ["owl", "wren"], "confidence": [0.9, 0.7]})
    label,confidence
    owl,0.9
    wren,0.7
    """
    if format not in RECORD_FORMATS:
        raise InvalidInputError(
            f"The 'format' parameter must be one of {', '.join(RECORD_FORMATS)}. "
            f"Got {format!r} instead."
        )
    if guard_formulas and format != "csv":
        raise InvalidInputError(
            f"The 'guard_formulas' parameter applies only to the format 'csv'. Got it for "
            f"{format!r}: leave it out."
        )
    if format == "parquet":
        arrow("pyarrow.parquet")  # before a file is made
    if destination is None:
        name, target = "Standard output", _standard_output(format)
    else:
        name, target = str(destination), _open_file(Path(destination))
    records = RECORD_FORMATS[format](target.stream)
    if guard_formulas:
        records = CsvRecords(target.stream, guard_formulas=True)
    return RecordWriter(name, target, records)
