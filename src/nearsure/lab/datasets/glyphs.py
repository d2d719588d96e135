"""Glyphs: characters of many fonts, a data set that needs no download.

The pictures are drawn from the fonts that matplotlib bundles, so training, search and calibration
can be tried from end to end in minutes. Look-alikes make some queries truly ambiguous: Greek,
Cyrillic and Armenian each have an O of their own.
"""

from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from nearsure.errors import InvalidInputError
from nearsure.lab.datasets.glyph_alphabets import (
    TEST_ALPHABETS,
    TRAIN_ALPHABETS,
    TextFont,
    class_name,
    code_point,
    fonts_of_characters,
    text_fonts,
)
from nearsure.lab.datasets.glyph_drawing import draw_glyph
from nearsure.lab.datasets.labelled_images import ImageSplit, LabelledImages, Pixels

SMALLEST_IMAGE = 16


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
    InvalidInputError
        If an argument is out of range.
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
    for name, value, least in (
        ("seed", seed, 0),
        ("images_per_class", images_per_class, 2),
        ("image_size", image_size, SMALLEST_IMAGE),
    ):
        _refuse_below(name, value, least)
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


def _refuse_below(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInputError(
            f"The {name} parameter of glyphs must be an integer of {least} or more. "
            f"Got {value!r} instead."
        )
