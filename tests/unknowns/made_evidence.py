"""Evidence whose densities are known in closed form."""

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.unknowns import Evidence

UNKNOWN_MEAN = -2.5


def one_column(values: FloatArray) -> Evidence:
    """Evidence that is in its first column alone."""
    return Evidence(values, np.zeros(len(values)), np.ones(len(values)))


def normal(mean: float, n: int, seed: int) -> FloatArray:
    return np.random.default_rng(seed).normal(mean, 1.0, n)


def mixed(n_known: int, n_unknown: int, *, unknown_mean: float, seed: int) -> Evidence:
    rng = np.random.default_rng(seed)
    known, unknown = rng.normal(0, 1, n_known), rng.normal(unknown_mean, 1, n_unknown)
    return one_column(np.concatenate([known, unknown]))
