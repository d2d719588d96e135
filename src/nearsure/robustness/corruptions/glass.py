"""Seen through frosted glass."""

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsure.robustness.corruptions.grey_levels import to_grey_levels
from nearsure.robustness.image_checks import Pixels

Positions = NDArray[np.intp]


def glass_blur(
    image: Pixels, rng: np.random.Generator, *, sigma: float, reach: int, passes: int
) -> Pixels:
    """Blur, let each pixel take the colour of one nearby, and blur again."""
    height, width = image.shape[:2]
    source = pixel_sources(height, width, reach, rng)
    for _ in range(passes - 1):
        source = source.take(pixel_sources(height, width, reach, rng))
    shuffled = _blurred(image, sigma).reshape(-1, 3).take(source, axis=0)
    return _blurred(shuffled.reshape(image.shape), sigma)


def _blurred(image: Pixels, sigma: float) -> Pixels:
    side = 2 * int(4 * sigma + 0.5) + 1
    return to_grey_levels(
        cv2.GaussianBlur(
            image.astype(np.float32), (side, side), sigma, borderType=cv2.BORDER_REPLICATE
        )
    )


def pixel_sources(height: int, width: int, reach: int, rng: np.random.Generator) -> Positions:
    """Where each pixel's colour comes from after one shuffle.

    The published shuffle walks over the image from its last pixel to its first. Each pixel takes
    the colour of one at most `reach` away, which may have taken its own before: colours are handed
    on. (It is written as a swap there, but swaps views of one array, and so copies.) The same
    result is reached without the walk: a pixel points at the one it takes from if that one was
    visited before, and following all pointers at once, each time twice as far, ends after a few
    rounds.

    Parameters
    ----------
    height, width : int
        Of the image.
    reach : int
        Farthest step up or left; down or right it is one less.
    rng : numpy.random.Generator
        What the steps are drawn from.

    Returns
    -------
    array of shape (height * width,), intp
        Position of the colour of each pixel, row by row.
    """
    inner, steps = _inner_pixels(height, width, reach)
    here = np.arange(height * width)
    taken_from = here.copy()
    taken_from[inner] += steps.take(rng.integers(0, len(steps), len(inner), np.uint8))
    last = np.maximum(taken_from, here)
    while True:
        farther = last.take(last)
        if np.array_equal(farther, last):
            return taken_from.take(last)
        last = farther


@lru_cache(maxsize=64)
def _inner_pixels(height: int, width: int, reach: int) -> tuple[Positions, Positions]:
    """Positions of the pixels that are shuffled, and the steps that each may take."""
    position = np.arange(height * width).reshape(height, width)
    inner = position[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1].reshape(-1)
    step = np.arange(-reach, reach)
    steps = (step[:, None] * width + step).reshape(-1)
    for array in (inner, steps):
        array.setflags(write=False)
    return inner, steps
