"""Brightness, contrast, coarse pixels and JPEG."""

from functools import lru_cache
from typing import cast

import cv2
import numpy as np
from PIL import Image

from nearsure.robustness.image_checks import Pixels


def brightness(image: Pixels, _rng: np.random.Generator, *, lift: float) -> Pixels:
    """Lift the value of hue, saturation and value.

    Hue and saturation are kept if all three channels grow by the factor by which the largest does,
    so no change of colour space is needed.
    """
    red, green, blue = cv2.split(image)
    value = cv2.max(cv2.max(red, green), blue).astype(np.uint16)
    value <<= 8
    return _lifted_levels(lift).take(image | value[:, :, None])


@lru_cache(maxsize=256)
def _lifted_levels(lift: float) -> Pixels:
    """The new level of a channel, at 256 * value + old level."""
    value, level = np.arange(256.0)[:, None], np.arange(256.0)
    lifted = np.minimum(value + 255 * lift, 255)
    # Black has no hue: it becomes grey.
    levels = np.where(value > 0, level * lifted / np.maximum(value, 1), lifted)
    table = np.rint(np.minimum(levels, 255)).astype(np.uint8).reshape(-1)
    table.setflags(write=False)
    return table


def contrast(image: Pixels, _rng: np.random.Generator, *, factor: float) -> Pixels:
    """Draw every channel to its mean."""
    means = np.array(cv2.mean(image)[:3])
    levels = means + factor * (np.arange(256.0)[:, None] - means)
    return cast("Pixels", cv2.LUT(image, np.rint(levels).astype(np.uint8)[None]))


def pixelate(image: Pixels, _rng: np.random.Generator, *, fraction: float) -> Pixels:
    """Show a small copy of the image large."""
    height, width = image.shape[:2]
    rows, columns = int(height * fraction), int(width * fraction)
    whole = Image.fromarray(image)
    if height % rows == 0 and width % columns == 0:
        # The same means of blocks, several times as fast.
        coarse = whole.reduce((width // columns, height // rows))
    else:
        coarse = whole.resize((columns, rows), Image.Resampling.BOX)
    # A copy, since what Pillow lends is read-only.
    return np.array(coarse.resize((width, height), Image.Resampling.NEAREST))


def jpeg_compression(image: Pixels, _rng: np.random.Generator, *, quality: int) -> Pixels:
    """Write a JPEG file and read it."""
    swapped = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, file = cv2.imencode(".jpg", swapped, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cast("Pixels", cv2.imdecode(file, cv2.IMREAD_COLOR_RGB))
