"""Rows of a file of arrays: npz, npy, Parquet, safetensors."""

from collections.abc import Iterator

from nearsure.arrays import AnyArray
from nearsure.embedding_files.array_names import (
    ID_NAMES,
    LABEL_NAMES,
    PICTURE_NAMES,
    labels_name,
    named_array,
    vectors_name,
)
from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.checked_columns import as_float32, as_names, as_pictures
from nearsure.embedding_files.embedding_chunk import EmbeddingChunk
from nearsure.embedding_files.keys import Keys
from nearsure.embedding_files.numpy_arrays import in_npy, in_npz
from nearsure.embedding_files.parquet_arrays import in_parquet
from nearsure.embedding_files.safetensors_arrays import in_safetensors
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.stored_arrays import StoredArray
from nearsure.errors import EmbeddingsFileError

_READERS = {
    "npz": in_npz,
    "npy": in_npy,
    "parquet": in_parquet,
    "safetensors": in_safetensors,
}
_IDS = ("ids", "ids_key", ID_NAMES, "iuUS")
_PICTURES = ("pictures", "pictures_key", PICTURE_NAMES, "US")
_ALLOWED = {
    "label": "an integer or a text",
    "id": "an integer or a text",
    "picture": "the text of its path",
}
_LABELS = ("labels", "labels_key", LABEL_NAMES, "biufUSO")


def stored_arrays(source: Source) -> dict[str, StoredArray]:
    """What a file of arrays holds, by name.

    Raises
    ------
    EmbeddingsFileError
        If it is broken.
    """
    with in_one_sentence(source):
        return _READERS[source.format](source)


class ArrayRows:
    """The arrays of a file that were chosen, in step."""

    def __init__(self, source: Source, keys: Keys) -> None:
        stored = stored_arrays(source)
        if source.format == "npy" and keys.vectors is not None:
            raise EmbeddingsFileError(
                f"{source} holds one array without a name: leave out the key {keys.vectors!r} of "
                "vectors."
            )
        vectors = vectors_name(source, stored, keys.vectors)
        ids = named_array(source, stored, vectors, keys.ids, _IDS)
        pictures = named_array(source, stored, vectors, keys.pictures, _PICTURES)
        labels = None
        if keys.need_labels:
            labels = labels_name(source, stored, vectors, keys.labels, (ids, pictures))
        elif keys.take_labels:
            labels = named_array(source, stored, vectors, keys.labels, _LABELS)
        self._vectors = stored[vectors]
        self._vectors_where = f"{vectors!r} in {source}"
        self.n_rows = _checked_length(source, self._vectors_where, self._vectors)
        self._columns = {
            role: (f"{name!r} in {source}", stored[name])
            for role, name in (("label", labels), ("id", ids), ("picture", pictures))
            if name is not None
        }
        for role, (where, array) in self._columns.items():
            check_one_each(role, where, array, self.n_rows)
        self.dimension = self._found_dimension()

    def _found_dimension(self) -> int:
        length = self._vectors.shape[1]
        # Reading a row also tells that an array cannot be read, before anything is done with it.
        first = next(self._vectors.pieces(1))
        return first.shape[1] if length is None else length

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        columns = {role: array.pieces(rows) for role, (_, array) in self._columns.items()}
        first = 0
        for piece in self._vectors.pieces(rows):
            parts = {role: next(pieces) for role, pieces in columns.items()}
            yield self._chunk(piece, parts, first)
            first += len(piece)

    def close(self) -> None:
        """Nothing is held between chunks."""

    def _chunk(self, vectors: AnyArray, parts: dict[str, AnyArray], first: int) -> EmbeddingChunk:
        def place(row: int) -> str:
            return f"Row {first + row}"

        def names(role: str) -> AnyArray | None:
            if role not in parts:
                return None
            return as_names(role, self._columns[role][0], parts[role], place)

        pictures = None
        if "picture" in parts:
            pictures = as_pictures(self._columns["picture"][0], parts["picture"])
        return EmbeddingChunk(
            as_float32(self._vectors_where, vectors, place),
            names("label"),
            names("id"),
            pictures,
            first,
        )


def check_one_each(role: str, where: str, array: StoredArray, n_rows: int) -> None:
    """Raise an error if an array does not have one entry for each vector."""
    if array.shape != (n_rows,):
        raise EmbeddingsFileError(
            f"{where} must be one {role}, {_ALLOWED[role]}, for each of the {n_rows} vectors. "
            f"Got {array.dtype} of shape {array.shape} instead."
        )


def _checked_length(source: Source, where: str, vectors: StoredArray) -> int:
    n_rows = vectors.shape[0] if vectors.shape else None
    if len(vectors.shape) != 2 or vectors.kind not in "fiuO" or n_rows is None:  # noqa: PLR2004
        raise EmbeddingsFileError(
            f"{where} must be numbers of shape (n, d) to be vectors. "
            f"Got {vectors.dtype} of shape {vectors.shape} instead."
        )
    if 0 in vectors.shape:
        raise EmbeddingsFileError(
            f"{source} does not hold embeddings: {where} must have at least one row and one "
            f"column. Got {vectors.dtype} of shape {vectors.shape} instead."
        )
    return n_rows
