"""Ids of rows that never move: removed rows keep their place, and an id may come back in a new one.

Ids that are row numbers take no memory; ids in ascending order take 8 bytes each, others 16.
"""

import numpy as np

from nearsure.arrays import IntArray
from nearsure.index.growing_rows import GrowingRows

# Ids that came since the others were sorted are looked up one by one, and sorted in when they are
# more than this, and more than a share of all.
FEW_RECENT = 1024
RECENT_SHARE = 8


class RowIds:
    """The id of each row, and the last row of each id.

    Parameters
    ----------
    ids : array of shape (n,)
        Int64.

    Examples
    --------
    >>> ids = RowIds(np.array([40, 7, 9]))
    >>> ids.append(np.array([7]))
    >>> ids.last_rows(np.array([7, 8, 40])), ids.of(np.array([[1, 2]]))
    (array([ 3, -1,  0]), array([[7, 9]]))
    """

    def __init__(self, ids: IntArray) -> None:
        self._n_rows = len(ids)
        self._given: GrowingRows | None = None
        self._recent: dict[int, int] = {}
        if not np.array_equal(ids, np.arange(len(ids))):
            self._keep(ids)

    def __len__(self) -> int:
        return self._n_rows

    @property
    def values(self) -> IntArray:
        """The ids of all rows. The next change may change what it holds."""
        return np.arange(self._n_rows) if self._given is None else self._given.rows

    @property
    def are_rows(self) -> bool:
        """Whether every id is the number of its row."""
        return self._given is None

    def of(self, rows: IntArray) -> IntArray:
        """The ids of rows, in the shape of `rows`."""
        ids: IntArray = rows if self._given is None else self._given.rows[rows]
        return ids

    def last_rows(self, ids: IntArray) -> IntArray:
        """The last row of each id, and -1 for ids that never were."""
        if self._given is None:
            return np.where((ids >= 0) & (ids < self._n_rows), ids, -1)
        known = self._given.rows[: self._n_sorted]
        places = np.searchsorted(known, ids, side="right", sorter=self._order) - 1
        rows = places if self._order is None else self._order[places]
        rows = np.where((places >= 0) & (known[rows] == ids), rows, -1)
        if self._recent:
            recent = [self._recent.get(own, -1) for own in ids.tolist()]
            rows = np.maximum(rows, np.array(recent, np.int64))
        return rows

    def reserve(self, n_more: int) -> None:
        """Make room, so that `n_more` ids can be added without a failure."""
        if self._given is not None:
            self._given.reserve(n_more)

    def append(self, ids: IntArray) -> None:
        """Give the next rows these ids."""
        following = np.arange(self._n_rows, self._n_rows + len(ids))
        if self._given is None and not np.array_equal(ids, following):
            self._keep(self.values)
        self._n_rows += len(ids)
        if self._given is None:
            return
        self._given.append(ids)
        self._recent.update(zip(ids.tolist(), following.tolist(), strict=True))
        if len(self._recent) > max(FEW_RECENT, self._n_sorted // RECENT_SHARE):
            self._sort()

    def _keep(self, ids: IntArray) -> None:
        self._given = GrowingRows(ids.astype(np.int64))
        self._sort()

    def _sort(self) -> None:
        ids = self.values
        ascending = bool((ids[1:] > ids[:-1]).all())
        # Stable, so that among equal ids the last row comes last.
        self._order = None if ascending else np.argsort(ids, kind="stable")
        self._n_sorted = len(ids)
        self._recent = {}
