"""Frosted windows, drawn: feathers of ice over clouds, in the colours of a cold pane."""

from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil
from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsure.robustness.corruptions.grey_levels import Float32Array
from nearsure.robustness.corruptions.plasma import plasma
from nearsure.robustness.image_checks import Pixels

SIDE = 384
# Points of a line are given to OpenCV in sixteenths of a pixel.
SUBPIXEL_BITS = 4
GROUND = 110.0
BARB_SPACING = 3.0


@dataclass(frozen=True)
class FrostStyle:
    """How one frosted window looks.

    Parameters
    ----------
    mean, deviation : tuple of float
        Of red, green and blue over the whole window, in grey levels.
    feathers : int
        How many are drawn.
    length : tuple of float
        Shortest and longest, in pixels.
    cloud_weight : float
        Of the clouds behind, against the feathers.
    """

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    feathers: int
    length: tuple[float, float]
    cloud_weight: float


# Means and deviations span those of the photographs of frost in the original benchmark, so that
# an overlay does the same damage.
STYLES = (
    FrostStyle((78, 149, 166), (27, 17, 15), 280, (25, 90), 1.0),
    FrostStyle((201, 206, 214), (21, 22, 23), 840, (20, 80), 0.4),
    FrostStyle((199, 204, 213), (22, 22, 22), 400, (50, 150), 0.5),
    FrostStyle((138, 153, 165), (29, 29, 30), 1450, (8, 40), 0.6),
    FrostStyle((112, 123, 135), (44, 43, 42), 620, (25, 90), 0.8),
    FrostStyle((71, 95, 105), (35, 43, 47), 340, (50, 170), 0.7),
)


@lru_cache(maxsize=32)
def frost_texture(number: int, scale: float, least_side: int) -> Pixels:
    """A frosted window at a scale, enlarged if an image would not fit in.

    Parameters
    ----------
    number : int
        Position in `STYLES`.
    scale : float
        1: as drawn.
    least_side : int
        Longer side of the image, in pixels.

    Returns
    -------
    array of shape (side, side, 3), uint8
        Read-only; the side exceeds `least_side` by a tenth or more, so that there is a choice of
        places to cut from.
    """
    side = round(scale * SIDE)
    if side < 1.1 * least_side:
        # In steps of 64, so that images of many sizes share few windows.
        side = 64 * ceil(1.1 * least_side / 64)
    if side == SIDE:
        return frost_window(number)
    method = cv2.INTER_AREA if side < SIDE else cv2.INTER_CUBIC
    resized = cv2.resize(frost_window(number), (side, side), interpolation=method)
    resized.setflags(write=False)
    return cast("Pixels", resized)


@cache
def frost_window(number: int) -> Pixels:
    """One frosted window, the same at every call.

    Parameters
    ----------
    number : int
        Position in `STYLES`; also the seed of the drawing.

    Returns
    -------
    array of shape (384, 384, 3), uint8
        Read-only.
    """
    style = STYLES[number]
    rng = np.random.default_rng(number)
    relief = _feathers(style, rng)
    relief += style.cloud_weight * _standardised(plasma(512, 1.6, rng)[:SIDE, :SIDE])
    relief += 0.25 * rng.standard_normal(relief.shape, np.float32)
    relief = _standardised(cv2.GaussianBlur(relief, (3, 3), 0.6).astype(np.float32, copy=False))
    colour = np.array(style.mean) + np.array(style.deviation) * relief[:, :, None]
    window: Pixels = np.clip(np.rint(colour), 0, 255).astype(np.uint8)
    window.setflags(write=False)
    return window


def _standardised(plane: Float32Array) -> Float32Array:
    standardised: Float32Array = (plane - plane.mean()) / plane.std()
    return standardised


def _feathers(style: FrostStyle, rng: np.random.Generator) -> Float32Array:
    """Ferns of ice, the later ones over the earlier, as a standardised relief."""
    canvas = np.full((SIDE, SIDE), int(GROUND), np.uint8)
    # Ice grows from scratches and specks: some feathers share a root and spread like a fan.
    roots = rng.uniform(-0.05 * SIDE, 1.05 * SIDE, (style.feathers // 3, 2))
    headings = rng.uniform(0, 2 * np.pi, len(roots))
    for _ in range(style.feathers):
        fan = int(rng.integers(len(roots)))
        root = roots[fan] + rng.normal(0, 5, 2)
        length = rng.uniform(*style.length)
        _draw_feather(canvas, root, headings[fan] + rng.normal(0, 0.7), length, rng)
    return _standardised(canvas.astype(np.float32))


def _draw_feather(
    canvas: Pixels,
    root: NDArray[np.float64],
    angle: float,
    length: float,
    rng: np.random.Generator,
) -> None:
    tone = rng.uniform(1.1, 1.7) * GROUND
    steps = np.arange(0, length, BARB_SPACING)
    heading = angle + rng.normal(0, 0.4) * steps / length
    spine = root + np.cumsum(BARB_SPACING * _directions(heading), axis=0)

    # Barbs leave the spine at about the 60 degrees of ice crystals, and shorten towards the tip.
    longest = rng.uniform(0.15, 0.4) * (length - steps) * np.minimum(1, 0.2 + 5 * steps / length)
    lengths = longest[:, None] * rng.uniform(0.4, 1, (len(steps), 2))
    tilts = rng.uniform(0.6, 1.05) + rng.normal(0, 0.1, (len(steps), 2))
    left = spine + lengths[:, :1] * _directions(heading + tilts[:, 0])
    right = spine + lengths[:, 1:] * _directions(heading - tilts[:, 1])

    leaf = np.concatenate((left, right[::-1]))
    cv2.fillPoly(canvas, [_fixed(leaf)], (0.7 * tone,), cv2.LINE_AA, SUBPIXEL_BITS)
    # Light falls from one side: the two rows of barbs differ.
    _draw_lines(canvas, np.stack((spine, left), axis=1), tone)
    _draw_lines(canvas, np.stack((spine, right), axis=1), 0.85 * tone)
    _draw_lines(canvas, spine[None], 1.3 * tone)


def _draw_lines(canvas: Pixels, lines: NDArray[np.float64], tone: float) -> None:
    cv2.polylines(
        canvas,
        list(_fixed(lines)),
        isClosed=False,
        color=(min(tone, 255.0),),
        lineType=cv2.LINE_AA,
        shift=SUBPIXEL_BITS,
    )


def _directions(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack((np.cos(angles), np.sin(angles)), axis=-1)


def _fixed(points: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.rint(points * (1 << SUBPIXEL_BITS)).astype(np.int32)
