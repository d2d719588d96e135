"""Rows of a text, gathered into chunks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.embedding_files.checked_columns import as_float32
from nearsure.embedding_files.embedding_chunk import EmbeddingChunk
from nearsure.embedding_files.json_values import name_array
from nearsure.errors import EmbeddingsFileError

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
    gathered = _Gathered(where, n_chunk, dimension)
    for row in rows:
        gathered.add(row)
        if len(gathered) == n_chunk:
            yield gathered.chunk()
    if len(gathered):
        yield gathered.chunk()


class _Gathered:
    """Rows of the next chunk; vectors go straight to one array, so that none is held twice."""

    def __init__(self, where: str, n_chunk: int, dimension: int) -> None:
        self._where = where
        self._vectors = np.empty((n_chunk, dimension))
        self._rows: list[TextRow] = []
        self._first = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: TextRow) -> None:
        length, dimension = len(row.vector), self._vectors.shape[1]
        if length != dimension:
            raise EmbeddingsFileError(
                f"{row.place} has a vector of {length} numbers, and the first row one of "
                f"{dimension}: all must have the same length."
            )
        self._vectors[len(self._rows)] = row.vector
        self._rows.append(replace(row, vector=_NOTHING))

    def chunk(self) -> EmbeddingChunk:
        rows, self._rows = self._rows, []
        pictures = [row.picture for row in rows]
        chunk = EmbeddingChunk(
            as_float32(self._where, self._vectors[: len(rows)], lambda row: rows[row].place),
            _names([row.label for row in rows]),
            _names([row.id for row in rows]),
            pictures if any(pictures) else None,
            self._first,
        )
        self._first += len(rows)
        return chunk


def _names(values: list[int | str | None]) -> AnyArray | None:
    there = [value for value in values if value is not None]
    return name_array(there) if there else None
