"""Smooth random fields: the displacement of an elastic distortion."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import FloatArray


def smooth_noise(
    generator: np.random.Generator, *, size: int, correlation: float, fields: int
) -> FloatArray:
    """White noise on a lattice, filtered by a Gaussian.

    Every value is normal with mean 0 and variance 1; values further apart than a few times
    `correlation` are nearly independent.

    Parameters
    ----------
    generator : numpy.random.Generator
        Where the noise comes from.
    size : int
        Height and width of a field.
    correlation : float
        Standard deviation of the Gaussian, as a fraction of `size`.
    fields : int
        How many independent fields.

    Returns
    -------
    noise : ndarray of shape (fields, size, size)
        The fields.

    References
    ----------
    Simard, Steinkraus, Platt: Best Practices for Convolutional Neural Networks Applied to Visual
    Document Analysis. ICDAR 2003.

    Examples
    --------
    >>> noise = smooth_noise(np.random.default_rng(0), size=32, correlation=0.25, fields=2)
    >>> noise.shape
    (2, 32, 32)
    >>> bool(np.abs(np.diff(noise)).max() < 0.3)
    True
    """
    kernel = _kernel(size, correlation)
    lattice = generator.standard_normal((fields, kernel.shape[1], kernel.shape[1]))
    # The Gaussian separates into rows and columns, which is far cheaper than a filter of the plane.
    smooth: FloatArray = kernel @ lattice @ kernel.T
    return smooth


@lru_cache(maxsize=16)
def _kernel(size: int, correlation: float) -> NDArray[np.float64]:
    """Weights of the lattice's lines for each line of the field; squares sum to one in a row.

    The lattice is as fine as the Gaussian is wide, which leaves no trace of it in the field, and
    reaches three of these widths over the border.
    """
    lines = np.arange(-3 * correlation, 1 + 3.5 * correlation, correlation)
    pixels = (np.arange(size) + 0.5) / size
    weights = np.exp(-0.5 * ((pixels[:, None] - lines) / correlation) ** 2)
    kernel: NDArray[np.float64] = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    kernel.flags.writeable = False
    return kernel
