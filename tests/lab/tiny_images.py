"""A folder of eight classes of small pictures, four of them seen, and settings that fit it."""

from pathlib import Path

import numpy as np
from PIL import Image

from nearsure.lab.config import DatasetSettings, RunSettings, apply_changes

CLASSES = tuple("abcdefgh")
SEEN, UNSEEN = CLASSES[:4], CLASSES[4:]
SETTINGS: dict[str, dict[str, object]] = {
    "dataset": {"image_size": 32},
    "training": {"epochs": 4, "classes_per_batch": 2, "images_per_class": 4},
}


def write_tree(folder: Path, *, n_images: int = 3) -> Path:
    """Stripes of a class's own width and colour, with noise."""
    for number, label in enumerate(CLASSES):
        (folder / label).mkdir(parents=True)
        rng = np.random.default_rng(number)
        colour = rng.uniform(0, 255, size=3)
        stripes = np.sin(np.arange(32) * (number + 1) / 4)[None, :, None] * 60
        for i in range(n_images):
            pixels = colour + stripes + 25 * rng.standard_normal((32, 32, 3))
            picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
            picture.save(folder / label / f"{i}.png")
    return folder


def settings(root: Path, **changes: object) -> RunSettings:
    preset = RunSettings(dataset=DatasetSettings(name="class-folders", root=root))
    return apply_changes(
        apply_changes(preset, dict(SETTINGS), source="test"), changes, source="test"
    )
