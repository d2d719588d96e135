"""Cosine is Euclidean on unit vectors: |z - z_i|^2 = 2 - 2 cos."""

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError


def unit_vectors(vectors: AnyArray) -> AnyArray:
    """Vectors scaled to unit length, in their own precision."""
    largest = np.abs(vectors).max(axis=1).astype(np.float64)
    if not largest.all():
        raise InvalidInputError(
            f"Row {int(largest.argmin())} is a zero vector, which has no direction: "
            "metric 'cosine' needs vectors that are not zero."
        )
    # Divided by the largest entry first, so that no square overflows or vanishes.
    scaled = vectors / largest[:, None]
    unit: AnyArray = (scaled / np.linalg.norm(scaled, axis=1, keepdims=True)).astype(
        vectors.dtype, copy=False
    )
    return unit
