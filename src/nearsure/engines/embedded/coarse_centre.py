"""Vectors near the origin, moved there by numbers so coarse that float32 loses nothing.

faiss holds float32. Far from the origin a vector in double precision would lose what tells it from
its neighbours, so a centre is subtracted first. It has fewer digits than a float32 number, and is
zero unless it is far beyond the spread of the vectors: the difference of a float32 number near it
is a float32 number again, and what was put in comes out to the last bit.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.errors import InvalidInputError

SAMPLE = 1000
BLOCK = 8192
# Squares of differences, summed over some ten thousand numbers, stay finite below this.
LARGEST = 1e16
ORDINARY = 2.0**20
# Beyond this many times the spread, and with so many bits of the 24 of a float32 number, the
# difference from any vector of the cloud has no more than 24 bits.
FAR = 4
CENTRE_BITS = 20


@dataclass(frozen=True, eq=False)
class CoarseCentre:
    """What to subtract from vectors and then divide them by.

    Parameters
    ----------
    centre : array of shape (dimension,)
        Zero for embeddings about the origin.
    scale : float
        A power of two, and 1 for vectors of any ordinary size.

    Examples
    --------
    >>> moved = CoarseCentre.of(np.array([[1000.5, 0.1], [1001.25, 0.2], [1002.0, 0.3]]))
    >>> moved.centre
    array([1001.25,    0.  ])
    """

    centre: FloatArray
    scale: float

    @classmethod
    def of(cls, vectors: AnyArray) -> Self:
        """The centre and scale that serve these vectors."""
        sample = vectors[:: -(-len(vectors) // SAMPLE)].astype(np.float64)
        # Medians, so that no outlier has a say.
        middle = np.median(sample, axis=0)
        spread = float(np.median(np.abs(sample - middle).max(axis=1)))
        # One point, or copies of one, do not say how far others will be.
        is_far = (np.abs(middle) > FAR * spread) & (spread > 0)
        centre = np.where(is_far, _coarse(middle), 0.0)
        size = float(np.median(np.abs(sample - centre).max(axis=1)))
        is_ordinary = not size or 1 / ORDINARY < size < ORDINARY
        return cls(centre, 1.0 if is_ordinary else float(2.0 ** np.ceil(np.log2(size))))

    @property
    def is_nothing(self) -> bool:
        """Whether vectors stay as they are."""
        return self.scale == 1.0 and not self.centre.any()

    def moved(self, vectors: AnyArray, name: str) -> AnyArray:
        """Vectors as faiss holds them, float32; the same array if it is that already."""
        if self.is_nothing:
            with np.errstate(over="ignore"):
                moved: AnyArray = np.ascontiguousarray(vectors, np.float32)
        else:
            moved = np.empty(vectors.shape, np.float32)
            for start in range(0, len(vectors), BLOCK):
                block = slice(start, start + BLOCK)
                with np.errstate(over="ignore"):
                    moved[block] = (vectors[block] - self.centre) / self.scale
        if not (moved.min() > -LARGEST and moved.max() < LARGEST):
            raise InvalidInputError(
                f"{name} must lie within {LARGEST * self.scale:.3g} of the points that were loaded "
                "first, as faiss computes in single precision. Got larger numbers. index='exact' "
                "takes them."
            )
        return moved

    def moved_back(self, moved: AnyArray) -> AnyArray:
        """Vectors as they were given: float32 if they stayed as they are, otherwise float64."""
        return moved if self.is_nothing else moved * self.scale + self.centre


def _coarse(numbers: FloatArray) -> FloatArray:
    """Numbers, rounded to few binary digits."""
    significands, exponents = np.frexp(numbers)
    coarse: FloatArray = np.ldexp(np.rint(significands * 2.0**CENTRE_BITS), exponents - CENTRE_BITS)
    return coarse
