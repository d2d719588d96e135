"""What the network sees of an image: the central square, or a random crop of it."""

import math

import numpy as np

from nearsure.extras import require
from nearsure.lab.datasets.labelled_images import Pixels

# Of random crops, width to height, as is customary since Inception.
NARROWEST, WIDEST = 3 / 4, 4 / 3
ATTEMPTS = 10


def central_view(image: Pixels, size: int) -> Pixels:
    """The largest central square, resized.

    Examples
    --------
    >>> central_view(np.zeros((20, 30, 3), np.uint8), 16).shape
    (16, 16, 3)
    """
    height, width = image.shape[:2]
    side = min(height, width)
    left, top = (width - side) / 2, (height - side) / 2
    return _resized(image, size, (left, top, left + side, top + side))


def random_view(
    image: Pixels,
    size: int,
    rng: np.random.Generator,
    *,
    smallest_crop: float,
    flip: bool,
) -> Pixels:
    """A random crop, resized, and mirrored half of the time where `flip` says so.

    It covers at least the share `smallest_crop` of the image. Where no such crop of a customary
    shape is found, as in an elongated image, it is the largest square, at a random place.
    """
    height, width = image.shape[:2]
    crop_width = crop_height = float(min(height, width))
    for _ in range(ATTEMPTS):
        area = height * width * rng.uniform(smallest_crop, 1)
        aspect = math.exp(rng.uniform(math.log(NARROWEST), math.log(WIDEST)))
        if area * aspect <= width**2 and area / aspect <= height**2:
            crop_width, crop_height = math.sqrt(area * aspect), math.sqrt(area / aspect)
            break
    left, top = rng.uniform(0, width - crop_width), rng.uniform(0, height - crop_height)
    # Rounding may put the far edge a hair outside, which Pillow refuses.
    right, bottom = min(left + crop_width, width), min(top + crop_height, height)
    view = _resized(image, size, (left, top, right, bottom))
    return view[:, ::-1] if flip and rng.random() < 1 / 2 else view


def _resized(image: Pixels, size: int, box: tuple[float, float, float, float]) -> Pixels:
    height, width = image.shape[:2]
    if (height, width) == (size, size) and box == (0, 0, size, size):
        return image
    pillow = require("PIL.Image", extra="train", purpose="Resizing images")
    picture = pillow.fromarray(np.ascontiguousarray(image))
    resized = picture.resize((size, size), pillow.Resampling.BICUBIC, box=box)
    return np.asarray(resized)
