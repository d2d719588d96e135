"""What a point that leaves itself out takes away from its own class.

A class of n members has n - 1 when one of them is asked about, while every other class is whole.
Its sum of kernels is too small by (n - 1) / n on average, and a fit that took it as it is would
expect queries, which find all n, to be as unlucky. The factor n / (n - 1) undoes this. It matters
for small classes: 2 for a pair, 1.11 for ten members, 1.02 for fifty.
"""

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError


def own_class_factors(
    codes: IntArray, points: IntArray, groups: IntArray | None = None
) -> FloatArray:
    """Members of a point's own class over those that are left, n / (n - 1).

    Parameters
    ----------
    codes : array of shape (n_support,)
        Class codes of the support set.
    points : array of shape (n,)
        Rows of the points that leave themselves out.
    groups : array of shape (n_support,), optional
        Group of each support point; its members of the same class are left out with a point.

    Returns
    -------
    array of shape (n,)
        At least 1; exactly 1 where nobody is left, and there is nothing to correct.

    Examples
    --------
    >>> own_class_factors(np.array([0, 0, 1, 1, 1, 2]), np.array([0, 2, 5]))
    array([2. , 1.5, 1. ])
    """
    counts = np.bincount(codes)[codes[points]]
    left_out = np.ones(len(points), np.int64)
    if groups is not None:
        if groups.shape != codes.shape:
            raise InvalidInputError(
                f"groups must be one for each of the {len(codes)} support points. "
                f"Got an array of shape {groups.shape} instead."
            )
        _, together, sizes = np.unique(
            np.stack([codes, groups]), axis=1, return_inverse=True, return_counts=True
        )
        left_out = sizes[together.ravel()][points]
    left = counts - left_out
    return np.where(left > 0, counts / np.maximum(left, 1), 1.0)
