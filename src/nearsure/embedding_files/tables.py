"""Tables of text: CSV, JSON lines and files of labels."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.embedding_files.arrays import LABEL_NAMES, ONLY, open_arrays
from nearsure.embedding_files.rows import (
    EmbeddingChunk,
    Keys,
    RowReader,
    StoredArray,
    as_float32,
    check_text,
)
from nearsure.embedding_files.source import Source, file_source, translate_errors
from nearsure.errors import EmbeddingsFileError

LIST_NAMES = ("vector", "embedding")


def _check_is_header(source: Source, header: list[str]) -> None:
    as_pandas_counts = len(header) > 1 and header == [str(i) for i in range(len(header))]
    if all(_is_number(name) for name in header) and not as_pandas_counts:
        raise EmbeddingsFileError(
            f"{source} must begin with a line of names, such as id,label,x0,x1. "
            f"Got {_list_names(header)} instead."
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


def _list_names(header: list[str], longest: int = 12) -> str:
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

# Where a row stands, its vector, label, id, picture, text and group.
_Name: TypeAlias = int | str | None
_Row: TypeAlias = tuple[str, FloatArray, _Name, _Name, str | None, str | None, _Name]


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
                    f"Got {shorten(value)} instead."
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
            f"{place} must have a list of numbers as its vector. Got {shorten(wrong)}"
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
            f"{place} has the {role} {shorten(value)}, which does not fit in 64 bits: write all of "
            "them as texts."
        )
    if type(value) not in (int, str):
        raise EmbeddingsFileError(
            f"{place} must have an integer or a text as its {role}. Got {shorten(value)} instead."
        )
    return type(value)


class NameColumn:
    """Checks labels or ids one by one; all must have the type of the first."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._kind: tuple[str, type[int | str]] | None = None

    def check(self, place: str, value: Any) -> int | str:  # noqa: ANN401
        """A value, if it is of the type of those before."""
        kind = kind_of_name(place, self._role, value)
        if self._kind is None:
            self._kind = (place, kind)
        first_place, first_kind = self._kind
        if kind is not first_kind:
            raise EmbeddingsFileError(
                f"{place} has the {self._role} {shorten(value)}, and {first_place[0].lower()}"
                f"{first_place[1:]} {_ARTICLES[first_kind]}: write all as integers or all as texts."
            )
        result: int | str = value
        return result


_ARTICLES = {int: "an integer", str: "a text"}


def name_array(values: list[int] | list[str] | list[int | str]) -> AnyArray:
    """Names of one type as an array."""
    return np.array(values, str if isinstance(values[0], str) else np.int64)


