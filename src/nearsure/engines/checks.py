"""What may enter an engine, checked once for all adapters."""

from collections.abc import Container
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Capabilities, Effort
from nearsure.errors import GalleryMismatchError, InvalidInputError
from nearsure.validation import preview


def checked_queries(queries: ArrayLike, dimension: int) -> AnyArray:
    """Queries as a finite float array of shape (n, dimension), n >= 1."""
    return _checked_matrix(queries, dimension, "queries")


def checked_k(k: int, capabilities: Capabilities) -> int:
    """A number of neighbours that the engine can be asked for."""
    if k < 1:
        raise InvalidInputError(f"k must be at least 1. Got {k} instead.")
    if capabilities.largest_k is not None and k > capabilities.largest_k:
        raise InvalidInputError(
            f"k must be at most {capabilities.largest_k}, the engine's limit. Got {k} instead."
        )
    return int(k)


def checked_effort(effort: int, own: Effort | None) -> dict[str, int]:
    """An effort that the engine can search with, by its name."""
    if own is None:
        raise InvalidInputError("This engine has no effort to choose: call search().")
    if not 1 <= effort <= own.largest:
        raise InvalidInputError(
            f"effort ({own.name}) must be from 1 to {own.largest}. Got {effort} instead."
        )
    return {own.name: int(effort)}


def checked_points(
    vectors: ArrayLike,
    ids: ArrayLike,
    labels: ArrayLike | None,
    *,
    dimension: int,
    capabilities: Capabilities,
) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """New points: vectors, distinct ids, and labels if the engine holds them."""
    points = _checked_matrix(vectors, dimension, "vectors")
    own_ids = checked_ids(ids, capabilities)
    if len(own_ids) != len(points):
        raise InvalidInputError(
            f"ids must be one for each of the {len(points)} points. Got {len(own_ids)} instead."
        )
    if (labels is None) == capabilities.holds_labels:
        raise InvalidInputError(
            "labels must be given if, and only if, the engine holds labels. Got "
            + ("none, and it does." if labels is None else "labels, and it does not.")
        )
    own_labels = None if labels is None else checked_labels(labels, len(points), capabilities)
    return points, own_ids, own_labels


def checked_ids(ids: ArrayLike, capabilities: Capabilities) -> AnyArray:
    """Distinct ids of the engine's kind: int64, or strings that are not empty."""
    own = _of_kind(ids, capabilities.ids, "ids")
    distinct, counts = np.unique(own, return_counts=True)
    if len(distinct) < len(own):
        raise InvalidInputError(
            f"ids must be distinct. Got {preview(distinct[counts > 1].tolist())} more than once."
        )
    if own.size and own.dtype.kind == "U" and not distinct[0]:
        raise InvalidInputError('ids must not be empty. Got "" instead.')
    return own


def checked_labels(labels: ArrayLike, n_points: int, capabilities: Capabilities) -> AnyArray:
    """Labels of the engine's kind, one for each point."""
    own = _of_kind(labels, capabilities.labels or "integer", "labels")
    if len(own) != n_points:
        raise InvalidInputError(
            f"labels must be one for each of the {n_points} points. Got {len(own)} instead."
        )
    return own


def check_all_there(ids: AnyArray, there: Container[Any]) -> None:
    """An error that names a few of the ids that the gallery does not hold."""
    missing = [own for own in ids.tolist() if own not in there]
    if missing:
        raise InvalidInputError(
            "ids must be those of points in the gallery. "
            f"Got {preview(missing)}, which it does not hold."
        )


def check_none_there(there: list[Any]) -> None:
    """An error that names a few of the ids of new points that the gallery holds already."""
    if there:
        raise InvalidInputError(
            f"ids of new points must be new. Got {preview(there)}, which the gallery holds "
            "already. Remove these points first."
        )


def single_precision(vectors: AnyArray, name: str) -> AnyArray:
    """Vectors in single precision, as most stores hold them; an error if they do not fit."""
    with np.errstate(over="ignore"):
        single = vectors.astype(np.float32, copy=False)
    if not np.isfinite(single).all():
        raise InvalidInputError(
            f"{name} must fit in single precision. Got {np.abs(vectors).max():.3g} instead."
        )
    return single


def check_direction(vectors: AnyArray) -> None:
    """An error for vectors whose length cannot be divided by in single precision."""
    with np.errstate(over="ignore", under="ignore"):
        sq_lengths = np.einsum("nm,nm->n", vectors, vectors, dtype=np.float32)
    has_none = ~(np.isfinite(sq_lengths) & (sq_lengths >= np.finfo(np.float32).tiny))
    if has_none.any():
        largest = np.abs(vectors[has_none.argmax()]).max()
        raise InvalidInputError(
            "vectors must have a direction in single precision, as the metric is the cosine. Row "
            f"{has_none.argmax()} is a zero vector, or its squared length is too small or too "
            f"large: its largest entry is {largest:.3g}. Leave it out, or scale it."
        )


def _of_kind(values: ArrayLike, kind: str, name: str) -> AnyArray:
    array = np.asarray(values)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        # numpy's texts lose a zero byte at their end.
        array = np.array(values, object)
    if array.ndim != 1:
        raise InvalidInputError(
            f"{name} must be an array of one dimension. Got the shape {array.shape} instead."
        )
    if array.dtype == object and all(isinstance(value, str) for value in array):
        _check_no_zero_byte(array, name)
        array = array.astype(str)
    if kind == "integer":
        if array.size and array.dtype.kind not in "iu":
            raise GalleryMismatchError(
                f"{name} of this engine are 64-bit integers. Got {array.dtype} instead."
            )
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise InvalidInputError(f"{name} must fit in 64 bits. Got {array.max()} instead.")
        return array.astype(np.int64)
    if array.size and array.dtype.kind != "U":
        raise GalleryMismatchError(f"{name} of this engine are text. Got {array.dtype} instead.")
    text = array.astype(str)
    _check_no_zero_byte(text, name)
    try:
        "".join(text.tolist()).encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{name} must be valid Unicode. Got a lone surrogate.") from None
    return text


def _check_no_zero_byte(texts: AnyArray, name: str) -> None:
    if "\0" in "".join(texts.tolist()):
        raise InvalidInputError(f"{name} must not hold a zero byte. Got one.")


def _checked_matrix(vectors: ArrayLike, dimension: int, name: str) -> AnyArray:
    array = np.asarray(vectors)
    if array.ndim != 2 or array.shape[1] != dimension:  # noqa: PLR2004
        raise GalleryMismatchError(
            f"{name} must have the shape (n, {dimension}), as the gallery has. "
            f"Got an array of shape {array.shape} instead."
        )
    if not len(array):
        raise InvalidInputError(f"{name} must be at least one. Got none.")
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(f"{name} must be numbers. Got {array.dtype} instead.")
    array = array.astype(np.float32 if array.dtype.itemsize < 4 else array.dtype, copy=False)  # noqa: PLR2004
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} must be finite. Got NaN or infinity instead.")
    return np.ascontiguousarray(array)
