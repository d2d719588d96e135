"""Embeddings with labels from a file, whatever wrote it, all at once."""

from pathlib import Path

from nearsure.embedding_files.embedding_set import EmbeddingSet
from nearsure.embedding_files.embedding_stream import open_embeddings
from nearsure.errors import EmbeddingsFileError


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
    if read.labels is None:
        raise EmbeddingsFileError(f"{path} must hold one label for each of its vectors.")
    return EmbeddingSet(read.vectors, read.labels)
