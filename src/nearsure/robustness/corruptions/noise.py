"""Gaussian, shot and impulse noise, each value by itself."""

from functools import lru_cache

import numpy as np
from scipy.special import pdtr

from nearsure.robustness.corruptions.grey_levels import weighted_sum
from nearsure.robustness.image_checks import Pixels

QUANTILE_BITS = 12


def gaussian_noise(image: Pixels, rng: np.random.Generator, *, deviation: float) -> Pixels:
    """Add normal noise, as of an amplifier in poor light."""
    noise = rng.standard_normal(image.shape, np.float32)
    return weighted_sum(image, 1.0, noise, 255 * deviation)


def shot_noise(image: Pixels, rng: np.random.Generator, *, photons: int) -> Pixels:
    """Draw the number of photons of each value from a Poisson distribution."""
    quantiles = rng.integers(0, 1 << QUANTILE_BITS, image.shape, np.uint16)
    cell = image.astype(np.intp)
    cell <<= QUANTILE_BITS
    cell |= quantiles
    return _poisson_quantiles(photons).take(cell)


@lru_cache(maxsize=32)
def _poisson_quantiles(photons: int) -> Pixels:
    """Equally likely outcomes for each grey level: a drawing is then one look into a table.

    Every probability is right to one part in 4,096, far finer than a data set can tell.
    """
    counts = np.arange(photons + 1)
    # Brighter than white is white: no count beyond that of white is ever told apart.
    levels = np.rint(255 * counts / photons).astype(np.uint8)
    middles = (np.arange(1 << QUANTILE_BITS) + 0.5) / (1 << QUANTILE_BITS)
    table = np.empty((256, 1 << QUANTILE_BITS), np.uint8)
    for grey in range(256):
        below = pdtr(counts[:-1], photons * grey / 255)
        table[grey] = levels[np.searchsorted(below, middles)]
    table.setflags(write=False)
    return table.reshape(-1)


def impulse_noise(image: Pixels, rng: np.random.Generator, *, amount: float) -> Pixels:
    """Turn some values black and as many white: salt and pepper."""
    draws = rng.integers(0, 1 << 16, image.shape, np.uint16)
    each = round(amount / 2 * (1 << 16))
    corrupted = image.copy()
    np.putmask(corrupted, draws < each, 0)
    np.putmask(corrupted, draws >= (1 << 16) - each, 255)
    return corrupted
