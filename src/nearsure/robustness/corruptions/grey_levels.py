"""Between grey levels, 0 to 255 in bytes, and float32 images of the same scale."""

from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsure.robustness.image_checks import Pixels

Float32Array = NDArray[np.float32]


def to_grey_levels(image: NDArray[Any]) -> Pixels:
    """Round to the nearest level; what is above 255 becomes 255. Nothing may be below -0.5."""
    return cast("Pixels", cv2.convertScaleAbs(image))


def weighted_sum(image: Pixels, weight: float, layer: NDArray[Any], layer_weight: float) -> Pixels:
    """``weight * image + layer_weight * layer``, rounded and cut to 0 ... 255."""
    return cast("Pixels", cv2.addWeighted(image, weight, layer, layer_weight, 0.0, dtype=cv2.CV_8U))


def three_channels(plane: Float32Array) -> Float32Array:
    """The same plane for red, green and blue."""
    return cast("Float32Array", cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB))
