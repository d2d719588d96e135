"""Small pictures in memory, a run that learns them in a second, and the models that come of it."""

from functools import cache
from pathlib import Path

import numpy as np

from nearsure.lab.config import DatasetSettings, RunSettings, apply_changes
from nearsure.lab.datasets.images import ImageSplit, LabelledImages, Pixels
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.robust.adversarial_training import AdversarialRun
from nearsure.lab.robust.settings import AdversarialTraining

SIZE, N_SEEN, N_UNSEEN, PER_CLASS = 16, 4, 4, 6
ADVERSARIAL = AdversarialTraining(
    epsilon=0.1,
    step=0.06,
    n_steps=2,
    ramp=0.3,
    epochs=30,
    learning_rate=3e-3,
    proxy_learning_rate=3e-2,
)


@cache
def picture(label: int, number: int) -> Pixels:
    """Stripes of a class's own width, in noise."""
    rng = np.random.default_rng([label, number])
    stripes = 60 * np.sin(np.arange(SIZE) * (label + 1) / 2.5 + rng.uniform(0, 6))
    pixels = 128 + stripes[None, :, None] + 30 * rng.standard_normal((SIZE, SIZE, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def images(first: int, n_classes: int) -> LabelledImages:
    places = [(label, i) for label in range(first, first + n_classes) for i in range(PER_CLASS)]
    return LabelledImages(
        tuple(f"{label}/{i}" for label, i in places),
        tuple(f"class {label}" for label, _ in places),
        lambda row: picture(*places[row]),
    )


def split(*, gallery: bool = False) -> ImageSplit:
    train, unseen = images(0, N_SEEN), images(N_SEEN, N_UNSEEN)
    if not gallery:
        return ImageSplit("tiny", train, unseen)
    some = [row for row in range(len(unseen)) if row % 3 == 0]
    others = [row for row in range(len(unseen)) if row % 3]
    return ImageSplit("tiny", train, unseen.take(some), unseen.take(others))


def settings(**changes: object) -> RunSettings:
    preset = RunSettings(dataset=DatasetSettings(name="class-folders", image_size=SIZE))
    small: dict[str, object] = {
        "model": {"backbone": "small-cnn", "embedding_size": 8},
        "training": {
            "epochs": 30,
            "classes_per_batch": 4,
            "images_per_class": 4,
            "learning_rate": 3e-3,
            "proxy_learning_rate": 3e-2,
            "smallest_crop": 1.0,
        },
    }
    return apply_changes(apply_changes(preset, small, source="test"), changes, source="test")


def clean_run(cache_folder: Path, *, gallery: bool = False, **changes: object) -> EmbeddingRun:
    return EmbeddingRun(settings(**changes), split(gallery=gallery), cache_folder)


def adversarial_run(cache_folder: Path, **changes: object) -> AdversarialRun:
    return AdversarialRun(
        clean_run(cache_folder), apply_changes(ADVERSARIAL, changes, source="adversarial")
    )
