"""The index in memory, whose changes are committed elsewhere before they are made."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nearsure.engines.embedded import FaissEngine
from nearsure.engines.embedded.shelf import Change


class GalleryIndex(FaissEngine):
    """A `FaissEngine` over the rows of a file.

    What it would refuse it refuses before the file is changed, as a change is prepared first; and
    what the file refuses does not come here, as a change is made last.

    Examples
    --------
    >>> import numpy as np
    >>> index = GalleryIndex(dimension=2)
    >>> with index.committing(lambda: print(index.size(), "point")):
    ...     index.add(np.zeros((1, 2)), ids=np.array([7]), labels=np.array([0]))
    0 point
    >>> index.size()
    1
    """

    _commit: Callable[[], None] | None = None

    @contextmanager
    def committing(self, commit: Callable[[], None]) -> Iterator[None]:
        """Let the change inside be committed by this call; one writer at a time."""
        self._commit = commit
        try:
            yield
        finally:
            self._commit = None

    def _make(self, prepare: Callable[[], Change]) -> None:
        with self._lock.changing:
            change = prepare()
            if self._commit is not None:
                self._commit()
            with self._lock.alone():
                self._shelf = change()
