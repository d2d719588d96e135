"""A contact sheet shows whole classes, one a row."""

import numpy as np

from nearsure.lab.datasets.images import LabelledImages
from nearsure.lab.images import GAP, contact_sheet

SIZE = 16


def images() -> LabelledImages:
    """Six classes of grey, four images each; the value tells the class, and which image it is."""
    labels = tuple(str(i // 4) for i in range(24))
    return LabelledImages(
        tuple(f"image {i}" for i in range(24)),
        labels,
        lambda i: np.full((SIZE, SIZE, 3), 10 + i, np.uint8),
    )


def test_a_row_holds_different_images_of_one_class() -> None:
    sheet = contact_sheet(images(), classes=3, images_per_class=4, size=SIZE, seed=0)
    side = SIZE + GAP
    assert sheet.shape == (3 * side + GAP, 4 * side + GAP, 3)
    values = sheet[GAP::side, GAP::side, 0].astype(int) - 10
    assert np.array_equal(np.sort(values, axis=1), values.min(axis=1, keepdims=True) + np.arange(4))
    assert len(set(values.min(axis=1).tolist())) == 3
    assert np.all(values.min(axis=1) % 4 == 0)


def test_the_seed_chooses() -> None:
    def sheet(seed: int) -> list[int]:
        shown = contact_sheet(images(), classes=2, images_per_class=2, size=SIZE, seed=seed)
        return shown.ravel().tolist()

    assert sheet(0) == sheet(0)
    assert sheet(0) != sheet(1)
