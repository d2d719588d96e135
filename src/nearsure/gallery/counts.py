"""How many points a gallery has in all and in each class, and the codes of labels."""

from threading import Lock

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Engine
from nearsure.errors import GalleryMismatchError, InvalidInputError
from nearsure.index.rows import PointTable, next_id_after
from nearsure.labels import codes_of
from nearsure.validation import preview

NO_LABELS = "The engine holds no labels. Give them beside it: fit_engine(y, ids)."
NO_POINTS = "The engine holds no points. Load some: fit(X, y), or add to the engine itself."


def sizes_of_classes(codes: IntArray | None) -> dict[int, int]:
    """How many points have each code that occurs."""
    if codes is None:
        return {}
    classes, sizes = np.unique(codes, return_counts=True)
    return dict(zip(classes.tolist(), sizes.tolist(), strict=True))


def check_not_emptied(counts: dict[int, int], *, allowed: bool) -> None:
    """Raise an error if a class would have no point, unless that is meant."""
    emptied = [code for code, n_points in counts.items() if n_points == 0]
    if emptied and not allowed:
        raise InvalidInputError(
            f"Every class must keep a point. Got the last of class codes {preview(emptied)}. "
            "Pass allow_empty_class=True if this is meant."
        )


# A class that came from elsewhere, whose members are not counted yet.
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
        """Whether it has counted as many members as these, so that they can be taken away."""
        return all(
            code < len(self._counts) and n_lost <= self._counts[code]
            for code, n_lost in sizes_of_classes(codes).items()
        )

    def not_below(self, before: "ClassCounts") -> "ClassCounts":
        """The same with no id free that was taken before: a removed point's id is not reused."""
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


# Integer labels within this many times their number are looked up in a table, not searched.
SPREAD = 4


class LabelCodes:
    """The classes of a gallery, of which there is no other list: a code is a place in this one.

    A label that was never seen gets the next code, as others may write to an engine, too. The list
    only grows, so that a code stays what it was for as long as the list is there.

    Parameters
    ----------
    classes : array of shape (n_classes,)
        The labels, in the order of their codes.

    Examples
    --------
    >>> codes = LabelCodes(np.array(["cat", "dog"]))
    >>> codes.of(np.array([["dog", "emu"]]))
    array([[1, 2]])
    >>> codes.classes
    array(['cat', 'dog', 'emu'], dtype='<U3')
    """

    def __init__(self, classes: AnyArray) -> None:
        self._lock = Lock()
        self._name(classes)

    def __reduce__(self) -> tuple[type["LabelCodes"], tuple[AnyArray]]:
        """A copy has a lock of its own."""
        return type(self), (self.classes,)

    def _name(self, classes: AnyArray) -> None:
        table, first = _table(classes)
        # One assignment, so that a reader in another thread has all of it or nothing.
        self._state = (classes, table, first)

    @property
    def classes(self) -> AnyArray:
        """The labels, in the order of their codes."""
        return self._state[0]

    def __len__(self) -> int:
        return len(self.classes)

    def of(self, labels: AnyArray) -> IntArray:
        """Codes of labels, in their shape."""
        codes, n_known = self._known(labels)
        return codes if not (codes == n_known).any() else self.name(labels)[0]

    def name(self, labels: AnyArray) -> tuple[IntArray, IntArray]:
        """Codes of labels, and those codes that did not exist before."""
        with self._lock:
            codes, n_known = self._known(labels)
            new = np.unique(labels[codes == n_known])
            if new.size:
                self._name(np.concatenate([self.classes, new]))
                codes = self._known(labels)[0]
        return codes, n_known + np.arange(len(new))

    def _known(self, labels: AnyArray) -> tuple[IntArray, int]:
        """Codes, and the number of classes, which stands for a label that is none of them."""
        classes, table, first = self._state
        if table is None or labels.dtype.kind not in "iu":
            return codes_of(labels, classes), len(classes)
        places = labels - first
        inside = (places >= 0) & (places < len(table))
        if inside.all():
            return table[places], len(classes)
        return np.where(inside, table[np.where(inside, places, 0)], len(classes)), len(classes)


