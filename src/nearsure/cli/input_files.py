"""Embeddings as commands read them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier
from nearsure.embedding_files import EmbeddingChunk, EmbeddingStream, open_embeddings
from nearsure.embedding_files.written_integers import is_written_integer
from nearsure.errors import InvalidInputError


@dataclass(frozen=True)
class Columns:
    """Which part of a file is what; None where names decide."""

    labels: Path | None = None
    vectors_key: str | None = None
    labels_key: str | None = None
    ids_key: str | None = None
    pictures_key: str | None = None
    format: str | None = None


def opened_file(
    source: str, columns: Columns, *, labels: Literal["required", "optional", "none"]
) -> EmbeddingStream:
    """Embeddings of a file, or of standard input."""
    return open_embeddings(
        source,
        labels_path=columns.labels,
        vectors_key=columns.vectors_key,
        labels_key=columns.labels_key,
        ids_key=columns.ids_key,
        pictures_key=columns.pictures_key,
        format=columns.format,
        labels=labels,
    )


def folder_of(source: str) -> Path:
    """The folder of a file; this one, for standard input."""
    return Path() if source == "-" else Path(source).parent


def check_dimension(stream: EmbeddingStream, classifier: NEDClassifier, source: str) -> None:
    """An error if these cannot be queries of a gallery."""
    expected = int(classifier.n_features_in_)
    if stream.dimension != expected:
        raise InvalidInputError(
            f"Queries must have the dimension of the gallery, {expected}. "
            f"{source} has {stream.dimension} instead."
        )


def names_of(chunk: EmbeddingChunk) -> AnyArray:
    """What the rows are called: their ids, or else their numbers."""
    if chunk.ids is not None:
        return chunk.ids
    return np.arange(chunk.first_row, chunk.first_row + len(chunk.vectors))


def labels_of(chunk: EmbeddingChunk) -> AnyArray:
    """Labels of rows that were opened with labels="required"."""
    return cast("AnyArray", chunk.labels)


def labels_like(labels: AnyArray, classes: AnyArray) -> AnyArray:
    """Labels of the kind of a gallery's: a csv file has "7" where an npz file has 7.

    Parameters
    ----------
    labels : array of shape (n,)
        Integers or strings.
    classes : array of shape (n_classes,)
        The gallery's.

    Examples
    --------
    >>> labels_like(np.array([7, 8]), np.array(["7", "9"]))
    array(['7', '8'], dtype='<U21')
    """
    if classes.dtype.kind == "U" and labels.dtype.kind != "U":
        return labels.astype(str)
    if classes.dtype.kind in "iu" and labels.dtype.kind == "U":
        texts = [str(label) for label in labels if not is_written_integer(label)]
        if texts:
            raise InvalidInputError(
                "Labels of the queries must be integers, as those of the gallery are. Got "
                f"{texts[0]!r} instead."
            )
        return labels.astype(np.int64)
    return labels
