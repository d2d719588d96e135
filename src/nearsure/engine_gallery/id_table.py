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
        self.ids: AnyArray = ids[order]
        self.values: IntArray = values[order].astype(np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    def places_of(self, ids: AnyArray) -> IntArray:
        """Where some ids stand, in the shape of `ids`; an error that names a few if they do not."""
        places, there = self._places(ids)
        if not there.all():
            raise InvalidInputError(
                "A label or group was given for other ids than these: "
                f"{a_few(np.unique(ids[~there]).tolist())}. Points that came from elsewhere have "
                "theirs after fit_engine(y, ids)."
            )
        return places

    def of(self, ids: AnyArray) -> IntArray:
        """The integers of some ids, in the shape of `ids`."""
        values: IntArray = self.values[self.places_of(ids)]
        return values

    def add(self, ids: AnyArray, values: IntArray) -> None:
        """Take in new ids."""
        both = IdTable(np.concatenate([self.ids, ids]), np.concatenate([self.values, values]))
        self.ids, self.values = both.ids, both.values

    def remove(self, ids: AnyArray) -> None:
        """Forget ids."""
        kept = np.ones(len(self.ids), np.bool_)
        kept[self.places_of(ids)] = False
        self.ids, self.values = self.ids[kept], self.values[kept]

    def put(self, ids: AnyArray, values: IntArray) -> None:
        """Give ids other integers."""
        changed = self.values.copy()
        changed[self.places_of(ids)] = values
        self.values = changed

    def _places(self, ids: AnyArray) -> tuple[IntArray, BoolArray]:
        if not len(self.ids):
            return np.zeros(ids.shape, np.int64), np.zeros(ids.shape, np.bool_)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return places, np.asarray(self.ids[places] == ids)
