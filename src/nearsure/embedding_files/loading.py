"""Embeddings with labels from a file, whatever wrote it."""

import csv
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.lab.stored_arrays import ONLY, StoredArray, read_whole, stored_arrays

# Names that say what an array is, where a file holds several that would do.
VECTOR_NAMES = ("embeddings", "embedding", "vectors", "vector", "x", "features")
LABEL_NAMES = ("labels", "label", "y")
LABEL_KINDS = "biuU"

# Above it, float64 no longer tells whole numbers apart.
LARGEST_WHOLE = 2.0**53


@dataclass(frozen=True, eq=False)
class EmbeddingSet:
    """Vectors with the label of each.

    Parameters
    ----------
    vectors : array of shape (n, d), float32
        Finite.
    labels : array of shape (n,)
        Integers or strings.

    Examples
    --------
    >>> len(EmbeddingSet(np.zeros((2, 3), np.float32), np.array(["owl", "wren"])))
    2
    """

    vectors: NDArray[np.float32]
    labels: AnyArray

    def __post_init__(self) -> None:
        vectors, labels = self.vectors, self.labels
        if vectors.ndim != 2 or 0 in vectors.shape or vectors.dtype != np.float32:  # noqa: PLR2004
            raise InvalidInputError(
                "vectors must be float32 of shape (n, d) with at least one row and one column. "
                f"Got {vectors.dtype} of shape {vectors.shape} instead."
            )
        if labels.shape != (len(vectors),) or labels.dtype.kind not in LABEL_KINDS:
            raise InvalidInputError(
                f"labels must be one integer or string for each of the {len(vectors)} vectors. "
                f"Got {labels.dtype} of shape {labels.shape} instead."
            )
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise InvalidInputError(f"vectors must be finite. Row {row} is not.")

    def __len__(self) -> int:
        return len(self.vectors)


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
    path : path
        An .npz, .npy, .parquet or .safetensors file. A column of lists is an array of vectors;
        a JSON list in the metadata of a safetensors file is an array of labels.
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
    path = Path(path)
    stored = stored_arrays(path)
    if path.suffix.lower() == ".npy" and vectors_key is not None:
        raise EmbeddingsFileError(
            f"{path} holds one array without a name: leave out the key {vectors_key!r} of vectors."
        )
    vectors_key = _vectors_name(path, stored, vectors_key)
    vectors = _as_float32(path, vectors_key, read_whole(path, stored[vectors_key].read))
    if labels_path is None:
        labels_key = _labels_name(path, stored, vectors_key, len(vectors), labels_key)
        labels, source = read_whole(path, stored[labels_key].read), f"{labels_key!r} in {path}"
    else:
        labels, source = _labels_of(Path(labels_path), labels_key), str(labels_path)
    labels = _as_labels(source, labels, len(vectors))
    try:
        return EmbeddingSet(vectors, labels)
    except InvalidInputError as error:
        raise EmbeddingsFileError(f"{path} does not hold embeddings: {error}") from error


def _vectors_name(path: Path, stored: dict[str, StoredArray], key: str | None) -> str:
    if key is not None:
        return _existing(path, stored, key, "vectors_key")
    for kinds in ("f", "iu"):
        candidates = [
            name
            for name, array in stored.items()
            if len(array.shape) == 2 and array.kind in kinds  # noqa: PLR2004
        ]
        if candidates:
            return _only(path, stored, candidates, VECTOR_NAMES, ("vectors", "vectors_key"))
    raise EmbeddingsFileError(
        f"{path} must hold an array of vectors, of shape (n, d) and of float32, float16 or "
        f"float64. It holds {_listing(stored)}."
    )


def _labels_name(
    path: Path, stored: dict[str, StoredArray], vectors_key: str, n: int, key: str | None
) -> str:
    if key is not None:
        return _existing(path, stored, key, "labels_key")
    fitting = [
        name for name, array in stored.items() if name != vectors_key and array.shape == (n,)
    ]
    named = [name for name in fitting if name.lower() in LABEL_NAMES]
    # Floats are hardly labels, unless they are called so.
    candidates = named or [name for name in fitting if stored[name].kind in "biuUSO"]
    if not candidates:
        raise EmbeddingsFileError(
            f"{path} must hold one label for each of its {n} vectors, or be given a file of them "
            f"(labels_path). It holds {_listing(stored)}."
        )
    return _only(path, stored, candidates, LABEL_NAMES, ("labels", "labels_key"))


