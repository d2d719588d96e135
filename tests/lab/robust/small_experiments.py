"""Both experiments on a small model, and what is right about it by hand."""

from pathlib import Path

import numpy as np
from small_runs import N_UNSEEN, PER_CLASS, clean_run

from nearsure.arrays import AnyArray, IntArray
from nearsure.lab.datasets.images import LabelledImages
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.robust.evaluation import RobustEvaluation
from nearsure.lab.robust.experiments import attack_experiment, corruption_experiment
from nearsure.lab.robust.methods import Method
from nearsure.lab.robust.model import RobustModel
from nearsure.lab.robust.settings import RobustSettings

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
