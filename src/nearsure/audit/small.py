"""Classes that have too few members, or whose members do not find each other."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray, IntArray
from nearsure.audit.support_points import checked_codes
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import score

MIN_MEMBERS = 5
MAX_MISS_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class SmallClasses:
    """Classes not to be trusted; `small_classes` makes it.

    Parameters
    ----------
    codes : array of shape (n_small,)
        Which classes: fewest members first, then most misses, then the smaller code.
    n_members : array of shape (n_small,)
        Points of each class.
    n_missed : array of shape (n_small,)
        Those that have no other point of their class among their neighbours.
    accuracy : array of shape (n_small,)
        Share of the members that leave-one-out prediction gets right.
    """

    codes: IntArray
    n_members: IntArray
    n_missed: IntArray
    accuracy: FloatArray

    def __len__(self) -> int:
        return len(self.codes)


def small_classes(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    temperature: float,
    min_members: int = MIN_MEMBERS,
    max_miss_share: float = MAX_MISS_SHARE,
) -> SmallClasses:
    """Find the classes that are too small for their confidence to be trusted.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.
    min_members : int
        A class with fewer members is listed.
    max_miss_share : float
        A class is listed, too, if a larger share of its members have no other member among their
        neighbours. NED then gives their class the probability 0, and T cannot mend it.

    Returns
    -------
    SmallClasses
        Only classes that occur in `codes`; none if all are large enough.

    Examples
    --------
    >>> neighbors = Neighbors([[1.0], [1.0], [2.0]], [[0], [0], [0]])
    >>> small = small_classes(neighbors, [0, 0, 1], temperature=1.0, min_members=2)
    >>> small.codes, small.n_members, small.n_missed, small.accuracy
    (array([1]), array([1]), array([1]), array([0.]))
    """
    codes = checked_codes(neighbors, codes)
    if min_members < 0:
        raise InvalidInputError(f"min_members must not be negative. Got {min_members} instead.")
    if not 0 <= max_miss_share <= 1:
        raise InvalidInputError(f"max_miss_share must lie in [0, 1]. Got {max_miss_share} instead.")
    missed = (neighbors.labels != codes[:, None]).all(axis=1)
    right = score(neighbors, temperature=temperature).labels == codes
    classes, place, n_members = np.unique(codes, return_inverse=True, return_counts=True)
    n_missed = np.bincount(place[missed], minlength=len(classes))
    n_right = np.bincount(place[right], minlength=len(classes))
    miss_share = n_missed / n_members
    small = np.flatnonzero((n_members < min_members) | (miss_share > max_miss_share))
    small = small[np.lexsort((-miss_share[small], n_members[small]))]
    return SmallClasses(
        classes[small], n_members[small], n_missed[small], (n_right / n_members)[small]
    )
