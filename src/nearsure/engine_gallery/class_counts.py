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
        by_code = self._by_code
        if by_code is None or len(by_code) < n_classes:
            by_code = self._padded(n_classes)
            by_code.flags.writeable = False
            self._by_code = by_code
        return by_code

    def _padded(self, n_classes: int) -> IntArray:
        members = self._counts[self._counts > 0]
        usual = max(1, round(float(members.mean()))) if members.size else 1
        n_more = max(0, n_classes - len(self._counts))
        return np.append(self._counts, np.full(n_more, usual)).astype(np.int64)

    def with_empty(self, n_before: int, n_classes: int) -> "ClassCounts":
        """The same for more classes, of which those from `n_before` on have no member yet."""
        counts = self._padded(n_before)
        n_new = max(0, n_classes - len(counts))
        return ClassCounts(np.append(counts, np.zeros(n_new, np.int64)), self.next_id)

    def has_counted(self, codes: IntArray) -> bool:
        """Whether it knows of as many members as these, so that they can be taken away."""
        return all(
            code < len(self._counts) and n_lost <= self._counts[code]
            for code, n_lost in sizes_of_classes(codes).items()
        )

    def not_below(self, before: "ClassCounts") -> "ClassCounts":
        """The same with no id free that was taken before: a removed point's id is not used anew."""
        return ClassCounts(self._counts, max(self.next_id, before.next_id))

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
        largest = max([*lost, *gained], default=-1)
        counts = self._padded(largest)
        counts = np.append(counts, np.zeros(max(0, largest + 1 - len(counts)), np.int64))
        touched = {
            code: int(counts[code]) + gained.get(code, 0) - lost.get(code, 0)
            for code in lost | gained
        }
        check_not_emptied(touched, allowed=allow_empty_class)
        counts[list(touched)] = [max(0, count) for count in touched.values()]
        return ClassCounts(counts, next_id_after(new_ids, self.next_id))


def next_id_after(ids: AnyArray | None, next_id: int) -> int:
    """The next free id once these are taken; text counts nothing."""
    if ids is None or not len(ids) or ids.dtype.kind not in "iu":
        return next_id
    return max(next_id, int(ids.max()) + 1)
