"""Tables of text: CSV, JSON lines and files of labels."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.embedding_files.arrays import LABEL_NAMES, ONLY, open_arrays
from nearsure.embedding_files.rows import EmbeddingChunk, Keys, StoredArray, as_float32, check_text
from nearsure.embedding_files.source import Source, file_source, translate_errors
from nearsure.errors import EmbeddingsFileError

LIST_NAMES = ("vector", "embedding")


@dataclass(frozen=True)
class CsvColumns:
    """Places of the columns: of names, and of the numbers or the one list that is the vector."""

    label: int | None
    id: int | None
    picture: int | None
    numbers: list[int]
    list: int | None


def csv_columns(source: Source, header: list[str], keys: Keys) -> CsvColumns:
    """Read a header.

    Raises
    ------
    EmbeddingsFileError
        If it is no header, names a column twice or not at all, or lacks one that was asked for.
    """
    _check_is_header(source, header)
    label = _place(source, header, keys.labels, ("label", "labels_key"))
    ids = _place(source, header, keys.ids, ("id", "ids_key"))
    picture = _place(source, header, keys.pictures, ("image", "pictures_key"))
    if keys.need_labels and label is None:
        raise EmbeddingsFileError(_lacking_column(source, header, "label", "labels_key"))
    places = None
    if keys.vectors is not None:
        places = [_place(source, header, keys.vectors, ("vector", "vectors_key"))]
    else:
        places = [place for place, name in enumerate(header) if name.lower() in LIST_NAMES]
    if len(places) > 1:
        raise EmbeddingsFileError(
            f"{source} has a column 'vector' and one 'embedding': say which (vectors_key)."
        )
    numbers = [place for place in range(len(header)) if place not in (label, ids, picture)]
    if not numbers:
        raise EmbeddingsFileError(
            f"{source} must have columns for the vector, of numbers, or one called "
            f"{' or '.join(LIST_NAMES)} of JSON lists. It has {_listed(header)}."
        )
    taken = label if keys.take_labels else None
    return CsvColumns(taken, ids, picture, numbers, places[0] if places else None)


def _check_is_header(source: Source, header: list[str]) -> None:
    as_pandas_counts = len(header) > 1 and header == [str(i) for i in range(len(header))]
    if all(_is_number(name) for name in header) and not as_pandas_counts:
        raise EmbeddingsFileError(
            f"{source} must begin with a line of names, such as id,label,x0,x1. "
            f"Got {_listed(header)} instead."
        )
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise EmbeddingsFileError(
            f"{source} has more than one column {twice[0]!r}: give each a name of its own."
        )
    for place, name in enumerate(header, 1):
        # Where a table was saved with the numbers of its rows, they would enter every vector.
        if not name.strip() or name.startswith("Unnamed:"):
            raise EmbeddingsFileError(
                f"Column {place} of {source} has no name: call it id, or leave it out (in pandas: "
                "to_csv(..., index=False))."
            )
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise EmbeddingsFileError(
            f"{source} must have commas between its columns. Its first line is {header[0]!r}."
        )


def _place(
    source: Source, header: list[str], key: str | None, usual_and_option: tuple[str, str]
) -> int | None:
    usual, option = usual_and_option
    if key is None:
        same = [place for place, name in enumerate(header) if name.lower() in (usual, f"{usual}s")]
        if len(same) > 1:
            raise EmbeddingsFileError(
                f"{' and '.join(repr(header[place]) for place in same)} could each be the {usual} "
                f"in {source}: say which ({option})."
            )
        return same[0] if same else None
    if key not in header:
        raise EmbeddingsFileError(_lacking_column(source, header, key, option))
    return header.index(key)


def _lacking_column(source: Source, header: list[str], key: str, option: str) -> str:
    return f"{source} has no column {key!r} ({option}). It has {_listed(header)}."


def _listed(header: list[str], longest: int = 12) -> str:
    shown = ", ".join(map(repr, header[:longest]))
    return shown if len(header) <= longest else f"{shown} and {len(header) - longest} more"


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


_NUMBERS = {int, float}
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_LONGEST_SHOWN = 60

# Where an object stands, for messages, and the object.
PlacedObject: TypeAlias = tuple[str, dict[str, Any]]


def json_objects(source: Source) -> Generator[PlacedObject, None, None]:
    """The objects of a file of JSON lines; blank lines are passed over."""
    with translate_errors(source), source.lines() as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"Line {number} of {source}"
            value = parse_json(place, line)
            if not isinstance(value, dict):
                raise EmbeddingsFileError(
                    f'{place} must be a JSON object such as {{"vector": [0.1, 0.7]}}. '
                    f"Got {shown(value)} instead."
                )
            yield place, value


def parse_json(place: str, text: str) -> Any:  # noqa: ANN401
    """The value of a text of JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EmbeddingsFileError(
            f"{place} is not JSON: {error}. It may be cut off, or the file of another format."
        ) from error


