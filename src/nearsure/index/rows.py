"""Rows that are added and removed, and the tables between their ids and places."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.validation import check_distinct, integer_ids, preview

# Rows that come and go: room is kept behind the last one, and the last ones fill the holes.
#
# An added row then costs its own size, on average, and so does a removed one, however many others
# there are. The price is that the order of rows changes when one is removed.


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


# Ids from here on are taken where they are given, but new ones do not count on from them: a point
# with the largest integer for its id leaves room for others.
COUNTED_IDS = 2**62


class StableIds:
    """The id of each row, and the row of each id.

    Ids that are row numbers anyway take no memory; and the table from ids to rows is made when it
    is first needed.

    Parameters
    ----------
    n_rows : int
        How many rows there are.
    ids : array of shape (n_rows,), optional
        Their ids, distinct 64-bit integers; by default their row numbers.
    next_id : int, optional
        Where new ids count on from, beyond all of `ids`; by default from the largest of them + 1.

    Attributes
    ----------
    next_id : int
        The largest id ever used + 1, and not below 0, so that no negative id is made up. Ids from
        2**62 on do not count.
    ascending : bool
        Whether rows are in the order of their ids.

    Examples
    --------
    >>> ids = StableIds(2, [40, 7])
    >>> ids.append(ids.new(1))
    >>> ids.values, ids.rows_of([41, 40])
    (array([40,  7, 41]), array([2, 0]))
    """

    def __init__(
        self, n_rows: int, ids: ArrayLike | None = None, next_id: int | None = None
    ) -> None:
        self._n_rows = n_rows
        self.next_id = n_rows
        self._given: GrowingRows | None = None
        self._row_of: dict[int, int] | None = None
        self.ascending = True
        if ids is not None:
            given = integer_ids(ids, n_rows)
            check_distinct(given)
            self._given = GrowingRows(given)
            self.ascending = bool((given[1:] > given[:-1]).all())
            self.next_id = next_id_after(given, 0)
        if next_id is not None:
            if next_id < self.next_id:
                raise InvalidInputError(
                    f"next_id must be at least {self.next_id}, beyond every id in use. "
                    f"Got {next_id} instead."
                )
            self.next_id = next_id

    @property
    def values(self) -> IntArray:
        """The ids of all rows, in their order. The next change may change what it holds."""
        return np.arange(self._n_rows) if self._given is None else self._given.rows

    def of(self, rows: IntArray) -> IntArray:
        """The ids of some rows, in the shape of `rows`."""
        ids: IntArray = rows if self._given is None else self._given.rows[rows]
        return ids

    def rows_of(self, ids: ArrayLike) -> IntArray:
        """The rows of some ids; an error that names a few if they are unknown."""
        wanted = integer_ids(ids)
        if self._given is None:
            known = (wanted >= 0) & (wanted < self._n_rows)
            rows = wanted
        else:
            row_of = self._table()
            rows = np.array([row_of.get(own, -1) for own in wanted.tolist()], np.int64)
            known = rows >= 0
        if not known.all():
            raise InvalidInputError(
                "ids must be those of points in the gallery. "
                f"Got {preview(wanted[~known].tolist())}, which it does not hold."
            )
        return rows

    def new(self, n_new: int, ids: ArrayLike | None = None) -> IntArray:
        """Ids for new rows: the given ones, checked, or those after the largest ever used."""
        if ids is None:
            return ids_from(self.next_id, n_new)
        given = integer_ids(ids, n_new)
        check_distinct(given)
        if self._given is None:
            taken = (given >= 0) & (given < self._n_rows)
        else:
            row_of = self._table()
            taken = np.array([own in row_of for own in given.tolist()], np.bool_)
        if taken.any():
            raise InvalidInputError(
                f"ids of new points must be new. Got {preview(given[taken].tolist())}, which the "
                "gallery holds already. Remove these points first, or leave ids out to have new "
                "ones."
            )
        return given

    def reserve(self, n_more: int) -> None:
        """Make room, so that `n_more` ids can be added without a failure."""
        if self._given is not None:
            self._given.reserve(n_more)

    def append(self, ids: IntArray) -> None:
        """Give the next rows these ids, which `new` has checked."""
        if not ids.size:
            return
        last = int(self.of(np.array([self._n_rows - 1]))[0])
        self.ascending &= ids[0] > last and bool((ids[1:] > ids[:-1]).all())
        following = np.arange(self._n_rows, self._n_rows + len(ids))
        if self._given is None and not np.array_equal(ids, following):
            self._given = GrowingRows(self.values)
        if self._given is not None:
            self._given.append(ids)
        if self._row_of is not None:
            self._row_of.update(zip(ids.tolist(), following.tolist(), strict=True))
        self._n_rows += len(ids)
        self.next_id = next_id_after(ids, self.next_id)

    def remove(self, removed: IntArray, moves: RowMoves) -> None:
        """Forget the ids of removed rows, and follow the others to where they move."""
        if len(moves.sources):
            self.ascending = False
            if self._given is None:
                self._given = GrowingRows(self.values)
        if self._row_of is not None:
            for own in self.of(removed).tolist():
                del self._row_of[own]
            moved = self.of(moves.sources).tolist()
            self._row_of.update(zip(moved, moves.targets.tolist(), strict=True))
        if self._given is not None:
            self._given.remove(moves)
        self._n_rows = moves.n_left

    def _table(self) -> dict[int, int]:
        if self._row_of is None:
            self._row_of = dict(zip(self.values.tolist(), range(self._n_rows), strict=True))
        return self._row_of


def next_id_after(ids: AnyArray | None, next_id: int) -> int:
    """The next free id once these are taken; text counts nothing."""
    if ids is None or ids.dtype.kind not in "iu":
        return next_id
    return max(next_id, int(ids[ids < COUNTED_IDS].max(initial=-1)) + 1)


def ids_from(next_id: int, n_new: int) -> IntArray:
    """So many new ids, or an error if there are no more."""
    if next_id + n_new > COUNTED_IDS:
        raise InvalidInputError(
            f"New ids must be below {COUNTED_IDS}. Got {n_new} new points, and {next_id - 1} is "
            "used already. Give the new points' ids."
        )
    return next_id + np.arange(n_new)


# Ids of rows that never move: removed rows keep their place, and an id may come back in a new one.
#
# Ids that are row numbers take no memory; ids in ascending order take 8 bytes each, others 16.


# Ids that came since the others were sorted are looked up one by one, and sorted in when they are
# more than this, and more than a share of all.
FEW_RECENT = 1024
RECENT_SHARE = 8


class _KeptIds(NamedTuple):
    """Ids of rows, of which the first are sorted and the others looked up one by one."""

    ids: GrowingRows
    n_sorted: int
    order: IntArray | None
    recent: dict[int | str, int]


class RowIds:
    """The id of each row, and the last row of each id.

    Parameters
    ----------
    ids : array of shape (n,)
        Int64 or strings.

    Examples
    --------
    >>> ids = RowIds(np.array([40, 7, 9]))
    >>> ids.append(np.array([7]))
    >>> ids.last_rows(np.array([7, 8, 40])), ids.of(np.array([[1, 2]]))
    (array([ 3, -1,  0]), array([[7, 9]]))
    """

    def __init__(self, ids: AnyArray) -> None:
        self._n_rows = len(ids)
        # One attribute, so that a reader in another thread has all of it or nothing.
        self._kept: _KeptIds | None = None
        if ids.dtype.kind == "U" or not np.array_equal(ids, np.arange(len(ids))):
            self._keep(GrowingRows(ids if ids.dtype.kind == "U" else ids.astype(np.int64)))

    def __len__(self) -> int:
        return self._n_rows

    @property
    def values(self) -> AnyArray:
        """The ids of all rows. The next change may change what it holds."""
        kept = self._kept
        return np.arange(self._n_rows) if kept is None else kept.ids.rows

    @property
    def are_rows(self) -> bool:
        """Whether every id is the number of its row."""
        return self._kept is None

    def of(self, rows: IntArray) -> AnyArray:
        """The ids of rows, in the shape of `rows`."""
        kept = self._kept
        ids: AnyArray = rows if kept is None else kept.ids.rows[rows]
        return ids

    def last_rows(self, ids: AnyArray) -> IntArray:
        """The last row of each id, in the shape of `ids`; -1 for ids that never were."""
        kept = self._kept
        if kept is None:
            return np.where((ids >= 0) & (ids < self._n_rows), ids, -1)
        rows = np.full(ids.shape, -1)
        if kept.n_sorted:
            known = kept.ids.rows[: kept.n_sorted]
            places = np.searchsorted(known, ids, side="right", sorter=kept.order) - 1
            found = places if kept.order is None else kept.order[places]
            rows = np.where((places >= 0) & (known[found] == ids), found, -1)
        if kept.recent:
            is_recent = np.isin(ids, np.array(list(kept.recent)))
            rows[is_recent] = [kept.recent[own] for own in ids[is_recent].tolist()]
        return rows

    def reserve(self, n_more: int) -> None:
        """Make room, so that `n_more` ids can be added without a failure."""
        if self._kept is not None:
            self._kept.ids.reserve(n_more)

    def append(self, ids: AnyArray) -> None:
        """Give the next rows these ids."""
        following = np.arange(self._n_rows, self._n_rows + len(ids))
        if self._kept is None and not np.array_equal(ids, following):
            self._keep(GrowingRows(self.values))
        if self._kept is not None:
            if ids.dtype.itemsize > self._kept.ids.rows.itemsize:  # Longer strings.
                self._keep(GrowingRows(self.values.astype(ids.dtype)))
            kept = self._kept
            kept.ids.append(ids)
            kept.recent.update(zip(ids.tolist(), following.tolist(), strict=True))
            if len(kept.recent) > max(FEW_RECENT, kept.n_sorted // RECENT_SHARE):
                self._keep(kept.ids)
        self._n_rows += len(ids)

    def _keep(self, given: GrowingRows) -> None:
        ids = given.rows
        ascending = bool((ids[1:] > ids[:-1]).all())
        # Stable, so that among equal ids the last row comes last.
        order = None if ascending else np.argsort(ids, kind="stable")
        self._kept = _KeptIds(given, len(ids), order, {})


class PointTable:
    """Ids of rows, of which some are deleted, with a label or a group each.

    Parameters
    ----------
    ids : array of shape (n_rows,)
        Int64 or strings; those of rows that are not deleted are distinct.
    labels : array of shape (n_rows,)
        Int64, or objects.
    is_alive : array of shape (n_rows,) or None
        Which rows are not deleted; None for all, which takes no memory.

    Examples
    --------
    >>> table = PointTable(np.array([40, 7, 9]), np.array([0, 1, 1]))
    >>> table.mark_deleted(table.rows_of(np.array([7])))
    >>> table.n_alive, table.alive_rows(), table.find(np.array([[9, 7]]))
    (2, array([0, 2]), array([[ 2, -1]]))
    """

    def __init__(self, ids: AnyArray, labels: IntArray, is_alive: BoolArray | None = None) -> None:
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
        """Whether each row is not deleted; None if none is."""
        return None if self._alive is None else self._alive.rows

    def alive_rows(self) -> IntArray:
        """The rows that are not deleted, ascending."""
        # Rows that are being added have no ids yet.
        n_rows, alive = len(self.ids), self._alive
        return np.arange(n_rows) if alive is None else np.flatnonzero(alive.rows[:n_rows])

    def by_id(self) -> tuple[AnyArray, IntArray]:
        """Ids, ascending, and labels of the rows that are not deleted; copies."""
        rows = self.alive_rows()
        ids = self.ids.of(rows)
        order = np.argsort(ids, kind="stable")
        return ids[order], self.labels[rows[order]]

    def find(self, ids: AnyArray) -> IntArray:
        """The row of each id, in the shape of `ids`; -1 where there is none."""
        rows = self.ids.last_rows(ids)
        return rows if self._alive is None else np.where(self._alive.rows[rows], rows, -1)

    def rows_of(self, ids: AnyArray) -> IntArray:
        """The rows of points; an error that names a few if they are unknown."""
        rows = self.find(ids)
        unknown = ids[rows < 0]
        if unknown.size:
            raise InvalidInputError(
                "ids must be those of points in the gallery. "
                f"Got {preview(unknown.tolist())}, which it does not hold."
            )
        return rows

    def check_new(self, ids: AnyArray) -> None:
        """An error that names a few ids if points have them already."""
        taken = ids[self.find(ids) >= 0]
        if taken.size:
            raise InvalidInputError(
                f"ids of new points must be new. Got {preview(taken.tolist())}, which the gallery "
                "holds already. Remove these points first."
            )

    def reserve(self, n_more: int) -> None:
        """Make room, so that `n_more` rows can be added without a failure."""
        self.ids.reserve(n_more)
        self._labels.reserve(n_more)
        if self._alive is not None:
            self._alive.reserve(n_more)

    def append(self, ids: AnyArray, labels: IntArray) -> None:
        """Add rows."""
        # Ids come last: who finds one, in another thread, finds its label.
        self._labels.append(labels)
        if self._alive is not None:
            self._alive.append(np.ones(len(ids), np.bool_))
        self.ids.append(ids)
        self.n_alive += len(ids)

    def mark_deleted(self, rows: IntArray) -> None:
        """Delete rows, which keep their places."""
        if self._alive is None:
            self._alive = GrowingRows(np.ones(len(self.ids), np.bool_))
        self._alive.put(rows, np.zeros(len(rows), np.bool_))
        self.n_alive -= len(rows)

    def relabel(self, rows: IntArray, labels: IntArray) -> None:
        """Give rows other labels."""
        self._labels.put(rows, labels)
