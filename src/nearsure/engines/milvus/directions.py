"""Vectors that are compared by their direction: which have one, and which are at unit length."""

from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.conventions import ROUNDING
from nearsure.errors import GalleryMismatchError, InvalidInputError


def check_direction(vectors: AnyArray) -> None:
    """An error for vectors whose length Milvus, in single precision, cannot divide by."""
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


def check_unit(vectors: AnyArray, name: str) -> None:
    """An error for vectors of another length than 1, beyond rounding."""
    lengths: Any = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if (np.abs(lengths - 1.0) > ROUNDING).any():
        worst = lengths[np.abs(lengths - 1.0).argmax()]
        raise GalleryMismatchError(
            f"Vectors of {name} must have unit length, as its metric is the inner product: it says "
            f"nothing about distances of others. Got one of length {worst:.6g}. Normalise them, or "
            "use the metric 'euclidean' or 'cosine'."
        )