def _table(classes: AnyArray) -> tuple[IntArray | None, int]:
    """Codes by label less the first label, for integers that lie close together."""
    if classes.dtype.kind not in "iu" or not len(classes):
        return None, 0
    first, last = int(classes.min()), int(classes.max())
    if last - first >= SPREAD * len(classes):
        return None, 0
    table = np.full(last - first + 1, len(classes))
    table[classes - first] = np.arange(len(classes))
    return table, first


def census_of_labels(engine: Engine) -> tuple[AnyArray, IntArray, int]:
    """The labels that an engine holds, sorted; members of each; the next free id.

    No more than a portion of ids, and each label once, is held in memory.
    """
    if not engine.capabilities.holds_labels:
        raise GalleryMismatchError(NO_LABELS)
    labels: AnyArray = np.empty(0, np.int64)
    sizes = np.empty(0, np.int64)
    next_id = 0
    for portion in engine.scan():
        here, n_here = np.unique(np.asarray(portion.labels), return_counts=True)
        joined = np.concatenate([labels, here]) if len(labels) else here
        labels, places = np.unique(joined, return_inverse=True)
        sizes = np.bincount(places, np.concatenate([sizes, n_here])).astype(np.int64)
        next_id = next_id_after(portion.ids, next_id)
    if not len(labels):
        raise InvalidInputError(NO_POINTS)
    return labels, sizes, next_id


def counted_as(engine: Engine, classes: LabelCodes) -> ClassCounts:
    """Sizes of the classes of a gallery; those that came from elsewhere are named with them."""
    labels, sizes, next_id = census_of_labels(engine)
    check_same_kind(labels, classes.classes)
    codes = classes.of(labels)
    counts = np.zeros(len(classes), np.int64)
    counts[codes] = sizes
    return ClassCounts(counts, next_id)


def counted_by_table(engine: Engine, codes: PointTable | None) -> ClassCounts:
    """Sizes of classes, where codes are kept beside the engine; an error if some id has none."""
    if codes is None:
        raise GalleryMismatchError(NO_LABELS)
    sizes = np.zeros(int(codes.labels.max(initial=-1)) + 1, np.int64)
    next_id = 0
    for portion in engine.scan():
        sizes += np.bincount(values_beside(codes, portion.ids), minlength=len(sizes))
        next_id = next_id_after(portion.ids, next_id)
    counts = ClassCounts(sizes, next_id)
    if not counts.n_points:
        raise InvalidInputError(NO_POINTS)
    if counts.n_points != codes.n_alive:
        raise InvalidInputError(
            f"ids must be those of the engine's {counts.n_points} points. Got {codes.n_alive}, of "
            "which it does not hold some."
        )
    return counts


def values_beside(table: PointTable | None, ids: AnyArray) -> IntArray:
    """The codes or groups that are kept beside an engine, in the shape of `ids`."""
    if table is None:
        raise GalleryMismatchError(NO_LABELS)
    rows = table.find(ids)
    if (rows < 0).any():
        raise InvalidInputError(
            f"No label or group is known for ids {preview(np.unique(ids[rows < 0]).tolist())}. "
            "Points that came from elsewhere have theirs after fit_engine(y, ids)."
        )
    return np.asarray(table.labels[rows])


def check_same_kind(labels: AnyArray, classes: AnyArray) -> None:
    """An error if an engine's labels cannot be those of a fit: codes of another one, say."""
    kinds = [
        "text" if own.dtype.kind == "U" else "integers" if own.dtype.kind in "iu" else "others"
        for own in (labels, classes)
    ]
    if kinds[0] != kinds[1]:
        raise GalleryMismatchError(
            f"The engine's labels must be of the kind that was fitted, {classes.dtype}. "
            f"Got {labels.dtype} instead."
        )
