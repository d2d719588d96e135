"""Moved while the shutter is open."""

from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsure.robustness.corruptions.grey_levels import Float32Array, to_grey_levels
from nearsure.robustness.image_checks import Pixels

# A weight below this moves no grey level by a tenth, even all the left-out ones together.
NEGLIGIBLE = 1e-5


def motion_blur(image: Pixels, rng: np.random.Generator, *, radius: int, sigma: float) -> Pixels:
    """Blur along a line at most 45 degrees from the horizontal."""
    angle = rng.uniform(-45, 45)
    return to_grey_levels(blurred_along(image.astype(np.float32), angle, radius, sigma))


def blurred_along(image: Float32Array, angle: float, radius: int, sigma: float) -> Float32Array:
    """Blur to one side along a line: the weights of half a bell over ``2 * radius + 1`` steps.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, 3), float32
        Beyond its border it goes on with its last pixels.
    angle : float
        Of the movement, in degrees.
    radius : int
        Half the number of steps.
    sigma : float
        Standard deviation of the bell, in pixels.

    Returns
    -------
    array of the same shape, float32
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    steps, weights = steps[weights > NEGLIGIBLE], weights[weights > NEGLIGIBLE]
    rows = _nearest(steps * np.sin(np.deg2rad(angle)))
    columns = _nearest(steps * np.cos(np.deg2rad(angle)))
    # The kernel spans the line and the pixel that it starts from, which is its anchor.
    top, left = int(rows.min()), int(columns.min())
    kernel = np.zeros((int(rows.max()) - top + 1, int(columns.max()) - left + 1), np.float32)
    np.add.at(kernel, (rows - top, columns - left), weights)
    return cast(
        "Float32Array",
        cv2.filter2D(image, -1, kernel, anchor=(-left, -top), borderType=cv2.BORDER_REPLICATE),
    )


def _nearest(positions: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.ceil(positions - 0.5).astype(np.int64)
