"""Records, a few rows at a time, to a file or standard output."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, Self, TypeAlias

from nearsure.embedding_files.destinations import StandardOutput, WholeFile
from nearsure.embedding_files.plain_values import Columns
from nearsure.embedding_files.record_formats import RECORD_FORMATS, CsvRecords, RecordFormat
from nearsure.errors import EmbeddingsFileError, InvalidInputError

RecordFormatName: TypeAlias = Literal["csv", "jsonl", "json", "parquet"]


class RecordWriter:
    """Open records, which `open_records` makes; a context manager.

    A file appears when the block ends well; after any exception, also Ctrl-C, there is none, or
    the one that was there before.
    """

    def __init__(
        self, name: str, destination: WholeFile | StandardOutput, records: RecordFormat
    ) -> None:
        self._name = name
        self._destination = destination
        self._records = records
        self._columns: list[str] | None = None
        self._is_wanted = True

    @property
    def is_wanted(self) -> bool:
        """False once whoever reads standard output has gone, as ``| head`` does."""
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
        self._unless_nobody_reads(
            partial(self._records.write, in_order), self._destination.stream.flush
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._unless_nobody_reads(self._records.finish, self._destination.keep)
            except BaseException:
                self._give_up()
                raise
        if kind is not None or not self._is_wanted:
            self._give_up()

    def _give_up(self) -> None:
        self._records.abandon()
        self._destination.drop()

    def _unless_nobody_reads(self, *actions: Callable[[], None]) -> None:
        try:
            for action in actions:
                if self._is_wanted:
                    action()
        except BrokenPipeError:
            self._is_wanted = False
            self._destination.forsake()
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
            f"The 'guard_formulas' parameter is of the format 'csv'. Got it for {format!r}: leave "
            "it out."
        )
    target: WholeFile | StandardOutput
    if destination is None:
        output = target = StandardOutput()
        name = "Standard output"
        if format == "parquet" and not output.takes_bytes:
            raise InvalidInputError(
                "A Parquet file must not be written to a terminal: name a file, or pipe it on."
            )
    else:
        target, name = WholeFile(Path(destination)), str(destination)
    try:
        records = (
            CsvRecords(target.stream, guard_formulas=True)
            if guard_formulas
            else RECORD_FORMATS[format](target.stream)
        )
        return RecordWriter(name, target, records)
    except BaseException:
        target.drop()
        raise
