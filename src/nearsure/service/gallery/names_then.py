"""Ids and labels of one moment."""

from collections.abc import Sequence

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Stored


class NamesThen:
    """What a scan gave, to be looked up by id.

    Parameters
    ----------
    portions : sequence of Stored
        Of which none is empty, ids ascending.

    Examples
    --------
    >>> then = NamesThen([Stored(np.array([2, 5]), np.array(["cat", "dog"]))])
    >>> len(then), then.labels_of(np.array([5, 3]))
    (2, ['dog', None])
    """

    def __init__(self, portions: Sequence[Stored]) -> None:
        self.portions = portions
        firsts = [portion.ids[:1] for portion in portions]
        self._firsts = np.concatenate(firsts) if firsts else np.empty(0, np.int64)

    def __len__(self) -> int:
        return sum(len(portion.ids) for portion in self.portions)

    def labels_of(self, ids: AnyArray) -> list[str | int | None]:
        """The labels of points, shape (n,); None for one that was not there."""
        labels: list[str | int | None] = [None] * len(ids)
        if not self.portions:
            return labels
        portion_of = np.searchsorted(self._firsts, ids, side="right") - 1
        for number in np.unique(portion_of[portion_of >= 0]).tolist():
            portion = self.portions[number]
            rows = np.flatnonzero(portion_of == number)
            places = np.minimum(np.searchsorted(portion.ids, ids[rows]), len(portion.ids) - 1)
            same = portion.ids[places] == ids[rows]
            found = np.asarray(portion.labels)[places[same]].tolist()
            for row, label in zip(rows[same].tolist(), found, strict=True):
                labels[row] = label
        return labels
