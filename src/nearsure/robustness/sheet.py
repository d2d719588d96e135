"""A contact sheet of all corruptions, and a drawn scene to show them on."""

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from nearsure.robustness.corrupt import (
    CORRUPTIONS,
    SEVERITIES,
    Pixels,
    check_image,
    corrupt,
    corruption_rng,
)

if TYPE_CHECKING:
    from PIL import Image, ImageDraw


GAP = 4
# Small images are enlarged at least to this side, so that the words beside them can be read.
LEAST_SHOWN = 96


def corruption_sheet(image: Pixels, seed: int) -> Pixels:
    """The image clean and at five severities, one row a corruption, with names.

    Parameters
    ----------
    image : array of shape (height, width, 3), uint8
        To be corrupted. Small ones are shown enlarged by a whole factor.
    seed : int
        Of the corruptions.

    Returns
    -------
    array of shape (rows, columns, 3), uint8
    """
    clean = check_image(image)
    enlarge = ceil(LEAST_SHOWN / min(clean.shape[:2]))
    rows = [
        [clean]
        + [
            corrupt(clean, name, level, corruption_rng(seed, 0, name, level))
            for level in SEVERITIES
        ]
        for name in CORRUPTIONS
    ]
    height, width = clean.shape[0] * enlarge, clean.shape[1] * enlarge
    text = max(12, height // 12)
    left, top = 10 * text, 2 * text
    shape = (top + len(rows) * (height + GAP), left + len(rows[0]) * (width + GAP), 3)
    sheet = np.full(shape, 255, np.uint8)
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            y, x = top + row * (height + GAP), left + column * (width + GAP)
            shown = picture.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
            sheet[y : y + height, x : x + width] = shown
    titles = ["clean", *(f"severity {level}" for level in SEVERITIES)]
    words = [
        (left + column * (width + GAP) + width // 2, text, title)
        for column, title in enumerate(titles)
    ]
    words += [
        (left // 2, top + row * (height + GAP) + height // 2, name.replace("_", " "))
        for row, name in enumerate(CORRUPTIONS)
    ]
    return _with_words(sheet, words, text)


def _with_words(sheet: Pixels, words: list[tuple[int, int, str]], size: int) -> Pixels:
    # Late: nearsure is imported without Pillow, which `corrupt` has asked for by now.
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(sheet)
    pen = ImageDraw.Draw(picture)
    letters = ImageFont.load_default(size)
    for x, y, word in words:
        pen.text((x, y), word, fill=(0, 0, 0), font=letters, anchor="mm")
    return np.array(picture)


# Drawn larger and reduced, for smooth edges.
OVERSAMPLING = 4
SKY, HORIZON = (86, 140, 214), (246, 222, 186)
RIDGES = (
    # colour, height of the crest, its roughness
    ((128, 150, 184), 0.42, 0.10),
    ((88, 120, 128), 0.52, 0.07),
    ((58, 96, 62), 0.62, 0.04),
)


def example_scene(size: int = 224, *, seed: int = 7) -> Pixels:
    """Hills, a house and a lake, shape (size, size, 3), uint8.

    Examples
    --------
    >>> example_scene(64).shape
    (64, 64, 3)
    """
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    side = OVERSAMPLING * size
    share = np.linspace(0, 1, side)[:, None, None] ** 0.8
    sky = (1 - share) * np.array(SKY) + share * np.array(HORIZON)
    picture = Image.fromarray(np.broadcast_to(sky, (side, side, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    draw.ellipse(_box(side, 0.70, 0.10, 0.84, 0.24), fill=(255, 244, 205))
    for colour, height, roughness in RIDGES:
        crest = side * (height + roughness * _crest(side, rng))
        points = [(float(x), float(y)) for x, y in enumerate(crest)]
        draw.polygon([(0, side), *points, (side, side)], fill=colour)
    _draw_house(draw, side)
    _draw_trees(draw, side, rng)
    _reflect(picture, side)
    small = np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS), np.float64)
    grain = rng.normal(0, 5, (size, size, 1))
    return np.clip(np.rint(small + grain), 0, 255).astype(np.uint8)


def _crest(side: int, rng: np.random.Generator) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """A line in about [-1, 1] that is rough at every scale."""
    x = np.linspace(0, 1, side)
    waves = [
        np.sin(2 * np.pi * (2**octave * x + rng.random())) / 1.7**octave for octave in range(7)
    ]
    line: np.ndarray[tuple[int], np.dtype[np.float64]] = np.sum(waves, axis=0) / 2
    return line


def _draw_house(draw: "ImageDraw.ImageDraw", side: int) -> None:
    draw.rectangle(_box(side, 0.18, 0.52, 0.44, 0.74), fill=(226, 208, 176))
    draw.polygon(
        [(0.14 * side, 0.53 * side), (0.31 * side, 0.38 * side), (0.48 * side, 0.53 * side)],
        fill=(164, 62, 48),
    )
    draw.rectangle(_box(side, 0.36, 0.38, 0.40, 0.47), fill=(120, 64, 54))
    for left in (0.21, 0.36):
        draw.rectangle(_box(side, left, 0.57, left + 0.05, 0.63), fill=(70, 92, 130))
    draw.rectangle(_box(side, 0.285, 0.62, 0.335, 0.74), fill=(96, 60, 40))


def _draw_trees(draw: "ImageDraw.ImageDraw", side: int, rng: np.random.Generator) -> None:
    for _ in range(14):
        x, foot = rng.uniform(0.5, 1.0), rng.uniform(0.68, 0.75)
        height, half = rng.uniform(0.10, 0.20), rng.uniform(0.02, 0.035)
        green = (30 + int(rng.integers(30)), 70 + int(rng.integers(40)), 40)
        for step in range(4):
            top, width = foot - height * (step + 2) / 5, half * (1.3 - 0.27 * step)
            low = top + height * 0.42
            corners = [(x, top - height * 0.1), (x - width, low), (x + width, low)]
            draw.polygon([(side * a, side * b) for a, b in corners], fill=green)


def _reflect(picture: "Image.Image", side: int) -> None:
    """A lake at the foot, in which the rest is mirrored, darker and blurred."""
    from PIL import Image, ImageFilter

    shore, depth = round(0.76 * side), side - round(0.76 * side)
    above = picture.crop((0, shore - depth, side, shore)).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    water = above.filter(ImageFilter.GaussianBlur(side / 150))
    blue = Image.new("RGB", water.size, (38, 70, 104))
    picture.paste(Image.blend(water, blue, 0.35), (0, shore))


def _box(side: int, *corners: float) -> tuple[float, float, float, float]:
    left, top, right, bottom = (side * corner for corner in corners)
    return left, top, right, bottom
