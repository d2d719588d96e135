"""Sets of classes, one for each query."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from nearsure.arrays import BoolArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_labels


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """For each of n queries, the classes among which the true one is expected.

    Parameters
    ----------
    indptr : array of shape (n + 1,)
        Query i holds the entries ``indptr[i]:indptr[i + 1]``.
    codes : array of shape (n_entries,)
        Class codes, best first within a query.
    n_classes : int
        Number of classes; every code is below it.
    everything : array of shape (n,), bool
        Queries of which no class can be ruled out. They hold no entries; their set is every class.

    Examples
    --------
    >>> sets = PredictionSets(np.array([0, 2, 2]), np.array([4, 1]), 5, np.array([False, True]))
    >>> sets.sizes, sets[0], sets[1]
    (array([2, 5]), array([4, 1]), array([0, 1, 2, 3, 4]))
    >>> sets.contains([1, 3])
    array([ True,  True])
    """

    indptr: IntArray
    codes: IntArray
    n_classes: int
    everything: BoolArray

    def __post_init__(self) -> None:
        if not len(self.indptr) or self.indptr[0] != 0 or (np.diff(self.indptr) < 0).any():
            raise InvalidInputError(
                f"indptr must ascend from 0. Got {self.indptr[:5]} and so on instead."
            )
        if self.indptr[-1] != len(self.codes):
            raise InvalidInputError(
                f"codes must have indptr[-1] entries. Got {len(self.codes)} and {self.indptr[-1]} "
                "instead."
            )
        if self.codes.size and not 0 <= self.codes.min() <= self.codes.max() < self.n_classes:
            raise InvalidInputError(
                f"Class codes must lie in [0, {self.n_classes}). "
                f"Got {self.codes.min()} to {self.codes.max()} instead."
            )
        if self.everything.shape != (len(self),) or np.diff(self.indptr)[self.everything].any():
            raise InvalidInputError(
                f"everything must be one bool for each of the {len(self)} queries, and a query "
                "with every class must hold no entries. "
                f"Got an array of shape {self.everything.shape}, and "
                f"{len(self.codes)} entries."
            )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def sizes(self) -> IntArray:
        """Number of classes in each set."""
        return np.where(self.everything, self.n_classes, np.diff(self.indptr))

    def __getitem__(self, query: int) -> IntArray:
        """Class codes of one query, best first; ascending where the set is every class."""
        if not -len(self) <= query < len(self):
            raise IndexError(f"query must be one of {len(self)}. Got {query} instead.")
        query %= len(self)
        if self.everything[query]:
            return np.arange(self.n_classes)
        return self.codes[self.indptr[query] : self.indptr[query + 1]]

    def contains(self, codes: ArrayLike) -> BoolArray:
        """Return whether each set holds the class code given for it.

        Parameters
        ----------
        codes : array-like of shape (n,)
            A class code for each query. A code that is no class is in no set, not even in that of
            every class.
        """
        asked = check_labels(codes, n_rows=len(self))
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        found = self.everything & (asked >= 0) & (asked < self.n_classes)
        found[rows[self.codes == asked[rows]]] = True
        return found

    def to_csr(self) -> csr_array:
        """Boolean matrix of shape (n, n_classes) in scipy's CSR form, columns ascending.

        A row of every class has n_classes entries: look at ``everything`` first if both numbers are
        large.
        """
        indptr = np.concatenate([[0], np.cumsum(self.sizes)])
        columns = np.empty(indptr[-1], np.int64)
        full = np.repeat(self.everything, self.sizes)
        columns[full] = np.tile(np.arange(self.n_classes), self.everything.sum())
        columns[~full] = self.codes
        matrix = csr_array(
            (np.ones(len(columns), np.bool_), columns, indptr), shape=(len(self), self.n_classes)
        )
        matrix.sort_indices()
        return matrix
