"""Glyphs: characters of many fonts, a data set that needs no download.

The pictures are drawn from the fonts that matplotlib bundles, so training, search and calibration
can be tried from end to end in minutes. Look-alikes make some queries truly ambiguous: Greek,
Cyrillic and Armenian each have an O of their own.
"""

import threading
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from nearsure.arrays import FloatArray
from nearsure.errors import DatasetError
from nearsure.extras import require
from nearsure.lab.datasets.images import ImageSplit, LabelledImages, Pixels

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont


PURPOSE = "The glyphs data set"

TRAIN_ALPHABETS = {
    "Basic Latin": range(0x0021, 0x007F),
    "Latin-1 Supplement": range(0x00A1, 0x0100),
    "Latin Extended-A": range(0x0100, 0x0180),
    "IPA Extensions": range(0x0250, 0x02B0),
    "Georgian": range(0x10A0, 0x1100),
    "Currency Symbols": range(0x20A0, 0x20D0),
    "Mathematical Operators": range(0x2200, 0x2300),
}
"""Code points of the blocks to learn from."""

TEST_ALPHABETS = {
    "Greek and Coptic": range(0x0370, 0x0400),
    "Cyrillic": range(0x0400, 0x0500),
    "Cyrillic Supplement": range(0x0500, 0x0530),
    "Armenian": range(0x0530, 0x0590),
    "Arrows": range(0x2190, 0x2200),
}
"""Code points of the blocks to be tested on."""

# Not STIXSiz*, STIXNonUni* and cm*: sizes of brackets, private code points and TeX's own encodings.
TEXT_FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold"),
    *("DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
)
LEAST_FONTS = 8
WRITTEN = frozenset("LNPS")  # letters, numbers, punctuation, symbols


@dataclass(frozen=True)
class TextFont:
    """A font file and the code points that it writes with ink."""

    name: str
    path: Path
    codes: frozenset[int]


def text_fonts() -> tuple[TextFont, ...]:
    """The text fonts that this installation of matplotlib bundles.

    Raises
    ------
    MissingExtraError
        If matplotlib or Pillow is not installed.
    DatasetError
        If fewer than eight of the text fonts are there.
    """
    folder = Path(require("matplotlib", extra="train", purpose=PURPOSE).get_data_path())
    freetype = require("matplotlib.ft2font", extra="train", purpose=PURPOSE)
    pillow = require("PIL.ImageFont", extra="train", purpose=PURPOSE)
    written = {
        code
        for codes in (*TRAIN_ALPHABETS.values(), *TEST_ALPHABETS.values())
        for code in codes
        if unicodedata.category(chr(code))[0] in WRITTEN
    }
    fonts = []
    for name in TEXT_FONTS:
        path = folder / "fonts" / "ttf" / f"{name}.ttf"
        if path.is_file():
            # Only matplotlib tells which characters a font holds; Pillow is quick to measure them.
            held = written & freetype.FT2Font(str(path)).get_charmap().keys()
            font = pillow.truetype(str(path), size=32, layout_engine=pillow.Layout.BASIC)
            boxes = {code: font.getbbox(chr(code)) for code in held}
            inked = frozenset(code for code, (_, top, _, bottom) in boxes.items() if bottom > top)
            fonts.append(TextFont(name, path, inked))
    if len(fonts) < LEAST_FONTS:
        raise DatasetError(
            f"Glyphs needs {LEAST_FONTS} or more of the DejaVu and STIXGeneral fonts that "
            f"matplotlib bundles. Got {len(fonts)} in {folder / 'fonts' / 'ttf'} instead: "
            "install matplotlib from PyPI."
        )
    return tuple(fonts)


def fonts_of_characters(
    alphabets: dict[str, range], fonts: tuple[TextFont, ...]
) -> dict[int, tuple[TextFont, ...]]:
    """The fonts that hold each character, for characters that eight fonts or more hold.

    Parameters
    ----------
    alphabets : dict of str to range
        Code points of each block.
    fonts : tuple of TextFont
        The fonts to choose from.

    Returns
    -------
    characters : dict of int to tuple of TextFont
        By ascending code point within a block. Only letters, numbers, punctuation and symbols.
    """
    holders = {
        code: tuple(font for font in fonts if code in font.codes)
        for codes in alphabets.values()
        for code in codes
    }
    return {code: held for code, held in holders.items() if len(held) >= LEAST_FONTS}


def class_name(code: int) -> str:
    """Label of a character.

    Examples
    --------
    >>> class_name(0x41)
    'U+0041 LATIN CAPITAL LETTER A'
    """
    return f"{code_point(code)} {unicodedata.name(chr(code))}"


def code_point(code: int) -> str:
    """A code point as Unicode writes it, for example U+0041."""
    return f"U+{code:04X}"


def smooth_noise(
    generator: np.random.Generator, *, size: int, correlation: float, fields: int
) -> FloatArray:
    """White noise on a lattice, filtered by a Gaussian.

    Every value is normal with mean 0 and variance 1; values further apart than a few times
    `correlation` are nearly independent.

    Parameters
    ----------
    generator : numpy.random.Generator
        Where the noise comes from.
    size : int
        Height and width of a field.
    correlation : float
        Standard deviation of the Gaussian, as a fraction of `size`.
    fields : int
        How many independent fields.

    Returns
    -------
    noise : ndarray of shape (fields, size, size)
        The fields.

    References
    ----------
    Simard, Steinkraus, Platt: Best Practices for Convolutional Neural Networks Applied to Visual
    Document Analysis. ICDAR 2003.

    Examples
    --------
    >>> noise = smooth_noise(np.random.default_rng(0), size=32, correlation=0.25, fields=2)
    >>> noise.shape
    (2, 32, 32)
    >>> bool(np.abs(np.diff(noise)).max() < 0.3)
    True
    """
    kernel = _kernel(size, correlation)
    lattice = generator.standard_normal((fields, kernel.shape[1], kernel.shape[1]))
    # The Gaussian separates into rows and columns, which is far cheaper than a filter of the plane.
    return kernel @ lattice @ kernel.T


