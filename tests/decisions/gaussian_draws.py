"""Draws of a small gallery of Gaussian classes, with the truth about every query known."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score
from nearsure.temperature import fit_temperature

N_CLASSES = 6
N_SUPPORT = 300
N_QUERIES = 1000
K = 40
SPREAD = 0.5
MEANS = np.random.default_rng(99).normal(size=(N_CLASSES, 4)) * 1.2


@dataclass(frozen=True, eq=False)
class Draw:
    """Posteriors of the support points, each leaving itself out, and of queries."""

    points: Posterior
    codes: IntArray
    queries: Posterior
    truth: FloatArray
    """p(class | query), of shape (N_QUERIES, N_CLASSES), in closed form."""


def draw(seed: int) -> Draw:
    rng = np.random.default_rng(seed)
    support, codes = _points(rng, N_SUPPORT)
    queries, _ = _points(rng, N_QUERIES)
    index = ExactIndex(support)
    left_out = search_leaving_one_out(index, support, np.arange(N_SUPPORT), codes, k=K)
    temperature = fit_temperature(left_out, codes).temperature
    sq_distances, ids = index.search(queries, K)
    found = Neighbors(sq_distances, codes[ids])
    log_density = -np.square(queries[:, None] - MEANS).sum(axis=2) / (2 * SPREAD**2)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return Draw(
        score(left_out, temperature=temperature, n_classes=N_CLASSES),
        codes,
        score(found, temperature=temperature, n_classes=N_CLASSES),
        density / density.sum(axis=1, keepdims=True),
    )


def _points(rng: np.random.Generator, n: int) -> tuple[FloatArray, IntArray]:
    codes = rng.integers(0, N_CLASSES, n)
    points: FloatArray = MEANS[codes] + SPREAD * rng.normal(size=(n, MEANS.shape[1]))
    return points, codes
