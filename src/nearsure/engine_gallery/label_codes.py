"""The labels that an engine holds, and the class codes that stand for them."""

from threading import Lock

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.labels import codes_of

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
        if table is None:
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
