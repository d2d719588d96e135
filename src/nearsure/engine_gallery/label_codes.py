"""The labels that an engine holds, and the class codes that stand for them."""

from threading import Lock

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.labels import codes_of

# Integer labels within this many times their number are looked up in a table, not searched.
SPREAD = 4


class LabelCodes:
    """From labels to codes; a label that was never seen gets the next code.

    Others may write to an engine. What they add has labels that no fit has seen, and is found all
    the same.

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

    def extend(self, classes: AnyArray) -> AnyArray:
        """Take further classes in, and give back all: a code that was handed out stays."""
        with self._lock:
            new = classes[codes_of(classes, self.classes) == len(self.classes)]
            if len(new):
                self._name(np.concatenate([self.classes, new]))
            return self.classes

    def _name(self, classes: AnyArray) -> None:
        table, first = _table(classes)
        # One assignment, so that a reader in another thread has all of it or nothing.
        self._state = (classes, table, first)

    @property
    def classes(self) -> AnyArray:
        """The labels, in the order of their codes."""
        return self._state[0]

    def of(self, labels: AnyArray) -> IntArray:
        """Codes of labels, in their shape."""
        codes, n_known = self._known(labels)
        if not (codes == n_known).any():
            return codes
        with self._lock:
            codes, n_known = self._known(labels)
            new = np.unique(labels[codes == n_known])
            if new.size:
                self._name(np.concatenate([self.classes, new]))
        return self._known(labels)[0]

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
