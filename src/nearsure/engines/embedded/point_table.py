"""What is known of each row of an index beside its vector: id, label, and whether it counts."""

import numpy as np

from nearsure.arrays import BoolArray, IntArray
from nearsure.engines.embedded.row_ids import RowIds
from nearsure.errors import InvalidInputError
from nearsure.index.growing_rows import GrowingRows
from nearsure.index.stable_ids import a_few


class PointTable:
    """Ids and labels of rows, of which some are dead.

    Parameters
    ----------
    ids, labels : array of shape (n_rows,)
        Int64; ids of living rows are distinct.
    is_alive : array of shape (n_rows,) or None
        Which rows count; None for all, which takes no memory.

    Examples
    --------
    >>> table = PointTable(np.array([40, 7, 9]), np.array([0, 1, 1]))
    >>> table.bury(table.rows_of(np.array([7])))
    >>> table.n_alive, table.alive_rows()
    (2, array([0, 2]))
    """

    def __init__(self, ids: IntArray, labels: IntArray, is_alive: BoolArray | None = None) -> None:
        self.ids = RowIds(ids)
        self._labels = GrowingRows(labels)
        self._alive = None if is_alive is None else GrowingRows(is_alive)
        self.n_alive = len(ids) if is_alive is None else int(is_alive.sum())

    @property
    def labels(self) -> IntArray:
        """The label of each row. The next change may change what it holds."""
        return self._labels.rows

    @property
    def is_alive(self) -> BoolArray | None:
        """Whether each row counts; None if all do."""
        return None if self._alive is None else self._alive.rows

    def alive_rows(self) -> IntArray:
        """The rows that count, ascending."""
        return np.arange(len(self.ids)) if self._alive is None else np.flatnonzero(self._alive.rows)

    def rows_of(self, ids: IntArray) -> IntArray:
        """The rows of points; an error that names a few if they are unknown."""
        rows = self.ids.last_rows(ids)
        unknown = ids[~self._counts(rows)]
        if unknown.size:
            raise InvalidInputError(
                "ids must be those of points in the gallery. "
                f"Got {a_few(unknown.tolist())}, which it does not hold."
            )
        return rows

    def check_new(self, ids: IntArray) -> None:
        """An error that names a few ids if points have them already."""
        taken = ids[self._counts(self.ids.last_rows(ids))]
        if taken.size:
            raise InvalidInputError(
                f"ids of new points must be new. Got {a_few(taken.tolist())}, which the gallery "
                "holds already. Remove these points first."
            )

    def reserve(self, n_more: int) -> None:
        """Make room, so that `n_more` rows can be added without a failure."""
        self.ids.reserve(n_more)
        self._labels.reserve(n_more)
        if self._alive is not None:
            self._alive.reserve(n_more)

    def append(self, ids: IntArray, labels: IntArray) -> None:
        """Add living rows."""
        self.ids.append(ids)
        self._labels.append(labels)
        if self._alive is not None:
            self._alive.append(np.ones(len(ids), np.bool_))
        self.n_alive += len(ids)

    def bury(self, rows: IntArray) -> None:
        """Let living rows be dead from now on."""
        if self._alive is None:
            self._alive = GrowingRows(np.ones(len(self.ids), np.bool_))
        self._alive.put(rows, np.zeros(len(rows), np.bool_))
        self.n_alive -= len(rows)

    def relabel(self, rows: IntArray, labels: IntArray) -> None:
        """Give rows other labels."""
        self._labels.put(rows, labels)

    def _counts(self, rows: IntArray) -> BoolArray:
        counts: BoolArray = rows >= 0
        return counts if self._alive is None else counts & self._alive.rows[rows]
