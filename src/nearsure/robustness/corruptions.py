"""One function a corruption: image, generator and the constants of a severity in, image out.

The functions trust their arguments; `nearsure.robustness.corrupt` checks them. Needs the extra
`train`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.special import pdtr

from nearsure.robustness.corrupt import Pixels

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


def brightness(image: Pixels, _rng: np.random.Generator, *, lift: float) -> Pixels:
    """Lift the value of hue, saturation and value.

    Hue and saturation are kept if all three channels grow by the factor by which the largest does,
    so no change of colour space is needed.
    """
    red, green, blue = cv2.split(image)
    value = cv2.max(cv2.max(red, green), blue).astype(np.uint16)
    value <<= 8
    return _lift_levels(lift).take(image | value[:, :, None])


@lru_cache(maxsize=256)
def _lift_levels(lift: float) -> Pixels:
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
    return _bend(moved, amplitude * smaller, smoothness * smaller, rng) if amplitude else moved


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


def _bend(image: Pixels, amplitude: float, smoothness: float, rng: np.random.Generator) -> Pixels:
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


Positions = NDArray[np.intp]


def glass_blur(
    image: Pixels, rng: np.random.Generator, *, sigma: float, reach: int, passes: int
) -> Pixels:
    """Blur, let each pixel take the colour of one nearby, and blur again."""
    height, width = image.shape[:2]
    source = pixel_sources(height, width, reach, rng)
    for _ in range(passes - 1):
        source = source.take(pixel_sources(height, width, reach, rng))
    shuffled = _blur(image, sigma).reshape(-1, 3).take(source, axis=0)
    return _blur(shuffled.reshape(image.shape), sigma)


def _blur(image: Pixels, sigma: float) -> Pixels:
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


# A weight below this moves no grey level by a tenth, even all the left-out ones together.
NEGLIGIBLE = 1e-5


def motion_blur(image: Pixels, rng: np.random.Generator, *, radius: int, sigma: float) -> Pixels:
    """Blur along a line at most 45 degrees from the horizontal."""
    angle = rng.uniform(-45, 45)
    return to_grey_levels(blur_along(image.astype(np.float32), angle, radius, sigma))


def blur_along(image: Float32Array, angle: float, radius: int, sigma: float) -> Float32Array:
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


QUANTILE_BITS = 12


def gaussian_noise(image: Pixels, rng: np.random.Generator, *, deviation: float) -> Pixels:
    """Add normal noise, as of an amplifier in poor light."""
    noise = rng.standard_normal(image.shape, np.float32)
    return weighted_sum(image, 1.0, noise, 255 * deviation)


def shot_noise(image: Pixels, rng: np.random.Generator, *, photons: int) -> Pixels:
    """Draw the number of photons of each value from a Poisson distribution."""
    quantiles = rng.integers(0, 1 << QUANTILE_BITS, image.shape, np.uint16)
    cell = image.astype(np.intp)
    cell <<= QUANTILE_BITS
    cell |= quantiles
    return _poisson_quantiles(photons).take(cell)


@lru_cache(maxsize=32)
def _poisson_quantiles(photons: int) -> Pixels:
    """Equally likely outcomes for each grey level: a drawing is then one look into a table.

    Every probability is right to one part in 4,096, far finer than a data set can tell.
    """
    counts = np.arange(photons + 1)
    # Brighter than white is white: no count beyond that of white is ever told apart.
    levels = np.rint(255 * counts / photons).astype(np.uint8)
    middles = (np.arange(1 << QUANTILE_BITS) + 0.5) / (1 << QUANTILE_BITS)
    table = np.empty((256, 1 << QUANTILE_BITS), np.uint8)
    for grey in range(256):
        below = pdtr(counts[:-1], photons * grey / 255)
        table[grey] = levels[np.searchsorted(below, middles)]
    table.setflags(write=False)
    return table.reshape(-1)


def impulse_noise(image: Pixels, rng: np.random.Generator, *, amount: float) -> Pixels:
    """Turn some values black and as many white: salt and pepper."""
    draws = rng.integers(0, 1 << 16, image.shape, np.uint16)
    each = round(amount / 2 * (1 << 16))
    corrupted = image.copy()
    np.putmask(corrupted, draws < each, 0)
    np.putmask(corrupted, draws >= (1 << 16) - each, 255)
    return corrupted


def plasma(size: int, decay: float, rng: np.random.Generator) -> Float32Array:
    """A square of clouds from 0 to 1 that meets itself at opposite sides.

    Each round doubles the grid: new points are the mean of their four neighbours plus noise, whose
    amplitude falls by ``decay ** 2`` a round (the published clouds multiply it by itself).

    Parameters
    ----------
    size : int
        Side; a power of two, at least 2.
    decay : float
        Root of the factor from one round to the next.
    rng : numpy.random.Generator
        What the noise is drawn from.

    Returns
    -------
    array of shape (size, size), float32
    """
    noise = rng.random(size * size - 1, np.float32)
    noise -= 0.5
    corners = np.zeros((1, 1), np.float32)
    used, amplitude = 0, 1.0
    while len(corners) < size:
        side = len(corners)
        wobble = noise[used : used + 3 * side * side].reshape(3, side, side) * np.float32(amplitude)
        corners = _double(corners, wobble)
        used += 3 * side * side
        amplitude /= decay**2
    corners -= corners.min()
    corners /= corners.max()
    return corners


def _double(corners: Float32Array, wobble: Float32Array) -> Float32Array:
    side = len(corners)
    finer = np.empty((2 * side, 2 * side), np.float32)
    below, right = np.roll(corners, -1, axis=0), np.roll(corners, -1, axis=1)
    centres = (corners + below + right + np.roll(below, -1, axis=1)) / 4 + wobble[0]
    above, left = np.roll(centres, 1, axis=0), np.roll(centres, 1, axis=1)
    finer[::2, ::2] = corners
    finer[1::2, 1::2] = centres
    finer[::2, 1::2] = (corners + right + centres + above) / 4 + wobble[1]
    finer[1::2, ::2] = (corners + below + centres + left) / 4 + wobble[2]
    return finer


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
    relief += style.cloud_weight * _standardise(plasma(512, 1.6, rng)[:SIDE, :SIDE])
    relief += 0.25 * rng.standard_normal(relief.shape, np.float32)
    relief = _standardise(cv2.GaussianBlur(relief, (3, 3), 0.6).astype(np.float32, copy=False))
    colour = np.array(style.mean) + np.array(style.deviation) * relief[:, :, None]
    window: Pixels = np.clip(np.rint(colour), 0, 255).astype(np.uint8)
    window.setflags(write=False)
    return window


def _standardise(plane: Float32Array) -> Float32Array:
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
    return _standardise(canvas.astype(np.float32))


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
    flakes = blur_along(flakes, rng.uniform(-135, -45), radius, sigma)
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


FUNCTIONS: Mapping[str, Callable[..., Pixels]] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
    )
}