@lru_cache(maxsize=16)
def _kernel(size: int, correlation: float) -> NDArray[np.float64]:
    """Weights of the lattice's lines for each line of the field; squares sum to one in a row.

    The lattice is as fine as the Gaussian is wide, which leaves no trace of it in the field, and
    reaches three of these widths over the border.
    """
    lines = np.arange(-3 * correlation, 1 + 3.5 * correlation, correlation)
    pixels = (np.arange(size) + 0.5) / size
    weights = np.exp(-0.5 * ((pixels[:, None] - lines) / correlation) ** 2)
    kernel: NDArray[np.float64] = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    kernel.flags.writeable = False
    return kernel


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
    grey = _print_ink(pooled, generator)
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


def _print_ink(ink: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Greys from 0 to 1: blurred, thinner or bolder, of some contrast, with noise."""
    blurred = gaussian_filter(ink, sigma=generator.uniform(0.0, 0.7), truncate=3.0)
    weighted = np.clip(blurred, 0.0, 1.0) ** np.exp(generator.uniform(-0.5, 0.5))
    ground, black = generator.uniform(0.8, 1.0), generator.uniform(0.0, 0.3)
    grain = generator.uniform(0.0, 0.05) * generator.standard_normal(ink.shape)
    printed: FloatArray = np.clip(ground + (black - ground) * weighted + grain, 0.0, 1.0)
    return printed


def glyphs(*, seed: int = 0, images_per_class: int = 20, image_size: int = 32) -> ImageSplit:
    """Characters to learn from, and characters of other alphabets to be tested on.

    A class is a Unicode character that eight or more of matplotlib's 16 text fonts hold (DejaVu
    Sans, Sans Mono and Serif, STIXGeneral, each in four styles). Its images go round the fonts, in
    an order of its own; each has another rotation, scale, stretch, shear, shift, elastic
    distortion, stroke weight, contrast, blur and noise. Alphabets are Unicode blocks:

    - train, 714 classes: Basic Latin (94), Latin-1 Supplement (94), Latin Extended-A (128), IPA
      Extensions (96), Georgian (83), Currency Symbols (26), Mathematical Operators (193);
    - queries, 532 classes: Greek and Coptic (120), Cyrillic (204), Cyrillic Supplement (10),
      Armenian (86), Arrows (112).

    With 20 images a class these are 14,280 and 10,640 images.
    The counts are those of matplotlib 3.11; other versions may bundle other fonts.

    Parameters
    ----------
    seed : int, default 0
        Decides all variation; 0 or more.
    images_per_class : int, default 20
        Images of each character, 2 or more.
    image_size : int, default 32
        Height and width of an image, 16 or more.

    Returns
    -------
    split : ImageSplit
        Labels are like ``"U+0041 LATIN CAPITAL LETTER A"``, names like
        ``"U+0041/DejaVuSans-Bold/0"``: character, font, variant. An image has three equal channels,
        shape (image_size, image_size, 3), and depends on the seed, the size and its name alone. It
        is drawn when read, in about a millisecond. Queries are searched among each other.

    Raises
    ------
    MissingExtraError
        If matplotlib or Pillow is not installed.
    DatasetError
        If matplotlib comes without its fonts.

    Examples
    --------
    >>> split = glyphs(images_per_class=2)
    >>> split.train.classes[32]
    'U+0041 LATIN CAPITAL LETTER A'
    >>> split.train.read(0).shape
    (32, 32, 3)
    """
    fonts = text_fonts()

    def part(alphabets: dict[str, range]) -> LabelledImages:
        glyph_list = [
            glyph
            for code, holders in fonts_of_characters(alphabets, fonts).items()
            for glyph in _glyphs_of_character(code, holders, images_per_class, seed)
        ]
        return LabelledImages(
            tuple(glyph.name for glyph in glyph_list),
            tuple(class_name(glyph.code) for glyph in glyph_list),
            _GlyphReader(tuple(glyph_list), seed, image_size),
        )

    return ImageSplit("glyphs", train=part(TRAIN_ALPHABETS), queries=part(TEST_ALPHABETS))


@dataclass(frozen=True)
class _Glyph:
    """One image: a character in a font, and which of its variants."""

    code: int
    font: str
    path: Path
    variant: int

    @property
    def name(self) -> str:
        return f"{code_point(self.code)}/{self.font}/{self.variant}"


@dataclass(frozen=True)
class _GlyphReader:
    """Draws images on demand; unlike a closure, it can be sent to another process."""

    glyphs: tuple[_Glyph, ...]
    seed: int
    image_size: int

    def __call__(self, i: int) -> Pixels:
        glyph = self.glyphs[i]
        # A generator for each image: the order of the calls does not matter.
        generator = np.random.default_rng(
            [self.seed, glyph.code, crc32(glyph.font.encode()), glyph.variant]
        )
        return draw_glyph(
            chr(glyph.code), glyph.path, image_size=self.image_size, generator=generator
        )


def _glyphs_of_character(
    code: int, fonts: tuple[TextFont, ...], images: int, seed: int
) -> list[_Glyph]:
    """All fonts once before any font twice; shuffled, for few images to differ in style."""
    order = np.random.default_rng([seed, code]).permutation(len(fonts))
    chosen = [(fonts[order[i % len(fonts)]], i // len(fonts)) for i in range(images)]
    return [_Glyph(code, font.name, font.path, variant) for font, variant in chosen]
