"""Ids that stay with their vectors while rows come and go."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index.growing_rows import GrowingRows, RowMoves

LARGEST_ID = np.iinfo(np.int64).max
# Ids from here on are taken where they are given, but new ones do not count on from them: a point
# with the largest integer for its id leaves room for others.
COUNTED_IDS = 2**62
FEW = 5


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
                f"Got {a_few(wanted[~known].tolist())}, which it does not hold."
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
                f"ids of new points must be new. Got {a_few(given[taken].tolist())}, which the "
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


def integer_ids(ids: ArrayLike, n: int | None = None, name: str = "ids") -> IntArray:
    """Ids as an int64 array of shape (n,), or an error that says what they must be."""
    array: AnyArray = np.asarray(ids)
    shape = array.shape if n is None else (n,)
    if array.ndim != 1 or array.shape != shape:
        raise InvalidInputError(
            f"{name} must be one integer for each of {'the' if n is None else n} points, in an "
            f"array of one dimension. Got an array of shape {array.shape} instead."
        )
    if array.size and array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be 64-bit integers. Got an array of {array.dtype} instead."
        )
    if array.dtype.kind == "u" and array.size and array.max() > LARGEST_ID:
        raise InvalidInputError(f"{name} must be at most {LARGEST_ID}. Got {array.max()} instead.")
    return array.astype(np.int64)


def check_distinct(ids: IntArray) -> None:
    """An error that names a few ids if some come twice."""
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise InvalidInputError(
            f"ids must be distinct. Got {a_few(distinct[counts > 1].tolist())} more than once."
        )


def a_few(numbers: list[int]) -> str:
    """The first few of many numbers, for a message."""
    named = ", ".join(map(str, numbers[:FEW]))
    return named if len(numbers) <= FEW else f"{named} and {len(numbers) - FEW} more"