def json_vector(place: str, value: Any) -> FloatArray:  # noqa: ANN401
    """A list of numbers as a vector; that they are finite is checked later."""
    if not isinstance(value, list) or not value or not set(map(type, value)) <= _NUMBERS:
        wrong = value
        if isinstance(value, list):
            wrong = next((entry for entry in value if type(entry) not in _NUMBERS), value)
        raise EmbeddingsFileError(
            f"{place} must have a list of numbers as its vector. Got {shown(wrong)}"
            f"{' among them' if wrong is not value else ' instead'}."
        )
    try:
        return np.array(value, np.float64)
    except OverflowError:
        raise EmbeddingsFileError(
            f"{place} has a value beyond the range of float32 in its vector."
        ) from None


def kind_of_name(place: str, role: str, value: Any) -> type[int | str]:  # noqa: ANN401
    """Whether a label or an id is an integer or a text; anything else is refused."""
    if value is None or value == "":
        raise EmbeddingsFileError(f"{place} has no {role}: give one in every row, or in none.")
    if type(value) is str:
        check_text(place, role, value)
    if type(value) is int and not _SMALLEST <= value <= _LARGEST:
        raise EmbeddingsFileError(
            f"{place} has the {role} {shown(value)}, which does not fit in 64 bits: write all of "
            "them as texts."
        )
    if type(value) not in (int, str):
        raise EmbeddingsFileError(
            f"{place} must have an integer or a text as its {role}. Got {shown(value)} instead."
        )
    return type(value)


class NameColumn:
    """Checks labels or ids one by one; all must have the type of the first."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._kind: tuple[str, type[int | str]] | None = None

    def checked(self, place: str, value: Any) -> int | str:  # noqa: ANN401
        """A value, if it is of the type of those before."""
        kind = kind_of_name(place, self._role, value)
        if self._kind is None:
            self._kind = (place, kind)
        first_place, first_kind = self._kind
        if kind is not first_kind:
            raise EmbeddingsFileError(
                f"{place} has the {self._role} {shown(value)}, and {first_place[0].lower()}"
                f"{first_place[1:]} {_ARTICLES[first_kind]}: write all as integers or all as texts."
            )
        result: int | str = value
        return result


_ARTICLES = {int: "an integer", str: "a text"}


def name_array(values: list[int | str]) -> AnyArray:
    """Checked names of one type as an array."""
    is_text = bool(values) and isinstance(values[0], str)
    return np.array(values, str if is_text else np.int64)


def shown(value: Any) -> str:  # noqa: ANN401
    """A value as JSON, cut to what fits in a message."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


_NOTHING = np.empty(0)


@dataclass(frozen=True, eq=False, slots=True)
class TextRow:
    """A row, and where it stands; labels and ids are there in all rows or in none."""

    place: str
    vector: FloatArray
    label: int | str | None
    id: int | str | None
    picture: str | None


def chunks_of(
    rows: Iterator[TextRow], n_chunk: int, *, where: str, dimension: int
) -> Iterator[EmbeddingChunk]:
    """Chunks of `n_chunk` rows, the last one shorter."""
    vectors = np.empty((n_chunk, dimension))
    first, gathered = 0, list[TextRow]()
    for row in rows:
        if len(row.vector) != dimension:
            raise EmbeddingsFileError(
                f"{row.place} has a vector of {len(row.vector)} numbers, and the first row one of "
                f"{dimension}: all must have the same length."
            )
        # Straight to one array, so that no vector is held twice.
        vectors[len(gathered)] = row.vector
        gathered.append(replace(row, vector=_NOTHING))
        if len(gathered) == n_chunk:
            yield _chunk(gathered, vectors, where, first)
            first, gathered = first + n_chunk, []
    if gathered:
        yield _chunk(gathered, vectors[: len(gathered)], where, first)


