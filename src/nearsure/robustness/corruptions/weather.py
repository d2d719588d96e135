"""Snow, frost and fog."""

from math import ceil
from typing import cast

import cv2
import numpy as np

from nearsure.robustness.corruptions.frost_texture import STYLES, frost_texture
from nearsure.robustness.corruptions.grey_levels import (
    Float32Array,
    three_channels,
    to_grey_levels,
    weighted_sum,
)
from nearsure.robustness.corruptions.motion import blurred_along
from nearsure.robustness.corruptions.plasma import plasma
from nearsure.robustness.image_checks import Pixels


def snow(
    image: Pixels,
    rng: np.random.Generator,
    *,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    image_weight: float,
) -> Pixels:
    """Whiten the image and let flakes fall over it, steeply."""
    height, width = image.shape[:2]
    flakes = _magnified_noise(height, width, zoom, rng) * np.float32(deviation) + np.float32(mean)
    flakes[flakes < threshold] = 0
    np.minimum(flakes, 1, out=flakes)
    flakes = blurred_along(flakes, rng.uniform(-135, -45), radius, sigma)
    flakes += flakes[::-1, ::-1].copy()

    clean = image.astype(np.float32)
    grey = cv2.cvtColor(clean, cv2.COLOR_RGB2GRAY).astype(np.float32, copy=False)
    whitened = cv2.max(clean, three_channels(1.5 * grey + 127.5))
    snowy = cv2.addWeighted(clean, image_weight, whitened, 1 - image_weight, 0.0)
    return to_grey_levels(snowy + three_channels(255 * flakes))


def _magnified_noise(
    height: int, width: int, zoom: float, rng: np.random.Generator
) -> Float32Array:
    """Normal noise, interpolated so that the outer samples lie on the border of the image."""
    rows, columns = ceil(height / zoom), ceil(width / zoom)
    noise = rng.standard_normal((rows, columns), np.float32)
    if (rows, columns) == (height, width):
        return noise
    scale = np.array([[(columns - 1) / (width - 1), 0, 0], [0, (rows - 1) / (height - 1), 0]])
    # Every phase between two samples must occur alike: OpenCV's resize takes few of them, which
    # makes magnified noise too smooth or too rough at whole factors.
    magnified = cv2.warpAffine(
        noise,
        scale,
        (width, height),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return cast("Float32Array", magnified)


def frost(
    image: Pixels,
    rng: np.random.Generator,
    *,
    image_weight: float,
    frost_weight: float,
    scale: float,
) -> Pixels:
    """Lay a part of a frosted window over the image."""
    height, width = image.shape[:2]
    texture = frost_texture(int(rng.integers(len(STYLES))), scale, max(height, width))
    top = int(rng.integers(texture.shape[0] - height + 1))
    left = int(rng.integers(texture.shape[1] - width + 1))
    overlay = texture[top : top + height, left : left + width]
    return weighted_sum(image, image_weight, overlay, frost_weight)


def fog(image: Pixels, rng: np.random.Generator, *, weight: float, decay: float) -> Pixels:
    """Add clouds, and darken the sum to the old maximum."""
    height, width = image.shape[:2]
    size = 1 << (max(height, width) - 1).bit_length()
    clouds = plasma(size, decay, rng)[:height, :width]
    brightest = float(image.max()) / 255
    share = brightest / (brightest + weight)
    return weighted_sum(
        image, share, three_channels(np.ascontiguousarray(clouds)), 255 * share * weight
    )
