"""Classes that are taken for each other."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, triu

from nearsure.arrays import FloatArray, IntArray
from nearsure.audit.support_points import checked_codes
from nearsure.neighbors import Neighbors
from nearsure.posterior import score


@dataclass(frozen=True, eq=False)
class ConfusableClasses:
    """Pairs of classes ranked by how much they claim of each other; `confusable_classes` makes it.

    Parameters
    ----------
    codes : array of shape (n_pairs, 2)
        The two classes, smaller code first; most confused pair first. Only pairs that claim
        something of each other are listed.
    confusion : array of shape (n_pairs,)
        Mean of the two entries of `mass`, in [0, 1].
    mass : sparse array of shape (n_classes, n_classes)
        Entry (a, b) is the mean leave-one-out probability of class b over the points of class a.
        Rows of classes with points sum to 1.
    """

    codes: IntArray
    confusion: FloatArray
    mass: csr_array

    def __len__(self) -> int:
        return len(self.confusion)


def confusable_classes(
    neighbors: Neighbors, codes: ArrayLike, *, temperature: float
) -> ConfusableClasses:
    """Rank pairs of classes by the probability that their points give to each other's class.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of the points of the gallery. Points without any are left out.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.

    Returns
    -------
    ConfusableClasses
        Without pairs if there is one class only, or no class claims anything of another.

    Examples
    --------
    >>> neighbors = Neighbors([[1.0, 1.0]] * 3, [[0, 1], [0, 1], [2, 2]])
    >>> pairs = confusable_classes(neighbors, [0, 1, 2], temperature=1.0)
    >>> pairs.codes, pairs.confusion
    (array([[0, 1]]), array([0.5]))
    """
    codes = checked_codes(neighbors, codes)
    n_classes = int(max(codes.max(), neighbors.labels.max())) + 1
    posterior = score(neighbors, temperature=temperature, n_classes=n_classes)
    rows = np.flatnonzero(neighbors.counts > 0)
    sizes = np.bincount(codes[rows], minlength=n_classes)
    mean_of_class = csr_array(
        (1.0 / sizes[codes[rows]], (codes[rows], rows)), shape=(n_classes, len(codes))
    )
    mass = csr_array(mean_of_class @ posterior.to_csr())
    mass.sort_indices()
    either = triu(csr_array((mass + mass.T) / 2), k=1, format="coo")
    claimed = either.data > 0
    pairs = np.column_stack([either.row[claimed], either.col[claimed]]).astype(np.int64)
    confusion = either.data[claimed]
    ranked = np.lexsort((pairs[:, 1], pairs[:, 0], -confusion))
    return ConfusableClasses(pairs[ranked], confusion[ranked], mass)
