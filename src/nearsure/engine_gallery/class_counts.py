"""How many points an engine's gallery has, and each of its classes."""

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.support_checks import check_not_emptied, sizes_of_classes


class ClassCounts:
    """Members of each class, the number of points, and the next free id.

    Parameters
    ----------
    counts : array of shape (n_classes,)
        Members, indexed by class code.
    next_id : int
        The largest integer id that was seen + 1; 0 where ids are text.
    """

    def __init__(self, counts: IntArray, next_id: int = 0) -> None:
        self._counts = counts.astype(np.int64)
        self.next_id = next_id
        self._by_code: IntArray | None = None

    @property
    def n_points(self) -> int:
        """How many points there are."""
        return int(self._counts.sum())

    def by_code(self, n_classes: int) -> IntArray:
        """Members of each of so many classes, shape (n_classes,), not to be changed.

        A class that came from elsewhere was never counted; it is taken for one of average size.
        """
        if self._by_code is None or len(self._by_code) < n_classes:
            counts = self._counts
            if len(counts) < n_classes:
                members = counts[counts > 0]
                usual = max(1, round(float(members.mean()))) if members.size else 1
                counts = np.append(counts, np.full(n_classes - len(counts), usual))
            counts = counts.copy()
            counts.flags.writeable = False
            self._by_code = counts
        return self._by_code

    def after(
        self,
        *,
        gone: IntArray | None = None,
        come: IntArray | None = None,
        new_ids: AnyArray | None = None,
        allow_empty_class: bool = True,
    ) -> "ClassCounts":
        """The counts once points of these codes are gone or have come, or an error."""
        lost, gained = sizes_of_classes(gone), sizes_of_classes(come)
        touched = {
            code: int(self._member_count(code)) + gained.get(code, 0) - lost.get(code, 0)
            for code in lost | gained
        }
        check_not_emptied(touched, allowed=allow_empty_class)
        counts = np.zeros(max(len(self._counts), max(touched, default=-1) + 1), np.int64)
        counts[: len(self._counts)] = self._counts
        counts[list(touched)] = [max(0, count) for count in touched.values()]
        return ClassCounts(counts, next_id_after(new_ids, self.next_id))

    def _member_count(self, code: int) -> int:
        return int(self._counts[code]) if code < len(self._counts) else 0


def next_id_after(ids: AnyArray | None, next_id: int) -> int:
    """The next free id once these are taken; text counts nothing."""
    if ids is None or not len(ids) or ids.dtype.kind not in "iu":
        return next_id
    return max(next_id, int(ids.max()) + 1)
