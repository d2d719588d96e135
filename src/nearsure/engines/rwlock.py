"""A lock for many readers or one writer."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock


class ReadersAndWriter:
    """A lock that is shared by readers and owned by a writer.

    A writer holds `changing` from the first look to the end, so that there is one at a time, and
    enters `alone` only to put its work in place. Readers wait from when it asks to be alone.

    Examples
    --------
    >>> lock = ReadersAndWriter()
    >>> with lock.reading(), lock.reading():
    ...     pass
    >>> with lock.changing, lock.alone():
    ...     pass
    """

    def __init__(self) -> None:
        self.changing = Lock()
        self._turn = Condition()
        self._n_readers = 0
        self._is_claimed = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read among others, while nothing changes."""
        with self._turn:
            self._turn.wait_for(lambda: not self._is_claimed)
            self._n_readers += 1
        try:
            yield
        finally:
            with self._turn:
                self._n_readers -= 1
                self._turn.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Change something, while nobody reads; only within `changing`."""
        try:
            with self._turn:
                self._is_claimed = True
                self._turn.wait_for(lambda: not self._n_readers)
            yield
        finally:
            with self._turn:
                self._is_claimed = False
                self._turn.notify_all()
