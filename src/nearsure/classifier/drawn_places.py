"""Which points stand for all of a gallery."""

import numpy as np
from sklearn.utils.random import sample_without_replacement

from nearsure.arrays import IntArray

# Up to here a sample is drawn by a permutation of all points, beyond it in its own memory.
LARGEST_PERMUTATION = 10_000_000


def drawn_places(
    n_points: int, n_drawn: int, generator: np.random.RandomState | np.random.Generator
) -> IntArray:
    """Places of some points among all, ascending, each once; all if there are no more.

    Examples
    --------
    >>> drawn_places(3, 5, np.random.default_rng(0))
    array([0, 1, 2])
    """
    if n_points > LARGEST_PERMUTATION:
        seed = int(generator.permutation(2**16)[0])
        drawn = sample_without_replacement(n_points, n_drawn, random_state=seed)
    else:
        # For a RandomState this is what `choice` without replacement draws.
        drawn = generator.permutation(n_points)[:n_drawn]
    return np.sort(drawn).astype(np.int64)
