"""`open_embeddings` and `load_embeddings`: chunk by chunk, or all at once."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.embedding_files.arrays import ArrayRows, check_one_each
from nearsure.embedding_files.rows import (
    EmbeddingChunk,
    EmbeddingSet,
    Keys,
    LabelsWanted,
    RowReader,
    StoredArray,
    as_names,
    row_place,
)
from nearsure.embedding_files.source import Source, open_source
from nearsure.embedding_files.tables import CsvRows, JsonRows, open_labels
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.validation import check_positive_integer

if TYPE_CHECKING:
    from typing import Self

ROWS = 8192


class EmbeddingStream:
    """Open embeddings, which `open_embeddings` makes; a context manager.

    Never more than a chunk is held in memory (of a Parquet file, also what decoding a row group
    takes).
    """

    def __init__(
        self,
        name: str,
        reader: RowReader,
        labels: tuple[str, StoredArray] | None,
        until: ExitStack,
    ) -> None:
        self._name = name
        self._reader = reader
        self._labels = labels
        self._until = until

    @property
    def name(self) -> str:
        """The path of the file, or "Standard input"."""
        return self._name

    @property
    def dimension(self) -> int:
        """Entries of a vector."""
        return self._reader.dimension

    @property
    def n_rows(self) -> int | None:
        """How many rows there are; None if that takes reading them."""
        return self._reader.n_rows

    def chunks(self, rows: int = ROWS) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter.

        Each call begins at the first row; JSON lines from standard input can be read once.
        """
        if check_positive_integer("rows", rows) > sys.maxsize:
            raise InvalidInputError(f"rows must be at most {sys.maxsize}. Got {rows} instead.")
        chunks = self._reader.chunks(rows)
        return chunks if self._labels is None else self._with_labels(chunks, rows, *self._labels)

    def read_all(self) -> EmbeddingChunk:
        """All rows as one chunk, in memory."""
        vectors = None
        if self.n_rows is not None:
            vectors = np.empty((self.n_rows, self.dimension), np.float32)
        read: list[EmbeddingChunk] = []
        for chunk in self.chunks():
            if vectors is None:
                read.append(chunk)
            else:
                # To their place at once, so that no vector is held twice.
                own = vectors[chunk.first_row : chunk.first_row + len(chunk)]
                own[:] = chunk.vectors
                read.append(replace(chunk, vectors=own))
        return EmbeddingChunk(
            np.concatenate([chunk.vectors for chunk in read])
            if vectors is None
            else vectors[: sum(map(len, read))],
            _join([chunk.labels for chunk in read]),
            _join([chunk.ids for chunk in read]),
            _join_texts(read, "pictures"),
            _join_texts(read, "texts"),
            _join([chunk.groups for chunk in read]),
        )

    def close(self) -> None:
        """Close files; a temporary one is removed."""
        self._until.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_labels(
        self, chunks: Iterator[EmbeddingChunk], rows: int, where: str, labels: StoredArray
    ) -> Iterator[EmbeddingChunk]:
        pieces = labels.pieces(rows)
        n_rows = 0
        for chunk in chunks:
            piece = next(pieces, None)
            n_rows += len(chunk)
            if piece is None or len(piece) < len(chunk):
                raise EmbeddingsFileError(
                    f"{where} must be one label for each vector of {self._name}, which has more "
                    f"than {labels.shape[0]}."
                )
            place = partial(row_place, chunk.first_row)
            yield replace(chunk, labels=as_names("label", where, piece, place))
        check_one_each("label", where, labels, n_rows)


