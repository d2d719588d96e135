"""The index in memory, changed after each commit, and its cache beside the file."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError

from nearsure.engines.embedded import FaissEngine
from nearsure.engines.embedded.base import Change
from nearsure.engines.sqlite.file import DatabaseFile, beside
from nearsure.errors import NearsureError
from nearsure.model_file import read_model, write_model


class CommittedIndex(FaissEngine):
    """A `FaissEngine` over the rows of a file.

    What it would refuse it refuses before the file is changed, as a change is prepared first; and
    what the file refuses does not come here, as a change is made last.

    Examples
    --------
    >>> import numpy as np
    >>> index = CommittedIndex(dimension=2)
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
                self._storage = change()


# An approximate index in a file beside the gallery, so that opening need not build it anew.
#
# A row of the gallery has one vector for good, so a cache from earlier is brought up to date by the
# rows that have come and gone. That it is from earlier, and not from another copy of the gallery,
# is seen from its checksum, which the gallery holds: nothing of another file is given to faiss.


CACHE_SUFFIX = ".index"
CHECKSUM = "index_cache"
log = logging.getLogger("nearsure.engines")


class IndexCache:
    """The file beside a gallery that keeps its index; whatever is wrong with it is no error.

    Parameters
    ----------
    file : DatabaseFile
        The gallery.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._path = beside(file.path, CACHE_SUFFIX)

    def read(self, like: CommittedIndex) -> CommittedIndex | None:
        """The index of the cache, if it is of this gallery and made as `like` is."""
        if like.index_type == "exact" or not self._path.is_file():
            return None
        try:
            if self._checksum() != self._expected():
                return None
            manifest, arrays = read_model(self._path)
            index = CommittedIndex.from_state(manifest["state"], arrays)
            return index if _make(index) == _make(like) else None
        except (NearsureError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("The index beside %s is not used: %s", self._file.shown, error)
            return None

    def write(self, index: CommittedIndex) -> None:
        """Keep an index that fits what the gallery holds now."""
        if index.index_type == "exact" or not index.size():
            return
        try:
            self._file.check_in_place()
            state, arrays = index.to_state()
            write_model(self._path, {"state": state}, arrays)
            checksum = self._checksum()
            # Last: a gallery with no checksum, or another one, builds its index anew.
            with self._file.writing() as connection:
                connection.execute("REPLACE INTO settings VALUES (?, ?)", (CHECKSUM, checksum))
        except (NearsureError, OSError, SafetensorError, MemoryError) as error:
            log.warning("The index of %s could not be kept: %s", self._file.shown, error)

    def _checksum(self) -> str:
        with self._path.open("rb") as cache:
            return hashlib.file_digest(cache, "sha256").hexdigest()

    def _expected(self) -> str | None:
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT value FROM settings WHERE name = ?", (CHECKSUM,)
            ).fetchone()
        return None if found is None else found[0]


def _make(index: CommittedIndex) -> tuple[Any, ...]:
    return (index.index_type, index.dimension, index.metric, index.settings)
