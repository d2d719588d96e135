"""All corruptions of one image at a glance."""

from math import ceil

import numpy as np

from nearsure.robustness.corrupt import corrupt, corruption_rng
from nearsure.robustness.image_checks import CORRUPTIONS, SEVERITIES, Pixels, checked_image

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
    clean = checked_image(image)
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
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415

    picture = Image.fromarray(sheet)
    pen = ImageDraw.Draw(picture)
    letters = ImageFont.load_default(size)
    for x, y, word in words:
        pen.text((x, y), word, fill=(0, 0, 0), font=letters, anchor="mm")
    return np.array(picture)
