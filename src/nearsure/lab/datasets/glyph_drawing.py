"""One picture of a character: drawn from its font, set into a square, distorted, aged a little."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates

from nearsure.arrays import FloatArray
from nearsure.extras import require
from nearsure.lab.datasets.elastic import smooth_noise
from nearsure.lab.datasets.glyph_alphabets import PURPOSE
from nearsure.lab.datasets.labelled_images import Pixels

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

OVERSAMPLING = 2  # points a pixel in each direction, when the drawing is sampled
EM_PIXELS = 96  # height of the font when it is drawn

# Lengths below are fractions of the picture's side.
CAPITAL_EM = 0.72  # height of a capital letter, in em
CAPITAL_SIDE = 0.64  # height of a capital letter in the picture
SMALLEST_SIDE, LARGEST_SIDE = 0.22, 0.80
MARGIN = 0.06
KEPT_HEIGHT = 0.5  # of the ink's distance from the middle of the line

ROTATION = np.deg2rad(15)
SCALE = STRETCH = 0.12
SHEAR = 0.15
SHIFT = 0.05
ELASTIC_SHIFT, ELASTIC_CORRELATION = 0.025, 0.16

# Pillow's fonts hold a FreeType face, which two threads must not use at once.
_fonts_of_thread = threading.local()


def draw_glyph(
    character: str, font: Path, *, image_size: int, generator: np.random.Generator
) -> Pixels:
    """Draw a character with random variation: dark ink on light ground.

    Parameters
    ----------
    character : str
        One character, which the font must write with ink.
    font : Path
        The font file.
    image_size : int
        Height and width of the picture.
    generator : numpy.random.Generator
        Decides the distortion, the weight of the strokes, the greys, the blur and the noise.

    Returns
    -------
    picture : ndarray of shape (image_size, image_size, 3), uint8
        Three equal channels.
    """
    ink, height_em = _ink(character, font)
    points = _sampled_points(ink.shape, height_em, image_size * OVERSAMPLING, generator)
    sampled = map_coordinates(ink, points, order=1, mode="constant", prefilter=False)
    pooled = sampled.reshape(image_size, OVERSAMPLING, image_size, OVERSAMPLING).mean(axis=(1, 3))
    grey = _printed(pooled, generator)
    return np.repeat(np.rint(255 * grey).astype(np.uint8)[:, :, None], 3, axis=2)


def _ink(character: str, path: Path) -> tuple[FloatArray, float]:
    """The character's ink without its margins, and how high its middle is above the base, in em."""
    drawing = require("PIL.ImageDraw", extra="train", purpose=PURPOSE)
    image = require("PIL.Image", extra="train", purpose=PURPOSE)
    font = _font_of_thread(path)
    left, top, right, bottom = (round(edge) for edge in font.getbbox(character, anchor="ls"))
    canvas = image.new("L", (right - left, bottom - top))
    drawing.Draw(canvas).text((-left, -top), character, fill=255, font=font, anchor="ls")
    # The box of Pillow reaches to the advance width, not to the ink.
    left, first, right, last = canvas.getbbox()
    # One blank pixel around it lets edges fade out when the ink is sampled between pixels.
    ink = canvas.crop((left - 1, first - 1, right + 1, last + 1))
    middle = top + (first + last) / 2
    return np.asarray(ink, dtype=np.float64) / 255, -middle / EM_PIXELS


def _font_of_thread(path: Path) -> "FreeTypeFont":
    fonts: dict[Path, FreeTypeFont] = _fonts_of_thread.__dict__.setdefault("fonts", {})
    if path not in fonts:
        pillow = require("PIL.ImageFont", extra="train", purpose=PURPOSE)
        # The basic layout needs no library that may be missing, so the drawing is the same.
        fonts[path] = pillow.truetype(str(path), size=EM_PIXELS, layout_engine=pillow.Layout.BASIC)
    return fonts[path]


def _sampled_points(
    ink_shape: tuple[int, ...], height_em: float, grid: int, generator: np.random.Generator
) -> FloatArray:
    """Where in the ink each point of a grid over the picture lies, shape (2, grid, grid).

    Small marks are drawn larger than the font has them, and nearer to the middle, but a comma stays
    smaller than a bracket and lower than an apostrophe.
    """
    em_length = max(ink_shape) / EM_PIXELS
    side = np.clip(CAPITAL_SIDE * (em_length / CAPITAL_EM) ** 0.5, SMALLEST_SIDE, LARGEST_SIDE)
    pixels_per_side = max(ink_shape) / side
    room = 0.5 - MARGIN - ink_shape[0] / pixels_per_side / 2
    lowered = (CAPITAL_EM / 2 - height_em) * CAPITAL_SIDE / CAPITAL_EM * KEPT_HEIGHT
    middle = np.array([np.clip(lowered, -room, room), 0.0])

    ticks = (np.arange(grid) + 0.5) / grid - 0.5
    down, across = generator.uniform(-SHIFT, SHIFT, size=(2, 1)) + ticks
    linear = _linear_map(generator)
    moved = linear[:, :1, None] * down[:, None] + linear[:, 1:, None] * across
    moved += ELASTIC_SHIFT * smooth_noise(
        generator, size=grid, correlation=ELASTIC_CORRELATION, fields=2
    )
    ink_middle = (np.array(ink_shape) - 1) / 2
    sampled: FloatArray = (moved - middle[:, None, None]) * pixels_per_side
    sampled += ink_middle[:, None, None]
    return sampled


def _linear_map(generator: np.random.Generator) -> FloatArray:
    """Rotation, scale, stretch and shear, shape (2, 2)."""
    angle = generator.uniform(-ROTATION, ROTATION)
    scale, stretch = generator.uniform(-SCALE, SCALE), generator.uniform(-STRETCH, STRETCH)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.array([[1.0, 0.0], [generator.uniform(-SHEAR, SHEAR), 1.0]])
    lengths = np.exp([scale + stretch / 2, scale - stretch / 2])
    linear: FloatArray = rotation @ shear @ np.diag(lengths)
    return linear


def _printed(ink: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Greys from 0 to 1: blurred, thinner or bolder, of some contrast, with noise."""
    blurred = gaussian_filter(ink, sigma=generator.uniform(0.0, 0.7), truncate=3.0)
    weighted = np.clip(blurred, 0.0, 1.0) ** np.exp(generator.uniform(-0.5, 0.5))
    ground, black = generator.uniform(0.8, 1.0), generator.uniform(0.0, 0.3)
    grain = generator.uniform(0.0, 0.05) * generator.standard_normal(ink.shape)
    printed: FloatArray = np.clip(ground + (black - ground) * weighted + grain, 0.0, 1.0)
    return printed
