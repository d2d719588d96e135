"""Bent like rubber."""

from functools import lru_cache
from typing import cast

import cv2
import numpy as np

from nearsure.robustness.corruptions.grey_levels import Float32Array
from nearsure.robustness.image_checks import Pixels


def elastic_transform(
    image: Pixels,
    rng: np.random.Generator,
    *,
    amplitude: float,
    smoothness: float,
    shift: float,
) -> Pixels:
    """Shift three corners of a square at random, then bend the image by a smooth displacement."""
    smaller = min(image.shape[:2])
    moved = _affine(image, shift * smaller, rng) if shift else image
    return _bent(moved, amplitude * smaller, smoothness * smaller, rng) if amplitude else moved


def _affine(image: Pixels, shift: float, rng: np.random.Generator) -> Pixels:
    height, width = image.shape[:2]
    x, y, half = width // 2, height // 2, min(height, width) // 3
    before = np.array(
        [[x + half, y + half], [x + half, y - half], [x - half, y - half]], np.float32
    )
    after = before + rng.uniform(-shift, shift, (3, 2)).astype(np.float32)
    return cast(
        "Pixels",
        cv2.warpAffine(
            image,
            cv2.getAffineTransform(before, after),
            (width, height),
            borderMode=cv2.BORDER_REFLECT_101,
        ),
    )


def _bent(image: Pixels, amplitude: float, smoothness: float, rng: np.random.Generator) -> Pixels:
    height, width = image.shape[:2]
    side = 2 * int(3 * smoothness + 0.5) + 1
    noise = rng.random((height, width, 2), np.float32)
    noise -= 0.5
    noise *= 2 * amplitude
    displacement = cv2.GaussianBlur(noise, (side, side), smoothness, borderType=cv2.BORDER_REFLECT)
    positions = displacement + _own_positions(height, width)
    # In fixed point, which is faster and whose coordinates cannot be far off: OpenCV reflects a
    # coordinate step by step, which takes seconds for a number that is far outside.
    whole, fraction = cv2.convertMaps(positions, None, cv2.CV_16SC2)  # type: ignore[call-overload]
    return cast(
        "Pixels",
        cv2.remap(image, whole, fraction, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT),
    )


@lru_cache(maxsize=16)
def _own_positions(height: int, width: int) -> Float32Array:
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    positions = np.stack((x, y), axis=-1)
    positions.setflags(write=False)
    return positions
