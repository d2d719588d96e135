"""Rows of a file of JSON lines: one object a line, with the names of the REST interface."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from nearsure.embedding_files.embedding_chunk import EmbeddingChunk
from nearsure.embedding_files.json_values import (
    NameColumn,
    PlacedObject,
    json_objects,
    json_vector,
    shown,
)
from nearsure.embedding_files.keys import Keys
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.text_rows import TextRow, chunks_of
from nearsure.errors import EmbeddingsFileError

VECTOR_FIELDS = ("vector", "embedding", "embeddings")


class JsonRows:
    """The objects of a file or stream; the first one says which fields there are.

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
            raise EmbeddingsFileError(_lacking(place, fields, self._label, "labels_key"))
        self.dimension = len(json_vector(place, fields[self._vector]))
        self._begun: Iterator[PlacedObject] | None = chain([first], self._objects)

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        where = f"{self._vector!r} in {self._source}"
        return chunks_of(self._rows(), rows, where=where, dimension=self.dimension)

    def close(self) -> None:
        """Let go of the file."""
        self._objects.close()

    def _rows(self) -> Iterator[TextRow]:
        objects = self._begun or json_objects(self._source)
        self._begun = None
        labels, ids = NameColumn("label"), NameColumn("id")
        for place, fields in objects:
            if self._vector not in fields:
                raise EmbeddingsFileError(_lacking(place, fields, self._vector, "vectors_key"))
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
            raise EmbeddingsFileError(_lacking(place, fields, key, "vectors_key"))
        return key
    found = [name for name in VECTOR_FIELDS if name in fields]
    if not found:
        raise EmbeddingsFileError(_lacking(place, fields, VECTOR_FIELDS[0], "vectors_key"))
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
        raise EmbeddingsFileError(_lacking(place, fields, key, option))
    return key or usual


def _lacking(place: str, fields: dict[str, Any], key: str, option: str) -> str:
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