def open_embeddings(
    source: str | Path,
    *,
    labels_path: str | Path | None = None,
    vectors_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    pictures_key: str | None = None,
    groups_key: str | None = None,
    format: str | None = None,  # noqa: A002
    labels: LabelsWanted = "optional",
) -> EmbeddingStream:
    """Open embeddings to read them a chunk at a time.

    Parameters
    ----------
    source : path or "-"
        An .npz, .npy, .parquet, .safetensors, .csv, .jsonl or .ndjson file, or "-" for standard
        input.

        - A Parquet column of lists is an array of vectors; a JSON list in the metadata of a
          safetensors file is an array of labels.
        - A CSV file has a header. Columns called id, label, image and text are what their name
          says; all others are numbers, the vector in their order, or one called vector or
          embedding holds JSON lists. Labels, and ids, are integers if all of the file are written
          as such, else texts.
        - A line of JSON is ``{"id": 7, "label": "owl", "vector": [0.1, 0.7], "image": "7.jpg"}``;
          all but the vector may be absent, of all lines alike. Labels, and ids, keep the type that
          JSON gives the first.
    labels_path : path, optional
        A file of labels in the order of the vectors, in place of those in `source`: .npy, .txt
        with one a line, or .csv.
    vectors_key, labels_key, ids_key, pictures_key, groups_key : str, optional
        Name of the array or column; there are no groups without one. With a `labels_path` that
        ends in .csv, `labels_key` names the column there.
    format : str, optional
        npz, npy, parquet, safetensors, csv or jsonl, in place of what the suffix says. By default
        standard input is JSON lines unless its first bytes are another format's. All but JSON
        lines are copied to a temporary file first.
    labels : {"required", "optional", "none"}
        "required" raises an error if there are none; of several arrays without a usual name,
        the only one that could be labels is taken. "optional" takes what has the key or a usual
        name. "none" ignores them.

    Returns
    -------
    EmbeddingStream

    Raises
    ------
    EmbeddingsFileError
        If a file is missing, empty, broken, of an unknown kind or ambiguous; while it is read, if
        rows differ in length or type, or have NaN or infinity.
    """
    if labels not in ("required", "optional", "none"):
        raise InvalidInputError(
            "The 'labels' parameter must be 'required', 'optional' or 'none'. "
            f"Got {labels!r} instead."
        )
    apart = labels_path is not None
    if labels == "none" and (apart or labels_key is not None):
        raise InvalidInputError(
            "labels='none' ignores labels: leave out labels_path and labels_key."
        )
    keys = Keys(
        vectors=vectors_key,
        labels=None if apart else labels_key,
        ids=ids_key,
        pictures=pictures_key,
        groups=groups_key,
        wanted="none" if apart else labels,
    )
    with ExitStack() as stack:
        opened = open_source(source, format, stack)
        readers: dict[str, Callable[[Source, Keys], RowReader]] = {
            "jsonl": JsonRows,
            "csv": CsvRows,
        }
        reader = readers.get(opened.format, ArrayRows)(opened, keys)
        stack.callback(reader.close)
        given = None
        if labels_path is not None:
            given = (str(labels_path), open_labels(Path(labels_path), labels_key))
            if reader.n_rows is not None:
                check_one_each("label", *given, reader.n_rows)
        return EmbeddingStream(opened.name, reader, given, stack.pop_all())


def _join(parts: list[AnyArray | None]) -> AnyArray | None:
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there else None


def _join_texts(
    chunks: list[EmbeddingChunk], name: Literal["pictures", "texts"]
) -> list[str | None] | None:
    parts: list[list[str | None] | None] = [getattr(chunk, name) for chunk in chunks]
    if not any(parts):
        return None
    empty = ([None] * len(chunk) for chunk in chunks)
    return [text for part, none in zip(parts, empty, strict=True) for text in part or none]


def load_embeddings(
    path: str | Path,
    *,
    labels_path: str | Path | None = None,
    vectors_key: str | None = None,
    labels_key: str | None = None,
) -> EmbeddingSet:
    """Read vectors and their labels.

    Without keys, the file must leave no doubt which array is which: names such as "embeddings"
    and "labels" decide, otherwise there must be one candidate only.

    Parameters
    ----------
    path : path or "-"
        An .npz, .npy, .parquet, .safetensors, .csv or .jsonl file, or standard input; see
        `open_embeddings` for what each may hold.
    labels_path : path, optional
        A file of labels in the order of the vectors, in place of those in `path`: .npy, .txt with
        one a line, or .csv.
    vectors_key, labels_key : str, optional
        Name of the array or column of vectors and of labels. With a `labels_path` that ends in
        .csv, `labels_key` names the column.

    Returns
    -------
    EmbeddingSet

    Raises
    ------
    EmbeddingsFileError
        If a file is missing, broken, of an unknown kind, ambiguous, or has NaN or infinity.
    """
    with open_embeddings(
        path,
        labels_path=labels_path,
        vectors_key=vectors_key,
        labels_key=labels_key,
        labels="required",
    ) as stream:
        read = stream.read_all()
    return EmbeddingSet(read.vectors, cast("AnyArray", read.labels))
