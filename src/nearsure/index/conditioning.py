"""Vectors as float32 serves them best: about the origin and of size 1."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from nearsure.arrays import AnyArray, FloatArray

BLOCK = 8192
CENTRE_SAMPLE = 1000


@dataclass(frozen=True, eq=False)
class Conditioning:
    """What to subtract from vectors and then divide them by.

    Parameters
    ----------
    centre : array of shape (n_features,)
        The middle of most vectors.
    scale : float
        How far from it they reach.
    """

    centre: FloatArray
    scale: float

    @classmethod
    def of(cls, vectors: AnyArray) -> Self:
        """The conditioning that serves these vectors."""
        # The median of a sample is near enough to the middle, and no outlier moves it away.
        sample = vectors[:: -(-len(vectors) // CENTRE_SAMPLE)].astype(np.float64)
        centre = np.median(sample, axis=0)
        if vectors.dtype == np.float32:
            # Of ordinary size about the origin, as embeddings are, they can be searched in place.
            sq_norm = float(np.median(np.square(sample).sum(axis=1)))
            if centre @ centre <= sq_norm / 2 and 2.0**-40 < sq_norm < 2.0**40:
                return cls(np.zeros_like(centre), 1.0)
        spread = float(np.maximum(vectors.max(axis=0) - centre, centre - vectors.min(axis=0)).max())
        return cls(centre, spread or 1.0)

    def apply(self, vectors: AnyArray) -> AnyArray:
        """The vectors as faiss sees them, float32 and contiguous; the same array where it serves.

        What float32 cannot hold becomes infinite.
        """
        if self.scale == 1.0 and not self.centre.any():
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(vectors, np.float32)
        conditioned = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), BLOCK):
            block = slice(start, start + BLOCK)
            with np.errstate(over="ignore"):
                conditioned[block] = (vectors[block] - self.centre) / self.scale
        return conditioned
