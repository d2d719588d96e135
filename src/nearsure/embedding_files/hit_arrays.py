"""Hits from a file of arrays of shape (n, k)."""

from collections.abc import Mapping

import numpy as np

from nearsure.arrays import AnyArray, BoolArray
from nearsure.embedding_files.array_names import listing
from nearsure.embedding_files.array_rows import stored_arrays
from nearsure.embedding_files.checked_columns import as_names
from nearsure.embedding_files.hit_set import HitSet
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.stored_arrays import StoredArray
from nearsure.errors import EmbeddingsFileError

_PIECE = 1 << 16

Arrays = Mapping[str, StoredArray]


def hits_of_arrays(source: Source) -> HitSet:
    """Read the arrays distances and labels, and ids, counts, own_ids and truth if there are any."""
    stored = stored_arrays(source)
    distances = _numbers(source, stored, "distances", "f")
    labels = _names(source, stored, "labels")
    if distances is None or labels is None:
        missing = "labels" if distances is not None else "distances"
        raise EmbeddingsFileError(f"{source} has no array {missing!r}. It holds {listing(stored)}.")
    if distances.ndim != 2 or labels.shape != distances.shape:  # noqa: PLR2004
        raise EmbeddingsFileError(
            f"'distances' and 'labels' in {source} must both be of shape (n, k). "
            f"It holds {listing(stored)}."
        )
    ids = _names(source, stored, "ids")
    counts = _numbers(source, stored, "counts", "iu")
    if counts is None:
        counts = _counts(source, distances, ids)
    padding = np.arange(distances.shape[1]) >= counts.reshape(-1, 1)
    if padding.shape == distances.shape and padding.any():
        distances = np.where(padding, np.inf, distances)
        labels = _padded(labels, padding)
        ids = _padded(ids, padding) if ids is not None and ids.shape == padding.shape else ids
    return HitSet(
        distances.astype(np.float64),
        labels,
        counts.astype(np.int64),
        ids,
        _names(source, stored, "own_ids"),
        _names(source, stored, "truth"),
    )


def _counts(source: Source, distances: AnyArray, ids: AnyArray | None) -> AnyArray:
    """Without counts every entry is a hit, unless its id is -1, as faiss fills up."""
    n, k = distances.shape
    if ids is None or ids.dtype.kind != "i" or ids.shape != (n, k):
        return np.full(n, k)
    hits = ids != -1
    behind = hits[:, 1:] & ~hits[:, :-1]
    if behind.any():
        row = int(np.flatnonzero(behind.any(axis=1))[0])
        raise EmbeddingsFileError(
            f"'ids' in {source} must have -1, for no hit, at the end of a row only. "
            f"Row {row} has it before a hit."
        )
    counts: AnyArray = hits.sum(axis=1)
    return counts


def _padded(names: AnyArray, padding: BoolArray) -> AnyArray:
    if names.dtype.kind == "U":
        return np.where(padding, "", names)
    signed = names.astype(np.int64) if names.dtype.kind == "b" else names
    return np.where(padding, -1, signed)


def _numbers(source: Source, stored: Arrays, name: str, kinds: str) -> AnyArray | None:
    if name not in stored:
        return None
    if stored[name].kind not in f"{kinds}iu":
        raise EmbeddingsFileError(
            f"{name!r} in {source} must be {'numbers' if 'f' in kinds else 'integers'}. "
            f"It holds {listing(stored)}."
        )
    return _whole(stored[name])


def _names(source: Source, stored: Arrays, name: str) -> AnyArray | None:
    if name not in stored:
        return None
    array = _whole(stored[name])
    flat = as_names(name, f"{name!r} in {source}", array.reshape(-1), "Entry {}".format)
    return flat.reshape(array.shape)


def _whole(array: StoredArray) -> AnyArray:
    pieces = list(array.pieces(_PIECE))
    return np.concatenate(pieces) if pieces else np.empty([length or 0 for length in array.shape])
