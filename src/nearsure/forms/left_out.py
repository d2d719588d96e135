"""What a point that leaves itself out takes away from its own class.

A class of n members has n - 1 when one of them is asked about, while every other class is whole.
Its sum of kernels is too small by (n - 1) / n on average, and a fit that took it as it is would
expect queries, which find all n, to be as unlucky. The factor n / (n - 1) undoes this. It matters
for small classes: 1.5 for three members, 1.11 for ten, 1.02 for fifty. It is never more than 1.5:
a pair has one member left, and doubling that would make the nearest neighbour of every point its
own class's more often than chance does.

The factor knows which class is the true one. That is right in a likelihood, and where a confidence
is calibrated it stands for the member that a query finds; but no promise about precision or
coverage is made with it, as `nearsure.classifier` says.
"""

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.support_checks import members_left_of_groups

LARGEST_FACTOR = 1.5


def own_class_factors(
    codes: IntArray, points: IntArray, groups: IntArray | None = None
) -> FloatArray:
    """Members of a point's own class over those that are left, n / (n - 1), at most 1.5.

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
    array([1.5, 1.5, 1. ])
    """
    counts = np.bincount(codes)[codes[points]]
    if groups is None:
        return factors_of_sizes(counts, counts - 1)
    if groups.shape != codes.shape:
        raise InvalidInputError(
            f"groups must be one for each of the {len(codes)} support points. "
            f"Got an array of shape {groups.shape} instead."
        )
    return factors_of_sizes(counts, members_left_of_groups(codes, groups, points))


def factors_of_sizes(sizes: IntArray, left: IntArray) -> FloatArray:
    """The same, for classes of so many members, of which so many are left."""
    factors = np.minimum(sizes / np.maximum(left, 1), LARGEST_FACTOR)
    return np.where(left > 0, factors, 1.0)
