"""Natural images for the tests: parts of the two photographs that come with scikit-learn."""

from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

Pixels = NDArray[np.uint8]

CORNERS = ((0, 0), (0, 213), (100, 50), (100, 250))
PART = 320


@cache
def photographs(size: int) -> tuple[Pixels, ...]:
    """Eight square photographs: four parts of a temple, four of a flower."""
    parts = []
    # The two are taken in turn, so that the first few hold both.
    for top, left in CORNERS:
        for whole in load_sample_images().images:
            part = np.ascontiguousarray(whole[top : top + PART, left : left + PART])
            shown = cv2.resize(part, (size, size), interpolation=cv2.INTER_AREA)
            parts.append(np.asarray(shown, np.uint8))
            parts[-1].setflags(write=False)
    return tuple(parts)


def peak_signal_to_noise(clean: Pixels, damaged: Pixels) -> float:
    """In decibels: 10 more are a tenth of the squared error."""
    error = clean.astype(np.float32) - damaged
    return float(10 * np.log10(255**2 / max(float(np.mean(error * error)), 1e-9)))