def _chunk(rows: list[TextRow], vectors: FloatArray, where: str, first: int) -> EmbeddingChunk:
    pictures = [row.picture for row in rows]
    return EmbeddingChunk(
        as_float32(where, vectors, lambda row: rows[row].place),
        _names([row.label for row in rows]),
        _names([row.id for row in rows]),
        pictures if any(pictures) else None,
        first,
    )


def _names(values: list[int | str | None]) -> AnyArray | None:
    there = [value for value in values if value is not None]
    return name_array(there) if there else None


def is_written_integer(entry: str) -> bool:
    """Whether a text is how an integer of 64 bits is written, so that nothing of it is lost.

    Examples
    --------
    >>> [is_written_integer(entry) for entry in ("7", "-12", "007", "7.0", " 7", "1e3")]
    [True, True, False, False, False, False]
    """
    try:
        integer = int(entry)
    except ValueError:
        return False
    # int also takes spaces, underscores, leading zeros and the digits of other scripts.
    return str(integer) == entry and _SMALLEST <= integer <= _LARGEST


def parse_names(entries: Sequence[str], *, are_integers: bool) -> AnyArray:
    """Entries as integers or as texts, as was found for the whole column."""
    return np.array(list(map(int, entries)), np.int64) if are_integers else np.array(entries, str)


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
        self._integer_labels, self._integer_ids, self.n_rows = self._scan()

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        return chunks_of(self._rows(), rows, where=str(self._source), dimension=self.dimension)

    def close(self) -> None:
        """Nothing is held between chunks."""

    def _scan(self) -> tuple[bool, bool, int | None]:
        """Whether all labels, and all ids, are written as integers; and how many rows there are."""
        columns = self._columns
        labels, ids = columns.label is not None, columns.id is not None
        n_rows = 0
        for _, row in csv_records(self._source, self._header):
            if not labels and not ids:
                return False, False, None
            labels = labels and columns.label is not None and is_written_integer(row[columns.label])
            ids = ids and columns.id is not None and is_written_integer(row[columns.id])
            n_rows += 1
        return labels, ids, n_rows

    def _rows(self) -> Iterator[TextRow]:
        columns = self._columns
        for place, row in csv_records(self._source, self._header):
            yield TextRow(
                place,
                self._vector(place, row),
                _name(place, row, columns.label, "label", is_integer=self._integer_labels),
                _name(place, row, columns.id, "id", is_integer=self._integer_ids),
                None if columns.picture is None else row[columns.picture] or None,
            )

    def _vector(self, place: str, row: list[str]) -> FloatArray:
        columns: CsvColumns = self._columns
        if columns.list is not None:
            where = f"{self._header[columns.list]!r} in {place[0].lower()}{place[1:]}"
            return json_vector(place, parse_json(where, row[columns.list]))
        cells = [row[column] for column in columns.numbers]
        try:
            return np.array(cells, np.float64)
        except ValueError:
            for column in columns.numbers:
                _check_number(place, self._header[column], row[column])
            raise


def csv_header(source: Source) -> list[str]:
    """The names of the columns, from the first line."""
    with translate_errors(source), source.lines() as lines:
        header = next((row for row in csv.reader(lines, strict=True) if row), None)
    if header is None:
        raise EmbeddingsFileError(f"{source} is empty: it must begin with a line of names.")
    return header


def csv_records(source: Source, header: list[str]) -> Generator[tuple[str, list[str]], None, None]:
    """The rows below the header, each with its place for messages; blank lines are passed over."""
    n_rows = 0
    with translate_errors(source), source.lines() as lines:
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


VECTOR_FIELDS = ("vector", "embedding", "embeddings")