def shorten(value: Any) -> str:  # noqa: ANN401
    """A value as JSON, cut to what fits in a message."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class _TextRows(RowReader):
    """Rows of a text; labels and ids are in all rows or in none."""

    # How messages name the column of vectors.
    _where: str

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        # One array for all chunks, so that no vector is held twice.
        vectors = np.empty((rows, self.dimension))
        left = self._rows()
        for first in count(0, rows):
            gathered: list[tuple[Any, ...]] = []
            for place, vector, *names in islice(left, rows):
                if len(vector) != self.dimension:
                    raise EmbeddingsFileError(
                        f"{place} has a vector of {len(vector)} numbers, and the first row one of "
                        f"{self.dimension}: all must have the same length."
                    )
                vectors[len(gathered)] = vector
                gathered.append((place, *names))
            if not gathered:
                return
            places, labels, ids, pictures, texts, groups = map(list, zip(*gathered, strict=True))
            yield EmbeddingChunk(
                as_float32(self._where, vectors[: len(places)], places.__getitem__),
                None if labels[0] is None else name_array(labels),
                None if ids[0] is None else name_array(ids),
                pictures if any(pictures) else None,
                texts if any(texts) else None,
                None if groups[0] is None else name_array(groups),
                first,
            )

    def _rows(self) -> Iterator[_Row]:
        raise NotImplementedError


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


class CsvRows(_TextRows):
    """The lines of a file.

    Labels, and ids, are integers if all of the file are written as such, else texts. That takes a
    pass over the file before the first row is given, which ends early if they are texts.
    """

    def __init__(self, source: Source, keys: Keys) -> None:
        self._source, self._where = source, str(source)
        self._header = csv_header(source)
        self._find_columns(keys)
        with closing(csv_records(source, self._header)) as records:
            self.dimension = len(self._vector(*next(records)))
        self._scan()

    def _find_columns(self, keys: Keys) -> None:
        """Find the places of the columns.

        Raises
        ------
        EmbeddingsFileError
            If the header is none, names a column twice or not at all, or lacks one that was asked
            for.
        """
        source, header = self._source, self._header
        _check_is_header(source, header)
        label = self._place(keys.labels, "label", "labels_key")
        self._id = self._place(keys.ids, "id", "ids_key")
        self._picture = self._place(keys.pictures, "image", "pictures_key")
        self._text = self._place(None, "text", "the other must have another name")
        self._group = None if keys.groups is None else self._place(keys.groups, "", "groups_key")
        if keys.wanted == "required" and label is None:
            raise self._lacking_column("label", "labels_key")
        if keys.vectors is not None:
            lists = [self._place(keys.vectors, "vector", "vectors_key")]
        else:
            lists = [place for place, name in enumerate(header) if name.lower() in LIST_NAMES]
        if len(lists) > 1:
            raise EmbeddingsFileError(
                f"{source} has a column 'vector' and one 'embedding': say which (vectors_key)."
            )
        taken = (label, self._id, self._picture, self._text, self._group)
        self._numbers = [place for place in range(len(header)) if place not in taken]
        if not self._numbers:
            raise EmbeddingsFileError(
                f"{source} must have columns for the vector, of numbers, or one called "
                f"{' or '.join(LIST_NAMES)} of JSON lists. It has {_list_names(header)}."
            )
        self._list = lists[0] if lists else None
        self._label = label if keys.wanted != "none" else None

    def _place(self, key: str | None, usual: str, option: str) -> int | None:
        header = self._header
        if key is not None:
            if key not in header:
                raise self._lacking_column(key, option)
            return header.index(key)
        same = [place for place, name in enumerate(header) if name.lower() in (usual, f"{usual}s")]
        if len(same) > 1:
            raise EmbeddingsFileError(
                f"{' and '.join(repr(header[place]) for place in same)} could each be the {usual} "
                f"in {self._source}: say which ({option})."
            )
        return same[0] if same else None

    def _lacking_column(self, key: str, option: str) -> EmbeddingsFileError:
        there = _list_names(self._header)
        return EmbeddingsFileError(
            f"{self._source} has no column {key!r} ({option}). It has {there}."
        )

    def _scan(self) -> None:
        """Find whether all labels, and all ids, are written as integers; count the rows."""
        self._integers = {column for column in (self._label, self._id) if column is not None}
        n_rows = 0
        for _, row in csv_records(self._source, self._header):
            self._integers = {place for place in self._integers if is_written_integer(row[place])}
            if not self._integers:
                return
            n_rows += 1
        self.n_rows = n_rows

    def _rows(self) -> Iterator[_Row]:
        for place, row in csv_records(self._source, self._header):
            yield (
                place,
                self._vector(place, row),
                self._name(place, row, "label", self._label),
                self._name(place, row, "id", self._id),
                None if self._picture is None else row[self._picture] or None,
                None if self._text is None else row[self._text] or None,
                self._name(place, row, "group", self._group),
            )

    def _name(self, place: str, row: list[str], role: str, column: int | None) -> int | str | None:
        if column is None:
            return None
        kind_of_name(place, role, row[column])
        return int(row[column]) if column in self._integers else row[column]

    def _vector(self, place: str, row: list[str]) -> FloatArray:
        if self._list is not None:
            where = f"{self._header[self._list]!r} in {place[0].lower()}{place[1:]}"
            return json_vector(place, parse_json(where, row[self._list]))
        try:
            return np.array([row[column] for column in self._numbers], np.float64)
        except ValueError:
            wrong = next(column for column in self._numbers if not _is_number(row[column]))
            raise EmbeddingsFileError(
                f"{place} must have a number in the column {self._header[wrong]!r}. "
                f"Got {row[wrong]!r} instead. Every column is part of the vector, but those called "
                "id, label, image and text, or named by labels_key, ids_key, pictures_key and "
                "groups_key: leave out others."
            ) from None


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


VECTOR_FIELDS = ("vector", "embedding", "embeddings")


class JsonRows(_TextRows):
    """The objects of a file or stream, whose fields are those of the first.

    The type of labels, and of ids, is that of the first: integers stay integers, texts stay texts,
    and a line with the other type is an error.
    """

    def __init__(self, source: Source, keys: Keys) -> None:
        self._source = source
        self._objects = json_objects(source)
        first = next(self._objects, None)
        if first is None:
            raise EmbeddingsFileError(f"{source} is empty: it must hold one JSON object a line.")
        place, fields = first
        self._vector = keys.vectors or _find_vector(place, fields)
        given = {
            "vectors_key": self._vector,
            "labels_key": keys.labels,
            "ids_key": keys.ids,
            "groups_key": keys.groups,
        }
        for option, key in given.items():
            if key is not None and key not in fields:
                raise _lacking_field(place, fields, key, option)
        self._where = f"{self._vector!r} in {source}"
        self._label, self._id = keys.labels or "label", keys.ids or "id"
        self._picture, self._group = keys.pictures or "image", keys.groups
        self._take_labels = keys.wanted != "none"
        self._has_labels = self._take_labels and fields.get(self._label) is not None
        self._has_ids = fields.get(self._id) is not None
        if keys.wanted == "required" and not self._has_labels:
            raise _lacking_field(place, fields, self._label, "labels_key")
        self.dimension = len(json_vector(place, fields[self._vector]))
        self._begun: Iterator[PlacedObject] | None = chain([first], self._objects)

    def close(self) -> None:
        """Close the file."""
        self._objects.close()

    def _rows(self) -> Iterator[_Row]:
        objects = self._begun or json_objects(self._source)
        self._begun = None
        labels, ids, groups = NameColumn("label"), NameColumn("id"), NameColumn("group")
        for place, fields in objects:
            if self._vector not in fields:
                raise _lacking_field(place, fields, self._vector, "vectors_key")
            label = fields.get(self._label) if self._take_labels else None
            name = fields.get(self._id)
            # Of some rows alone, they would belong to the wrong ones in a chunk.
            if label is not None and not self._has_labels:
                raise _not_in_all(place, "label")
            if name is not None and not self._has_ids:
                raise _not_in_all(place, "id")
            vector = json_vector(place, fields[self._vector])
            label = labels.check(place, label) if self._has_labels else None
            name = ids.check(place, name) if self._has_ids else None
            picture, text = fields.get(self._picture), fields.get("text")
            for role, value in (
                ("the path of a picture, as its image", picture),
                ("its text", text),
            ):
                if value is not None and not isinstance(value, str):
                    raise EmbeddingsFileError(
                        f"{place} must have a text, {role}. Got {shorten(value)} instead."
                    )
            group = None
            if self._group is not None:
                group = groups.check(place, fields.get(self._group))
            yield place, vector, label, name, picture or None, text or None, group


def _find_vector(place: str, fields: dict[str, Any]) -> str:
    found = [name for name in VECTOR_FIELDS if name in fields]
    if not found:
        raise _lacking_field(place, fields, VECTOR_FIELDS[0], "vectors_key")
    if len(found) > 1:
        raise EmbeddingsFileError(
            f"{' and '.join(map(repr, found))} could each be the vector of {place}: say which "
            "(vectors_key)."
        )
    return found[0]


def _lacking_field(
    place: str, fields: dict[str, Any], key: str, option: str
) -> EmbeddingsFileError:
    there = ", ".join(map(repr, fields)) or "none"
    return EmbeddingsFileError(f"{place} has no field {key!r} ({option}). Its fields are {there}.")


def _not_in_all(place: str, role: str) -> EmbeddingsFileError:
    return EmbeddingsFileError(f"{place} has the first {role}: give one in every row, or in none.")


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
                yield name_array(list(map(int, piece)) if are_integers else piece)

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
