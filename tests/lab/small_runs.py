"""Small pictures in memory, a run that learns them in a second, models and experiments of it."""

from functools import cache
from pathlib import Path

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.lab.config import DatasetSettings, RunSettings, apply_changes
from nearsure.lab.datasets.images import ImageSplit, LabelledImages, Pixels
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.robust.adversarial_training import AdversarialRun
from nearsure.lab.robust.evaluation import RobustEvaluation
from nearsure.lab.robust.experiments import attack_experiment, corruption_experiment
from nearsure.lab.robust.methods import Method
from nearsure.lab.robust.model import RobustModel
from nearsure.lab.robust.settings import AdversarialTraining, RobustSettings

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


K, SEED, N_RESAMPLES = 5, 2, 10
CODES = np.repeat(np.arange(N_UNSEEN), PER_CLASS)
FEW = RobustSettings(attacked_queries=20, epsilons=(0.1,), small_epsilons=(0.02,), small_steps=2)


def small_model(cache: Path, *, epochs: int = 20, gallery: bool = False) -> RobustModel:
    run = clean_run(cache, gallery=gallery, training={"epochs": epochs})
    return RobustModel("small", run, K, SEED)


def queries_of(model: RobustModel) -> LabelledImages:
    assert isinstance(model.run, EmbeddingRun)
    return model.run.split.queries


def corrupted_by(model: RobustModel, n: int | None = None) -> list[RobustEvaluation]:
    return corruption_experiment(model, n_queries=n, n_resamples=N_RESAMPLES)


def attacked_by(model: RobustModel, settings: RobustSettings = FEW) -> list[RobustEvaluation]:
    return attack_experiment(model, settings, n_resamples=N_RESAMPLES)


def right_by_1nn(model: RobustModel, vectors: AnyArray, rows: IntArray, *, strict: bool) -> float:
    """Share of queries whose nearest clean image, but for their own, is of their class."""
    clean = model.run.embeddings("queries").astype(np.float64)
    right = []
    for vector, row in zip(vectors.astype(np.float64), rows, strict=True):
        sq_distances = np.square(clean - vector).sum(axis=1)
        sq_distances[row] = np.inf
        if strict:
            sq_distances[model.strict.gallery_rows < 0] = np.inf
        right.append(CODES[sq_distances.argmin()] == CODES[row])
    return float(np.mean(right))


def accuracy(evaluation: RobustEvaluation, place: int) -> float:
    return evaluation.variants[place].outcome.of(Method("1nn")).accuracy.estimate