class JsonRows:
    """The objects of a file or stream, whose fields are those of the first.

    The type of labels, and of ids, is that of the first: integers stay integers, texts stay texts,
    and a line with the other type is an error.
    """

    n_rows = None

    def __init__(self, source: Source, keys: Keys) -> None:
        self._source = source
        self._objects = json_objects(source)
        first = next(self._objects, None)
        if first is None:
            raise EmbeddingsFileError(f"{source} is empty: it must hold one JSON object a line.")
        place, fields = first
        self._vector = _vector_field(place, fields, keys.vectors)
        self._label = _name_field(place, fields, keys.labels, ("label", "labels_key"))
        self._id = _name_field(place, fields, keys.ids, ("id", "ids_key"))
        self._picture = keys.pictures or "image"
        self._with_labels = keys.take_labels and fields.get(self._label) is not None
        self._with_ids = fields.get(self._id) is not None
        self._take_labels = keys.take_labels
        if keys.need_labels and not self._with_labels:
            raise EmbeddingsFileError(_lacking_field(place, fields, self._label, "labels_key"))
        self.dimension = len(json_vector(place, fields[self._vector]))
        self._begun: Iterator[PlacedObject] | None = chain([first], self._objects)

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        where = f"{self._vector!r} in {self._source}"
        return chunks_of(self._rows(), rows, where=where, dimension=self.dimension)

    def close(self) -> None:
        """Close the file."""
        self._objects.close()

    def _rows(self) -> Iterator[TextRow]:
        objects = self._begun or json_objects(self._source)
        self._begun = None
        labels, ids = NameColumn("label"), NameColumn("id")
        for place, fields in objects:
            if self._vector not in fields:
                raise EmbeddingsFileError(
                    _lacking_field(place, fields, self._vector, "vectors_key")
                )
            label, name = fields.get(self._label), fields.get(self._id)
            # Of some rows alone, they would belong to the wrong ones in a chunk.
            if label is not None and self._take_labels and not self._with_labels:
                raise EmbeddingsFileError(_not_in_all(place, "label"))
            if name is not None and not self._with_ids:
                raise EmbeddingsFileError(_not_in_all(place, "id"))
            yield TextRow(
                place,
                json_vector(place, fields[self._vector]),
                labels.checked(place, label) if self._with_labels else None,
                ids.checked(place, name) if self._with_ids else None,
                _picture_of(place, fields.get(self._picture)),
            )


def _vector_field(place: str, fields: dict[str, Any], key: str | None) -> str:
    if key is not None:
        if key not in fields:
            raise EmbeddingsFileError(_lacking_field(place, fields, key, "vectors_key"))
        return key
    found = [name for name in VECTOR_FIELDS if name in fields]
    if not found:
        raise EmbeddingsFileError(_lacking_field(place, fields, VECTOR_FIELDS[0], "vectors_key"))
    if len(found) > 1:
        raise EmbeddingsFileError(
            f"{' and '.join(map(repr, found))} could each be the vector of {place}: say which "
            "(vectors_key)."
        )
    return found[0]


def _name_field(
    place: str, fields: dict[str, Any], key: str | None, usual_and_option: tuple[str, str]
) -> str:
    usual, option = usual_and_option
    if key is not None and key not in fields:
        raise EmbeddingsFileError(_lacking_field(place, fields, key, option))
    return key or usual


def _lacking_field(place: str, fields: dict[str, Any], key: str, option: str) -> str:
    there = ", ".join(map(repr, fields)) or "none"
    return f"{place} has no field {key!r} ({option}). Its fields are {there}."


def _not_in_all(place: str, role: str) -> str:
    return f"{place} has the first {role}: give one in every row, or in none."


def _picture_of(place: str, value: Any) -> str | None:  # noqa: ANN401
    if value is not None and not isinstance(value, str):
        raise EmbeddingsFileError(
            f"{place} must have a text, the path of a picture, as its image. "
            f"Got {shown(value)} instead."
        )
    return value or None


def open_labels(path: Path, column: str | None) -> StoredArray:
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
        return open_arrays(file_source(path))[ONLY]
    # Only a name: a txt file is nothing that embeddings could be in.
    source = Source(str(path), "txt" if suffix == ".txt" else "csv", file_source(path, "csv").path)
    return _text_array(source, partial(_lines if suffix == ".txt" else _entries, source, column))


def _text_array(source: Source, entries: Callable[[], Iterator[str]]) -> StoredArray:
    """A column of texts; one pass counts them and finds whether all are integers."""
    n, are_integers = 0, True
    with translate_errors(source):
        for entry in entries():
            n += 1
            check_text(f"Row {n} of {source}", "label", entry)
            are_integers = are_integers and is_written_integer(entry)

    def pieces(rows: int) -> Iterator[AnyArray]:
        with translate_errors(source):
            left = entries()
            while piece := list(islice(left, rows)):
                yield parse_names(piece, are_integers=are_integers)

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
