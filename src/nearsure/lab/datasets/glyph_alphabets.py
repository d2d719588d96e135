"""Which characters Glyphs holds: Unicode blocks, and the fonts that can write them."""

import unicodedata
from dataclasses import dataclass
from pathlib import Path

from nearsure.errors import DatasetError
from nearsure.extras import require

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
