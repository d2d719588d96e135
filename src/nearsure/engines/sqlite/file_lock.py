"""One process owns a gallery at a time; the system takes the lock back when the process ends."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from nearsure.errors import (
    EngineAccessError,
    EngineUnavailableError,
    GalleryNotFoundError,
    MissingExtraError,
)

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

# Device and inode.
Identity: TypeAlias = tuple[int, int]


class FileLock:
    """A lock on ``path + ".lock"``, held until it is closed, or until the process is gone.

    It has a file of its own: SQLite would lose its own locks on the gallery if that were opened and
    closed beside it. The file stays, unless it is removed by whoever holds it.

    Parameters
    ----------
    path : Path
        The gallery.
    shown : str
        What it is called in messages.

    Attributes
    ----------
    path : Path
        Of the lock.
    """

    def __init__(self, path: Path, shown: str) -> None:
        if not HAS_LOCKS:
            raise MissingExtraError(
                f"{shown} cannot be opened: a gallery in a file needs locks that this system "
                "(Windows) lacks. Use WSL or a container, or keep the gallery in PostgreSQL."
            )
        if not path.parent.is_dir():
            raise GalleryNotFoundError(f"There is no folder to keep {shown} in. Make it first.")
        self.path = beside(path, ".lock")
        self._take(shown)
        while identity_of(self.path) != self.identity:
            # It was deleted meanwhile: others would lock another file of this name.
            self.close()
            self._take(shown)

    def _take(self, shown: str) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise EngineAccessError(
                f"{shown} cannot be opened: {error.strerror}. This user must be able to write in "
                "its folder."
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise EngineUnavailableError(
                f"{shown} is open already, here or in another process, and only one may have it. "
                "Close it there, or ask the service that owns it."
            ) from error

    @property
    def identity(self) -> Identity:
        """Of the file that is locked, wherever it is now."""
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Let others have the gallery. Closing twice is no error."""
        # Closed, not unlocked: a forked child that closes must not free what its parent holds.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def remove(self) -> None:
        """Close it and leave no file; whoever is about to take it finds out, and makes another."""
        with suppress(OSError):
            self.path.unlink()
        self.close()


def beside(path: Path, suffix: str) -> Path:
    """The file whose name is longer by a suffix."""
    return path.with_name(path.name + suffix)


def check_only_name(path: Path, shown: str) -> None:
    """An error if a gallery has hard links: each name would have its own log and its own lock."""
    n_names = path.stat().st_nlink
    if n_names > 1:
        raise EngineAccessError(
            f"{shown} has {n_names} names, of which each would have its own log, and writes would "
            "be lost. Remove the other hard link, or replace it by a copy."
        )


def identity_of(path: Path) -> Identity | None:
    """Which file has a name; None if none has."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
