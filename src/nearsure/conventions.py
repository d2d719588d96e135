"""What engines call a distance, turned into the one number that nearsure knows: |z - z_i|^2.

Each function takes an array of what an engine returned and gives squared Euclidean distances of
the same shape. NaN passes through: whether it marks padding or a broken query is for the caller to
decide.
"""

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.errors import InvalidInputError

# Half precision vectors of unit length have inner products that are off by up to about 1e-3;
# anything further out is another quantity, not rounding.
ROUNDING = 1e-3
ABSOLUTE_ROUNDING = 1e-6


def squared_l2(values: AnyArray) -> FloatArray:
    """Squared Euclidean distances (faiss, Milvus, Chroma); rounding below zero becomes zero."""
    return _not_negative(values, "a squared Euclidean distance")


def l2(values: AnyArray) -> FloatArray:
    """Euclidean distances (pgvector's ``<->``, Qdrant, scikit-learn)."""
    return np.square(_not_negative(values, "a Euclidean distance"))


def cosine_similarity(values: AnyArray) -> FloatArray:
    """Cosine similarities: |z - z_i|^2 = 2 - 2 cos for vectors of unit length."""
    return _from_cosine(values, "a cosine similarity")


def cosine_distance(values: AnyArray) -> FloatArray:
    """Cosine distances, 1 - cos (pgvector's ``<=>``, Chroma)."""
    return _from_cosine(1.0 - np.asarray(values, np.float64), "1 - a cosine distance")


def inner_product(values: AnyArray) -> FloatArray:
    """Inner products of vectors of unit length (faiss, Milvus)."""
    return _from_cosine(values, "the inner product of unit vectors")


def negative_inner_product(values: AnyArray) -> FloatArray:
    """Negated inner products of vectors of unit length (pgvector's ``<#>``)."""
    return _from_cosine(-np.asarray(values, np.float64), "the inner product of unit vectors")


def _not_negative(values: AnyArray, quantity: str) -> FloatArray:
    distances = np.array(values, np.float64)
    # A lone duplicate has nothing to be measured by, hence the absolute part.
    farthest = np.fmax.reduce(distances, axis=-1, keepdims=True, initial=0.0)
    tolerated = ROUNDING * farthest + ABSOLUTE_ROUNDING
    if (distances < -tolerated).any():
        raise InvalidInputError(
            f"{quantity} must not be negative. Got {np.nanmin(distances):.6g} instead. If these "
            "are similarities or inner products, use the constructor of that name."
        )
    return np.maximum(distances, 0.0, out=distances)


def _from_cosine(values: AnyArray, quantity: str) -> FloatArray:
    cosines = np.asarray(values, np.float64)
    if (np.abs(cosines) > 1.0 + ROUNDING).any():
        raise InvalidInputError(
            f"{quantity} must lie in [-1, 1]. Got {np.nanmax(np.abs(cosines)):.6g} in magnitude. "
            "Normalise the vectors to unit length before indexing, or search by Euclidean distance."
        )
    return np.maximum(2.0 - 2.0 * cosines, 0.0)
