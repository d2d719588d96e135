"""Queries that are points of the gallery, and so find themselves."""

import numpy as np

from nearsure.arrays import BoolArray, IntArray
from nearsure.neighbors import Neighbors

# Of the squared distance to the second neighbour: similarities of half-precision vectors put a
# point no nearer to itself.
NEARLY_ZERO = 0.01
# More can hardly be duplicates.
SUSPICIOUS_SHARE = 0.5


def nearly_found(neighbors: Neighbors, codes: IntArray) -> BoolArray:
    """Whether the first neighbour is of the query's class, and as good as the query itself.

    Parameters
    ----------
    neighbors : Neighbors
        Of n queries.
    codes : array of shape (n,)
        Their class codes.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> found = Neighbors([[1e-4, 0.3], [0.2, 0.3], [0.0, 0.3]], [[1, 0], [1, 0], [1, 0]])
    >>> nearly_found(found, np.array([1, 1, 0])).tolist()
    [True, False, False]
    """
    distances = neighbors.sq_distances
    # A single neighbour has nothing to be compared with, but zero.
    second = np.zeros(len(neighbors))
    if neighbors.k > 1:
        second = np.where(neighbors.counts > 1, distances[:, 1], 0.0)
    near = (distances[:, 0] <= NEARLY_ZERO * second) & (neighbors.counts > 0)
    return np.asarray(near & (neighbors.labels[:, 0] == codes), np.bool_)


def are_most(rows: BoolArray) -> bool:
    """Whether so many are hardly a coincidence."""
    return bool(rows.mean() > SUSPICIOUS_SHARE)