def _existing(path: Path, stored: dict[str, StoredArray], key: str, option: str) -> str:
    if key not in stored:
        raise EmbeddingsFileError(
            f"{path} has no array {key!r} ({option}). It holds {_listing(stored)}."
        )
    return key


def _only(
    path: Path,
    stored: dict[str, StoredArray],
    candidates: list[str],
    usual_names: tuple[str, ...],
    role_and_option: tuple[str, str],
) -> str:
    named = [name for name in candidates if name.lower() in usual_names] or candidates
    if len(named) > 1:
        role, option = role_and_option
        raise EmbeddingsFileError(
            f"{', '.join(map(repr, named))} could each be the {role} of {path}: say which "
            f"({option}). It holds {_listing(stored)}."
        )
    return named[0]


def _listing(stored: dict[str, StoredArray]) -> str:
    return ", ".join(f"{name!r} {array}" for name, array in stored.items()) or "no array"


def _as_float32(path: Path, name: str, array: AnyArray) -> NDArray[np.float32]:
    if array.ndim != 2 or array.dtype.kind not in "fiu":  # noqa: PLR2004
        raise EmbeddingsFileError(
            f"{name!r} in {path} must be numbers of shape (n, d) to be vectors. "
            f"Got {array.dtype} of shape {array.shape} instead."
        )
    with np.errstate(over="ignore"):
        vectors = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        row = int(bad[0])
        was_finite = np.isfinite(array[row]).all()
        what = "a value beyond the range of float32" if was_finite else "NaN or infinity"
        raise EmbeddingsFileError(
            f"{name!r} in {path} must be finite in float32. Row {row} has {what} "
            f"({bad.size} such rows): leave them out or compute them anew."
        )
    return vectors


def _as_labels(source: str, labels: AnyArray, n: int) -> AnyArray:
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise EmbeddingsFileError(f"{source} must be UTF-8 text: {error}.") from error
    whole = labels.dtype.kind == "f" and bool((abs(labels) < LARGEST_WHOLE).all())
    if whole and (labels == np.floor(labels)).all():
        labels = labels.astype(np.int64)
    if labels.shape != (n,) or labels.dtype.kind not in LABEL_KINDS:
        raise EmbeddingsFileError(
            f"{source} must be one label, an integer or a text, for each of the {n} vectors. "
            f"Got {labels.dtype} of shape {labels.shape} instead."
        )
    return labels


def _labels_of(path: Path, column: str | None) -> AnyArray:
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
        return read_whole(path, stored_arrays(path)[ONLY].read)
    text = read_whole(path, partial(path.read_text, encoding="utf-8-sig"))
    return _texts(text.splitlines() if suffix == ".txt" else _csv_column(path, text, column))


def _csv_column(path: Path, text: str, column: str | None) -> list[str]:
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row]
    except csv.Error as error:
        raise EmbeddingsFileError(f"{path} cannot be read as CSV: {error}.") from error
    header = rows[0] if rows else []
    place = 0
    if column is not None:
        if column not in header:
            raise EmbeddingsFileError(
                f"{path} has no column {column!r} (labels_key). Its first line is {header}."
            )
        place = header.index(column)
    elif len(header) > 1:
        raise EmbeddingsFileError(
            f"{path} has {len(header)} columns: say which holds the labels (labels_key). "
            f"Its first line is {header}."
        )
    # Not by counting rows: a file of one label too many would pass, shifted by one.
    has_header = column is not None or (header and header[0].lower() in LABEL_NAMES)
    short = next((i for i, row in enumerate(rows, 1) if len(row) <= place), None)
    if short is not None:
        raise EmbeddingsFileError(f"Row {short} of {path} has no entry in the column of labels.")
    return [row[place] for row in rows[bool(has_header) :]]


def _texts(entries: list[str]) -> AnyArray:
    """Integers if all are written as such, so that they equal those of a binary file."""
    try:
        integers = [int(entry) for entry in entries]
    except ValueError:
        return np.array(entries, str)
    if [str(integer) for integer in integers] != entries:
        return np.array(entries, str)  # such as 007
    try:
        return np.array(integers, np.int64)
    except OverflowError:  # identifiers rather than numbers
        return np.array(entries, str)
