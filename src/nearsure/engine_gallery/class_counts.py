"""How many points an engine's gallery has, and each of its classes."""

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.index.stable_ids import next_id_after
from nearsure.support_checks import check_not_emptied, sizes_of_classes

# A class that came from elsewhere, whose members nobody has counted yet.
UNCOUNTED = -1


class ClassCounts:
    """Members of each class, the number of points, and the next free id.

    Parameters
    ----------
    counts : array of shape (n_classes,)
        Members, indexed by class code.
    next_id : int
        The largest integer id that was seen + 1; 0 where ids are text.
    n_points : int, optional
        How many points there are; by default the sum of all counts.
    """

    def __init__(self, counts: IntArray, next_id: int = 0, n_points: int | None = None) -> None:
        self._counts = counts.astype(np.int64)
        self.next_id = next_id
        self.n_points = int(self._counts.sum()) if n_points is None else n_points
        self._by_code: IntArray | None = None

    def by_code(self, n_classes: int) -> IntArray:
        """Members of each of so many classes, shape (n_classes,), not to be changed.

        A class that was never counted is taken for one of average size.
        """
        by_code = self._by_code
        if by_code is None or len(by_code) < n_classes:
            counts = self._padded(n_classes)
            members = counts[counts > 0]
            usual = max(1, round(float(members.mean()))) if members.size else 1
            by_code = np.where(counts == UNCOUNTED, usual, counts)
            by_code.flags.writeable = False
            self._by_code = by_code
        return by_code

    def _padded(self, n_classes: int) -> IntArray:
        n_more = max(0, n_classes - len(self._counts))
        return np.append(self._counts, np.full(n_more, UNCOUNTED))

    def with_empty(self, codes: IntArray) -> "ClassCounts":
        """The same with classes that have no member yet."""
        counts = self._padded(int(codes.max(initial=-1)) + 1)
        counts[codes] = 0
        return ClassCounts(counts, self.next_id, self.n_points)

    def has_counted(self, codes: IntArray) -> bool:
        """Whether it knows of as many members as these, so that they can be taken away."""
        return all(
            code < len(self._counts) and n_lost <= self._counts[code]
            for code, n_lost in sizes_of_classes(codes).items()
        )

    def not_below(self, before: "ClassCounts") -> "ClassCounts":
        """The same with no id free that was taken before: a removed point's id is not used anew."""
        return ClassCounts(self._counts, max(self.next_id, before.next_id), self.n_points)

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
        counts = self._padded(max([*lost, *gained], default=-1) + 1)
        # A class that was never counted stays so: the next count finds these points, too.
        touched = {
            code: int(counts[code]) + gained.get(code, 0) - lost.get(code, 0)
            for code in lost | gained
            if counts[code] != UNCOUNTED
        }
        check_not_emptied(touched, allowed=allow_empty_class)
        counts[list(touched)] = [max(0, count) for count in touched.values()]
        n_points = self.n_points + sum(gained.values()) - sum(lost.values())
        return ClassCounts(counts, next_id_after(new_ids, self.next_id), n_points)
