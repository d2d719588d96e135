"""A file of labels alone, in the order of the vectors: npy, txt or csv."""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from nearsure.arrays import AnyArray
from nearsure.embedding_files.array_names import LABEL_NAMES
from nearsure.embedding_files.array_rows import stored_arrays
from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.checked_columns import check_text
from nearsure.embedding_files.numpy_arrays import ONLY
from nearsure.embedding_files.sources import Source, file_source
from nearsure.embedding_files.stored_arrays import StoredArray
from nearsure.embedding_files.written_integers import is_written_integer, written_names
from nearsure.errors import EmbeddingsFileError


def labels_in(path: Path, column: str | None) -> StoredArray:
    """The labels of a file; of a csv file those of a column, if it has several."""
    suffix = path.suffix.lower()
    if suffix not in {".npy", ".txt", ".csv"}:
        raise EmbeddingsFileError(
            f"A file of labels must end in .npy, .txt or .csv. Got {path.name} instead."
        )
    if suffix != ".csv" and column is not None:
        raise EmbeddingsFileError(
            f"{path} has no columns to choose from: leave out the key {column!r} of labels."
        )
    if suffix == ".npy":
        return stored_arrays(file_source(path))[ONLY]
    # Only a name: a txt file is nothing that embeddings could be in.
    source = Source(str(path), "txt" if suffix == ".txt" else "csv", file_source(path, "csv").path)
    return _text_array(source, partial(_lines if suffix == ".txt" else _entries, source, column))


def _text_array(source: Source, entries: Callable[[], Iterator[str]]) -> StoredArray:
    """A column of texts; one pass tells how many there are, and whether all are integers."""
    n, are_integers = 0, True
    with in_one_sentence(source):
        for entry in entries():
            n += 1
            check_text(f"Row {n} of {source}", "label", entry)
            are_integers = are_integers and is_written_integer(entry)

    def pieces(rows: int) -> Iterator[AnyArray]:
        with in_one_sentence(source):
            left = entries()
            while piece := list(islice(left, rows)):
                yield written_names(piece, are_integers=are_integers)

    kind, name = ("i", "int64") if are_integers else ("U", "text")
    return StoredArray((n,), kind, name, pieces)


def _lines(source: Source, _: str | None) -> Iterator[str]:
    with source.lines() as lines:
        for line in lines:
            yield line.rstrip("\r\n")


def _entries(source: Source, column: str | None) -> Iterator[str]:
    with source.lines() as lines:
        rows = (row for row in csv.reader(lines) if row)
        header = next(rows, [])
        place = _place_of(source, header, column)
        # Not by counting rows: a file of one label too many would pass, shifted by one.
        has_header = column is not None or (header and header[0].lower() in LABEL_NAMES)
        if header and not has_header:
            yield header[place]
        for number, row in enumerate(rows, 2):
            if len(row) <= place:
                raise EmbeddingsFileError(
                    f"Row {number} of {source} has no entry in the column of labels."
                )
            yield row[place]


def _place_of(source: Source, header: list[str], column: str | None) -> int:
    if column is not None:
        if column not in header:
            raise EmbeddingsFileError(
                f"{source} has no column {column!r} (labels_key). Its first line is {header}."
            )
        return header.index(column)
    if len(header) > 1:
        raise EmbeddingsFileError(
            f"{source} has {len(header)} columns: say which holds the labels (labels_key). "
            f"Its first line is {header}."
        )
    return 0
