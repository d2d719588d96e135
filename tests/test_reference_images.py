"""The real images, if at hand, are split as the literature splits them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reference_data
from nearsure.lab.datasets.cars196 import load_cars196
from nearsure.lab.datasets.cub200 import load_cub200
from nearsure.lab.datasets.images import ImageSplit


@pytest.mark.parametrize(
    ("folder", "load", "n_classes", "n_seen", "n_unseen"),
    [
        ("cub200_160px", load_cub200, 100, 5864, 5924),
        ("cars196_112px", load_cars196, 98, 8048, 8122),
    ],
)
def test_class_folders_give_the_standard_split(
    folder: str,
    load: Callable[[Path], ImageSplit],
    n_classes: int,
    n_seen: int,
    n_unseen: int,
) -> None:
    root = reference_data.FOLDER / folder
    if not root.is_dir():
        pytest.skip(f"{folder} is not at hand: set NEARSURE_DATA to the folder that holds it")
    split = load(root)
    assert (len(split.train), len(split.queries)) == (n_seen, n_unseen)
    assert len(split.train.classes) == len(split.queries.classes) == n_classes
    height, width, _ = split.queries.read(0).shape
    assert min(height, width) == int(folder.rpartition("_")[2].removesuffix("px"))
