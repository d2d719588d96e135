"""A gallery of twelve overlapping classes, and queries that may be noisier or of fewer classes."""

import numpy as np

from nearsure.arrays import AnyArray, IntArray

CENTRES = np.random.default_rng(99).normal(size=(12, 16))


def draw(
    n: int, *, seed: int, noise: float = 1.0, n_classes: int = 12
) -> tuple[AnyArray, IntArray]:
    """Points and their classes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    return CENTRES[codes] + noise * rng.normal(size=(n, 16)), codes
