"""Imitate unknown queries: support points whose whole class is missing from the gallery."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.leaving_one_out import Searchable, search_leaving_one_out
from nearsure.neighbors import Neighbors, integer_codes

FEWEST_CLASSES = 2


def search_leaving_class_out(
    index: Searchable,
    points: AnyArray,
    own_ids: IntArray,
    support_labels: ArrayLike,
    *,
    k: int,
) -> Neighbors:
    """Search support points among the classes that are not theirs.

    To such a search a point is what a query of a class outside the gallery is to a real one.

    Parameters
    ----------
    index : Searchable
        The support set.
    points : array of shape (n, n_features)
        Vectors of the points to search.
    own_ids : array of shape (n,)
        Their row numbers in the support set.
    support_labels : array of shape (n_support,)
        Integer class codes of the support set, of at least two classes.
    k : int
        How many neighbours.

    Returns
    -------
    Neighbors
        With ids. A row holds fewer than k only where the other classes have no more to give.

    Examples
    --------
    >>> from nearsure.index import ExactIndex
    >>> vectors = np.array([[0.0], [1.0], [3.0]])
    >>> search_leaving_class_out(ExactIndex(vectors), vectors, np.arange(3), [0, 0, 1], k=1).ids
    array([[2],
           [2],
           [1]])
    """
    codes = integer_codes(support_labels)
    check_several_classes(codes)
    return search_leaving_one_out(index, points, own_ids, codes, k=k, groups=codes)


def check_several_classes(codes: IntArray) -> None:
    """Raise an error if there is no second class, so that nothing is left without the first."""
    n_classes = len(np.unique(codes))
    if n_classes < FEWEST_CLASSES:
        raise InvalidInputError(
            "The gallery must have at least two classes, or unknown queries cannot be imitated: "
            "a point that leaves its class out has nothing left to be compared with. "
            f"Got {n_classes} instead. Add points of another class, or judge without p(known)."
        )
