"""Columns as the rest of nearsure reads them: float32 vectors, labels, ids, pictures."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray
from nearsure.errors import EmbeddingsFileError

LABEL_KINDS = "biuU"

# Above it, float64 no longer tells whole numbers apart.
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


def as_float32(where: str, array: AnyArray, place: Callable[[int], str]) -> NDArray[np.float32]:
    """Numbers as vectors; `where` names the column in messages, and `place` a row of it."""
    if array.ndim != 2 or array.dtype.kind not in "fiu":  # noqa: PLR2004
        raise EmbeddingsFileError(
            f"{where} must be numbers of shape (n, d) to be vectors. "
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
            f"{where} must be finite in float32. {place(row)} has {what} ({bad.size} such rows "
            f"among {len(vectors)}): leave them out or compute them anew."
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
        try:
            names = np.char.decode(names, "utf-8")
        except UnicodeDecodeError as error:
            raise EmbeddingsFileError(f"{where} must be UTF-8 text: {error}.") from error
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


def _check_texts(what: str, names: AnyArray, place: Callable[[int], str]) -> None:
    for row, name in enumerate(names.ravel().tolist()):
        if not name.isascii() or "\0" in name:
            check_text(place(row), what, name)


def as_pictures(where: str, entries: AnyArray) -> list[str | None]:
    """Paths or addresses of pictures; None where there is none."""
    if entries.dtype.kind not in "USO":
        raise EmbeddingsFileError(
            f"{where} must be texts, the path of a picture for each vector. "
            f"Got {entries.dtype} instead."
        )
    if entries.dtype.kind == "S":
        entries = np.char.decode(entries, "utf-8")
    return [entry or None for entry in entries.tolist()]
