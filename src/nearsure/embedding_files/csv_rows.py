"""Rows of a CSV file with a header: id, label, image, and the entries of the vector."""

import csv
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.csv_header import CsvColumns, csv_columns
from nearsure.embedding_files.embedding_chunk import EmbeddingChunk
from nearsure.embedding_files.json_values import json_vector, kind_of_name, parsed_json
from nearsure.embedding_files.keys import Keys
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.text_rows import TextRow, chunks_of
from nearsure.embedding_files.written_integers import is_written_integer
from nearsure.errors import EmbeddingsFileError


@dataclass(frozen=True)
class _NamesAreIntegers:
    """Whether all labels, and all ids, are written as integers."""

    labels: bool
    ids: bool


class CsvRows:
    """The lines of a file.

    Labels, and ids, are integers if all of the file are written as such, else texts. That takes a
    pass over the file before the first row is given, which ends early if they are texts.
    """

    def __init__(self, source: Source, keys: Keys) -> None:
        self._source = source
        self._header = csv_header(source)
        self._columns = csv_columns(source, self._header, keys)
        with closing(csv_records(source, self._header)) as records:
            self.dimension = len(self._vector(*next(records)))
        self._are_integers, self.n_rows = self._look_through()

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        return chunks_of(self._rows(), rows, where=str(self._source), dimension=self.dimension)

    def close(self) -> None:
        """Nothing is held between chunks."""

    def _look_through(self) -> tuple[_NamesAreIntegers, int | None]:
        columns = self._columns
        labels, ids = columns.label is not None, columns.id is not None
        n_rows = 0
        for _, row in csv_records(self._source, self._header):
            if not labels and not ids:
                return _NamesAreIntegers(labels=False, ids=False), None
            labels = labels and columns.label is not None and is_written_integer(row[columns.label])
            ids = ids and columns.id is not None and is_written_integer(row[columns.id])
            n_rows += 1
        return _NamesAreIntegers(labels=labels, ids=ids), n_rows

    def _rows(self) -> Iterator[TextRow]:
        columns, are_integers = self._columns, self._are_integers
        for place, row in csv_records(self._source, self._header):
            yield TextRow(
                place,
                self._vector(place, row),
                _name(place, row, columns.label, "label", is_integer=are_integers.labels),
                _name(place, row, columns.id, "id", is_integer=are_integers.ids),
                None if columns.picture is None else row[columns.picture] or None,
            )

    def _vector(self, place: str, row: list[str]) -> FloatArray:
        columns: CsvColumns = self._columns
        if columns.list is not None:
            where = f"{self._header[columns.list]!r} in {place[0].lower()}{place[1:]}"
            return json_vector(place, parsed_json(where, row[columns.list]))
        cells = [row[column] for column in columns.numbers]
        try:
            return np.array(cells, np.float64)
        except ValueError:
            for column in columns.numbers:
                _check_number(place, self._header[column], row[column])
            raise


def csv_header(source: Source) -> list[str]:
    """The names of the columns, from the first line."""
    with in_one_sentence(source), source.lines() as lines:
        header = next((row for row in csv.reader(lines, strict=True) if row), None)
    if header is None:
        raise EmbeddingsFileError(f"{source} is empty: it must begin with a line of names.")
    return header


def csv_records(source: Source, header: list[str]) -> Generator[tuple[str, list[str]], None, None]:
    """The rows below the header, each with its place for messages; blank lines are passed over."""
    n_rows = 0
    with in_one_sentence(source), source.lines() as lines:
        reader = csv.reader(lines, strict=True)
        next(row for row in reader if row)
        for row in reader:
            if not row:
                continue
            n_rows += 1
            place = f"Line {reader.line_num} of {source}"
            if len(row) != len(header):
                raise EmbeddingsFileError(
                    f"{place} has {len(row)} entries, and the header names {len(header)} columns."
                )
            yield place, row
    if not n_rows:
        raise EmbeddingsFileError(f"{source} has a header, and no row below it.")


def _name(
    place: str, row: list[str], column: int | None, role: str, *, is_integer: bool
) -> int | str | None:
    if column is None:
        return None
    kind_of_name(place, role, row[column])
    return int(row[column]) if is_integer else row[column]


def _check_number(place: str, column: str, cell: str) -> None:
    try:
        float(cell)
    except ValueError:
        raise EmbeddingsFileError(
            f"{place} must have a number in the column {column!r}. Got {cell!r} instead. Every "
            "column is part of the vector, but those called id, label and image, or named by "
            "labels_key, ids_key and pictures_key: leave out others."
        ) from None
