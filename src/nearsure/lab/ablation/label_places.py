"""Where labels beside an axis go, so that none covers another."""

from collections.abc import Sequence

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError


def spread(
    places: Sequence[float], gap: float, *, low: float = -np.inf, high: float = np.inf
) -> FloatArray:
    """The nearest places, by least squares, that are `gap` or more apart in the same order.

    Labels that would touch form a block that is moved as a whole about its mean.

    Parameters
    ----------
    places : sequence of n floats
        Where the labels belong.
    gap : float
        How far apart they must be.
    low, high : float
        Where the lowest and the highest may be; there must be room for all between them.

    Returns
    -------
    array of shape (n,)
        Where they go.

    Examples
    --------
    >>> spread([0.0, 10.0, 10.0], gap=2.0)
    array([ 0.,  9., 11.])
    """
    if gap < 0:
        raise InvalidInputError(f"gap must be at least 0. Got {gap} instead.")
    order = np.argsort(places, kind="stable")
    # Less its rank times the gap, a label must only not lie below the one before it: this is
    # isotonic regression, whose blocks are pooled from the left.
    blocks: list[tuple[float, int]] = []
    for rank, place in enumerate(np.asarray(places, np.float64)[order]):
        mean, size = float(place - rank * gap), 1
        while blocks and blocks[-1][0] > mean:
            before, n_before = blocks.pop()
            mean = (before * n_before + mean * size) / (n_before + size)
            size += n_before
        blocks.append((mean, size))
    moved = np.concatenate([np.full(size, mean) for mean, size in blocks])
    steps = gap * np.arange(len(order))
    if low + steps[-1] > high:
        raise InvalidInputError(
            f"There must be room for {len(order)} labels that are {gap} apart. "
            f"Got {low} to {high} instead."
        )
    found = np.empty(len(order))
    found[order] = np.clip(moved, low, high - steps[-1]) + steps
    return found
