"""The contact sheet shows what `corrupt` gives, in rows and columns, beside words."""

import numpy as np
import pytest
from photographs import photographs

from nearsure.robustness import CORRUPTIONS, SEVERITIES, corrupt, corruption_rng, corruption_sheet
from nearsure.robustness.sheet import GAP


@pytest.mark.parametrize(("size", "enlarge"), [(32, 4), (64, 2), (224, 1)])
def test_pictures_stand_where_they_belong(size: int, enlarge: int) -> None:
    image = photographs(size)[1][:, : size - 6]
    sheet = corruption_sheet(image, 5)
    assert sheet.dtype == np.uint8
    height, width = enlarge * size + GAP, enlarge * (size - 6) + GAP
    top, left = sheet.shape[0] - 15 * height, sheet.shape[1] - 6 * width
    for row, name in enumerate(CORRUPTIONS):
        for column, level in enumerate((0, *SEVERITIES)):
            y, x = top + row * height, left + column * width
            cell = sheet[y : y + height - GAP : enlarge, x : x + width - GAP : enlarge]
            expected = (
                corrupt(image, name, level, corruption_rng(5, 0, name, level)) if level else image
            )
            np.testing.assert_array_equal(cell, expected)
    # Every row and every column has its words, and they do not run into the pictures.
    for row in range(15):
        y = top + row * height
        assert sheet[y : y + height - GAP, :left].min() < 100
        assert sheet[y : y + height - GAP, [0, left - 1]].min() == 255
    for column in range(6):
        x = left + column * width
        assert sheet[:top, x : x + width - GAP].min() < 100
