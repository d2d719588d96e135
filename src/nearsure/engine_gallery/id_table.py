"""A number for each id, kept beside an engine that cannot hold it."""

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index.stable_ids import a_few


class IdTable:
    """Ids, integers or strings, with an integer each, in the order of ids.

    Sorted arrays and no dictionary: 16 bytes a point where ids are integers.

    Parameters
    ----------
    ids : array of shape (n,)
        Distinct.
    values : array of shape (n,)
        Integers.

    Examples
    --------
    >>> table = IdTable(np.array([7, 3]), np.array([70, 30]))
    >>> table.add(np.array([5]), np.array([50]))
    >>> table.of(np.array([[3, 5], [7, 7]]))
    array([[30, 50],
           [70, 70]])
    """

    def __init__(self, ids: AnyArray, values: IntArray) -> None:
        order = np.argsort(ids, kind="stable")
        # One assignment, here and below, so that a reader in another thread sees both or neither.
        self._columns: tuple[AnyArray, IntArray] = ids[order], values[order].astype(np.int64)

    @property
    def ids(self) -> AnyArray:
        """All ids, ascending."""
        return self._columns[0]

    @property
    def values(self) -> IntArray:
        """Their integers, in the order of `ids`."""
        return self._columns[1]

    def __len__(self) -> int:
        return len(self.ids)

    def places_of(self, ids: AnyArray) -> IntArray:
        """Where some ids stand, in the shape of `ids`; an error that names a few if they do not."""
        return self._found(ids, self.ids)

    def _found(self, ids: AnyArray, own: AnyArray) -> IntArray:
        places, there = _places(ids, own)
        if not there.all():
            raise InvalidInputError(
                "A label or group was given for other ids than these: "
                f"{a_few(np.unique(ids[~there]).tolist())}. Points that came from elsewhere have "
                "theirs after fit_engine(y, ids)."
            )
        return places

    def of(self, ids: AnyArray) -> IntArray:
        """The integers of some ids, in the shape of `ids`."""
        own, values = self._columns
        found: IntArray = values[self._found(ids, own)]
        return found

    def add(self, ids: AnyArray, values: IntArray) -> None:
        """Take in new ids."""
        both = IdTable(np.concatenate([self.ids, ids]), np.concatenate([self.values, values]))
        self._columns = both.ids, both.values

    def remove(self, ids: AnyArray) -> None:
        """Forget ids."""
        kept = np.ones(len(self.ids), np.bool_)
        kept[self.places_of(ids)] = False
        self._columns = self.ids[kept], self.values[kept]

    def put(self, ids: AnyArray, values: IntArray) -> None:
        """Give ids other integers."""
        changed = self.values.copy()
        changed[self.places_of(ids)] = values
        self._columns = self.ids, changed


def _places(ids: AnyArray, own: AnyArray) -> tuple[IntArray, BoolArray]:
    if not len(own):
        return np.zeros(ids.shape, np.int64), np.zeros(ids.shape, np.bool_)
    places = np.minimum(np.searchsorted(own, ids), len(own) - 1)
    return places, np.asarray(own[places] == ids)
