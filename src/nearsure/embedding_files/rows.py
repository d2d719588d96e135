"""Rows of embeddings in memory, and checks of their columns."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray
from nearsure.errors import EmbeddingsFileError, InvalidInputError


@dataclass(frozen=True, eq=False)
class EmbeddingChunk:
    """Vectors, and what is known about each.

    Parameters
    ----------
    vectors : array of shape (m, d), float32
        Finite.
    labels, ids : array of shape (m,), optional
        Integers or texts; of one kind in all chunks of a file.
    pictures : list of str or None, optional
        Path of each row's picture, as the file has it.
    texts : list of str or None, optional
        The text that each vector was made of.
    groups : array of shape (m,), optional
        What rows belong together, where a column of groups was named.
    first_row : int
        Place of the first row in the file, from 0.
    """

    vectors: NDArray[np.float32]
    labels: AnyArray | None = None
    ids: AnyArray | None = None
    pictures: list[str | None] | None = None
    texts: list[str | None] | None = None
    groups: AnyArray | None = None
    first_row: int = 0

    def __len__(self) -> int:
        return len(self.vectors)


class RowReader:
    """A file or stream, open at its first row: entries of a vector, and how many rows there are.

    The number of rows is None if it takes reading them.
    """

    dimension: int
    n_rows: int | None = None

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file, if it is held open between chunks: by default nothing."""


LABEL_KINDS = "biuU"

# Above it, float64 does not hold every whole number.
LARGEST_WHOLE = 2.0**53


def check_text(place: str, role: str, text: str) -> None:
    """An error if a label or an id is text that files, engines or numpy cannot keep as it is."""
    if "\0" in text:
        raise EmbeddingsFileError(
            f"{place} has as its {role} a text with a zero byte: leave it out."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise EmbeddingsFileError(
            f"{place} has as its {role} a text with half a character (a lone surrogate): write it "
            "as valid Unicode."
        ) from None


def row_place(first: int, row: int) -> str:
    """How messages name a row of a piece that begins at the row `first`."""
    return f"Row {first + row}"


def as_float32(where: str, array: AnyArray, place: Callable[[int], str]) -> NDArray[np.float32]:
    """Numbers as vectors; `where` names the column in messages, and `place` a row of it."""
    with np.errstate(over="ignore"):
        vectors = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        row = int(bad[0])
        was_finite = np.isfinite(array[row]).all()
        what = "a value beyond the range of float32" if was_finite else "NaN or infinity"
        raise EmbeddingsFileError(
            f"{where} must be finite in float32. {place(row)} has {what} ({bad.size} such rows "
            f"among {len(vectors)}): leave them out or compute them again."
        )
    return vectors


def as_names(what: str, where: str, names: AnyArray, place: Callable[[int], str]) -> AnyArray:
    """Labels or ids as integers or texts; `what` is "label" or "id"."""
    if names.dtype == object:
        missing = [row for row, name in enumerate(names.tolist()) if name is None]
        if missing:
            raise EmbeddingsFileError(
                f"{where} must have an entry in every row. {place(missing[0])} has none."
            )
        # Before numpy drops a zero byte at the end.
        _check_texts(what, names, place)
        names = names.astype(str)
    if names.dtype.kind == "S":
        names = _decode(where, names)
    if names.dtype.kind == "U":
        _check_texts(what, names, place)
    whole = names.dtype.kind == "f" and bool((abs(names) < LARGEST_WHOLE).all())
    if whole and (names == np.floor(names)).all():
        names = names.astype(np.int64)
    if names.ndim != 1 or names.dtype.kind not in LABEL_KINDS:
        raise EmbeddingsFileError(
            f"{where} must be one {what}, an integer or a text, for each vector. "
            f"Got {names.dtype} of shape {names.shape} instead."
        )
    return names


def _decode(where: str, texts: AnyArray) -> AnyArray:
    try:
        return np.char.decode(texts, "utf-8")
    except UnicodeDecodeError as error:
        raise EmbeddingsFileError(f"{where} must be UTF-8 text: {error}.") from error


def _check_texts(what: str, names: AnyArray, place: Callable[[int], str]) -> None:
    for row, name in enumerate(names.ravel().tolist()):
        if not name.isascii() or "\0" in name:
            check_text(place(row), what, name)


def as_texts(where: str, entries: AnyArray) -> list[str | None]:
    """Texts, or paths of pictures; None where there is none."""
    if entries.dtype.kind not in "USO":
        raise EmbeddingsFileError(
            f"{where} must be texts, or the path of a picture for each vector. "
            f"Got {entries.dtype} instead."
        )
    if entries.dtype.kind == "S":
        entries = _decode(where, entries)
    return [entry or None for entry in entries.tolist()]


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


LabelsWanted: TypeAlias = Literal["required", "optional", "none"]


@dataclass(frozen=True)
class Keys:
    """The names of columns that were given, and whether labels are wanted from this file."""

    vectors: str | None = None
    labels: str | None = None
    ids: str | None = None
    pictures: str | None = None
    groups: str | None = None
    wanted: LabelsWanted = "optional"


@dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Parameters
    ----------
    shape : tuple of int or None
        Its shape; None for a length that is known only once it is read.
    kind : str
        numpy's letter for the kind of its entries: f, i, u, b, U, S; O for what is refused.
    dtype : str
        Their type, for messages.
    pieces : callable
        Given a number of rows, gives the array in pieces of so many, the last one shorter. A text
        that is missing is None.
    """

    shape: tuple[int | None, ...]
    kind: str
    dtype: str
    pieces: Callable[[int], Iterator[AnyArray]]

    def __str__(self) -> str:
        lengths = ", ".join("?" if length is None else str(length) for length in self.shape)
        return f"{self.dtype} ({lengths})"


Columns: TypeAlias = Mapping[str, Sequence[Any] | AnyArray]


class RecordFormat:
    """Turns columns into bytes of a stream."""

    def write(self, columns: Columns) -> None:
        """Write some rows; the columns are those of the first call."""

    def finish(self) -> None:
        """Write what comes after the last row: by default nothing."""

    def abandon(self) -> None:
        """Release what is open without writing anything more: by default nothing."""


def plain_column(column: Sequence[Any] | AnyArray) -> list[Any]:
    """A column as Python's own numbers, texts, lists and None; what is not finite is None.

    Examples
    --------
    >>> plain_column(np.array([0.5, np.nan])), plain_column([np.int64(3), (1, 2)])
    ([0.5, None], [3, [1, 2]])
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuU":
        return list(column.tolist())
    if isinstance(column, np.ndarray) and column.dtype.kind == "f" and np.isfinite(column).all():
        return list(column.tolist())
    return [plain_value(value) for value in column]


def plain_value(value: Any) -> Any:  # noqa: ANN401
    """A value as Python's own."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    return value
