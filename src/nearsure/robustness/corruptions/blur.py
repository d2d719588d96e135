"""Out of focus, and zoomed while the shutter is open."""

from functools import lru_cache
from math import ceil
from typing import cast

import cv2
import numpy as np

from nearsure.robustness.corruptions.grey_levels import Float32Array, to_grey_levels
from nearsure.robustness.image_checks import Pixels


def defocus_blur(
    image: Pixels, _rng: np.random.Generator, *, radius: float, softness: float
) -> Pixels:
    """Spread each pixel over a disk, as a lens out of focus does."""
    return to_grey_levels(cv2.filter2D(image.astype(np.float32), -1, _soft_disk(radius, softness)))


@lru_cache(maxsize=256)
def _soft_disk(radius: float, softness: float) -> Float32Array:
    """Weights of a disk whose rim is softened, cut to where they are not zero.

    The published disk lies in a square of half side 8, or of the radius if that is larger; where
    disk and square touch, the softening is reflected. That is kept here, although it makes the
    image one part in a hundred brighter at a radius of 8 or 10.
    """
    half, width = (8, 3) if radius <= 8 else (int(np.floor(radius)), 5)  # noqa: PLR2004
    line = np.arange(-half, half + 1)
    disk = (np.hypot(line[:, None], line) <= radius).astype(np.float32)
    soft = cv2.GaussianBlur(disk / disk.sum(), (width, width), softness)
    reach = min(half, int(radius) + width // 2)
    weights = soft[half - reach : half + reach + 1, half - reach : half + reach + 1].copy()
    weights.setflags(write=False)
    return cast("Float32Array", weights)


def zoom_blur(image: Pixels, _rng: np.random.Generator, *, largest: float, layers: int) -> Pixels:
    """Average the image with magnifications of its middle."""
    height, width = image.shape[:2]
    total = 2 * image.astype(np.float32)  # itself, and the magnification of 1
    for factor in np.linspace(1, largest, layers)[1:].tolist():
        top, rows, below, wide_rows = _zoomed_span(height, factor)
        left, columns, beside, wide_columns = _zoomed_span(width, factor)
        middle = image[top : top + rows, left : left + columns]
        zoomed = cv2.resize(middle, (wide_columns, wide_rows))
        cv2.accumulate(zoomed[below : below + height, beside : beside + width], total)
    return to_grey_levels(total / (layers + 1))


@lru_cache(maxsize=4096)
def _zoomed_span(side: int, factor: float) -> tuple[int, int, int, int]:
    """First pixel and length of the part that is magnified; margin and length when it is."""
    length = ceil(side / factor)
    magnified = max(side, round(length * factor))
    return (side - length) // 2, length, (magnified - side) // 2, magnified
