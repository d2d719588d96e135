"""Rows that come and go: room is kept behind the last one, and the last ones fill the holes.

An added row then costs its own size, on average, and so does a removed one, however many others
there are. The price is that the order of rows changes when one is removed.
"""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError

GROWTH = 1.5


@dataclass(frozen=True, eq=False)
class RowMoves:
    """Which rows move where, so that the rows that are left number from 0 without a gap.

    Parameters
    ----------
    n_left : int
        How many rows are left.
    sources, targets : array of shape (n_moves,)
        Each row of `sources` moves to the row of `targets`.
    """

    n_left: int
    sources: IntArray
    targets: IntArray


def moves_into_holes(n_rows: int, removed: IntArray) -> RowMoves:
    """Let the last rows fill the holes that removed rows leave.

    Parameters
    ----------
    n_rows : int
        How many rows there are.
    removed : array of shape (n_removed,)
        Distinct row numbers, in any order.

    Examples
    --------
    >>> moves_into_holes(6, np.array([1, 4]))
    RowMoves(n_left=4, sources=array([5]), targets=array([1]))
    """
    if removed.size and not 0 <= removed.min() <= removed.max() < n_rows:
        raise InvalidInputError(
            f"rows must lie in [0, {n_rows - 1}]. Got {removed.min()} to {removed.max()} instead."
        )
    if len(np.unique(removed)) < len(removed):
        raise InvalidInputError("rows must be distinct. Got a row more than once.")
    n_left = n_rows - len(removed)
    stays = np.ones(len(removed), np.bool_)
    stays[removed[removed >= n_left] - n_left] = False
    targets, sources = removed[removed < n_left], n_left + np.flatnonzero(stays)
    return RowMoves(n_left, sources, targets)


class GrowingRows:
    """An array that rows can be added to and removed from.

    Parameters
    ----------
    rows : array of shape (n, ...)
        The first rows. They are not copied before the first change, and never changed themselves.

    Attributes
    ----------
    rows : array of shape (n, ...)
        The rows of now. The next change may change what it holds.

    Examples
    --------
    >>> growing = GrowingRows(np.array([5, 6, 7]))
    >>> growing.append(np.array([8]))
    >>> growing.remove(moves_into_holes(4, np.array([0])))
    >>> growing.rows
    array([8, 6, 7])
    """

    def __init__(self, rows: AnyArray) -> None:
        self.rows = rows
        self._room: AnyArray | None = None

    def reserve(self, n_more: int) -> None:
        """Make room, so that the next `n_more` rows can be added without a failure."""
        self._room_for(n_more)

    def append(self, added: AnyArray) -> None:
        """Add rows behind the last one."""
        n_rows = len(self.rows)
        room = self._room_for(len(added))
        room[n_rows : n_rows + len(added)] = added
        self.rows = room[: n_rows + len(added)]

    def put(self, rows: IntArray, values: AnyArray) -> None:
        """Write other values into some rows."""
        self._room_for(0)[rows] = values

    def remove(self, moves: RowMoves) -> None:
        """Remove rows, as `moves_into_holes` says."""
        room = self._room_for(0)
        room[moves.targets] = room[moves.sources]
        self.rows = room[: moves.n_left]

    def _room_for(self, n_more: int) -> AnyArray:
        """Memory of its own that holds the rows, and `n_more`."""
        n_rows = len(self.rows)
        if self._room is None or n_rows + n_more > len(self._room):
            capacity = max(n_rows + n_more, int(GROWTH * n_rows) if n_more else 0)
            self._room = np.empty((capacity, *self.rows.shape[1:]), self.rows.dtype)
            self._room[:n_rows] = self.rows
            self.rows = self._room[:n_rows]
        return self._room

    def __getstate__(self) -> dict[str, AnyArray | None]:
        # A copy would hold the rows and the room apart, and what lies behind the last row.
        return {"rows": self.rows, "_room": None}
