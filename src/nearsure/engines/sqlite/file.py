"""The file of a gallery: connections, lock, and errors translated."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Literal, TypeAlias
from urllib.parse import quote

from nearsure.atomic import remove_dead_drafts
from nearsure.engines.registry import redacted
from nearsure.engines.sqlite.schema import RESTORE, check_is_gallery, check_tables
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    MissingExtraError,
    NearsureError,
)

NOTHING_CHANGED = "Nothing was changed."
# SQLite's codes, which the module of Python 3.10 lacks, and gives with no error: there, what SQLite
# says of each, always in English, stands in their place.
PERM, BUSY, LOCKED, NOMEM, READONLY, IOERR = 3, 5, 6, 7, 8, 10
CORRUPT, FULL, CANTOPEN, TOOBIG, CONSTRAINT, NOTADB = 11, 13, 14, 18, 19, 26
_SAID = {
    "access permission denied": PERM,
    "database is locked": BUSY,
    "database table is locked": LOCKED,
    "attempt to write a readonly database": READONLY,
    "disk I/O error": IOERR,
    "database disk image is malformed": CORRUPT,
    "database or disk is full": FULL,
    "unable to open database file": CANTOPEN,
    "string or blob too big": TOOBIG,
    "file is not a database": NOTADB,
}
# The lowest byte of a code names the kind of an error, the others its variety.
KIND = 0xFF
_BY_KIND: dict[int, tuple[type[NearsureError], str]] = {
    NOTADB: (
        GalleryMismatchError,
        "is not an SQLite database, so it cannot be a gallery. Check the path.",
    ),
    CORRUPT: (
        EngineError,
        (
            "is damaged; beside a copy that was put in place by hand, the old -wal does that. "
            f"{RESTORE}. `sqlite3 FILE .recover` may save what is left."
        ),
    ),
    FULL: (
        EngineError,
        f"cannot grow, as the disk is full. {NOTHING_CHANGED} Make room, and repeat it.",
    ),
    READONLY: (
        EngineAccessError,
        f"may only be read. {NOTHING_CHANGED} Give this user the right to write it.",
    ),
    CANTOPEN: (
        EngineAccessError,
        "cannot be opened. This user must be able to read and write the file and its folder.",
    ),
    PERM: (EngineAccessError, "refuses access. Check the rights of this user."),
    BUSY: (
        EngineUnavailableError,
        f"is locked by another program. {NOTHING_CHANGED} End it there, and try again.",
    ),
    LOCKED: (EngineUnavailableError, f"is locked. {NOTHING_CHANGED} Try again."),
    IOERR: (
        EngineUnavailableError,
        "cannot be read or written: the disk, or the network that it is on, failed. Try again.",
    ),
    NOMEM: (EngineError, f"needs more memory than there is. {NOTHING_CHANGED}"),
    TOOBIG: (
        InvalidInputError,
        f"takes nothing as large as that. {NOTHING_CHANGED}",
    ),
    CONSTRAINT: (
        GalleryMismatchError,
        f"does not hold what was expected of it. {NOTHING_CHANGED}",
    ),
}


def closed_error(shown: str) -> EngineUnavailableError:
    """The error of whatever is asked of a gallery after its end."""
    return EngineUnavailableError(f"{shown} is closed. Open it again: SqliteEngine(path).")


def engine_error(error: sqlite3.Error, shown: str) -> NearsureError:
    """The same as an error of nearsure about a file, with a remedy."""
    code = getattr(error, "sqlite_errorcode", _SAID.get(str(error)))
    if code is None and isinstance(error, sqlite3.IntegrityError):
        code = CONSTRAINT
    if code is None:
        # Only the module itself gives no code: a connection was closed by another thread.
        is_closed = isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error)
        return closed_error(shown) if is_closed else EngineError(f"{shown}: {error}.")
    kind, sentence = _BY_KIND.get(code & KIND, (EngineError, f"could not be used: {error}."))
    return kind(f"{shown} {sentence}")


@contextmanager
def translate_errors(shown: str, *, reading: bool = False) -> Iterator[None]:
    """What is asked of SQLite inside fails with errors of nearsure; odd values, if it is read."""
    try:
        yield
    except NearsureError:
        raise
    except sqlite3.Error as error:
        raise engine_error(error, shown) from error
    except (TypeError, ValueError, OverflowError) as error:
        if not reading:
            raise
        raise GalleryMismatchError(
            f"{shown} holds what no gallery does: {error}. {RESTORE}"
        ) from error


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
    closed beside it. The file stays, unless its holder removes it.

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
    descriptor : int
        Of the file that is locked, wherever it is now.
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
        while identity_of(self.path) != identity_of(self.descriptor):
            # It was deleted meanwhile: others would lock another file of this name.
            self.close()
            self._take(shown)

    def _take(self, shown: str) -> None:
        try:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise EngineAccessError(
                f"{shown} cannot be opened: {error.strerror}. This user must be able to write in "
                "its folder."
            ) from error
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise EngineUnavailableError(
                f"{shown} has a writer already, here or in another process, and may have one only: "
                "close it there, or let the service that owns it make the change. predict, audit "
                "and report only read, and may run beside it."
            ) from error

    def close(self) -> None:
        """Let others have the gallery. Closing twice is no error."""
        # Closed, not unlocked: a forked child that closes must not free what its parent holds.
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def remove(self) -> None:
        """Close it and leave no file; a process that is about to take it makes another."""
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


def identity_of(path: Path | int) -> Identity | None:
    """Which file has a name or is open; None if none has."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of a descriptor, too
    except OSError:
        return None
    return found.st_dev, found.st_ino


log = logging.getLogger("nearsure.engines")


class DatabaseFile:
    """A gallery's file, which no other process writes until it is closed; or one state of it.

    A reader takes no lock: it sees the file as it is when it is opened, in one transaction, until
    it is closed. It never removes SQLite's log, which may be that of another file of this name.

    Parameters
    ----------
    path : Path
        Absolute, without symbolic links.
    timeout : float
        Seconds to wait for programs that lock the file.
    read_only : bool
        Whether this is a reader.

    Attributes
    ----------
    shown : str
        What it is called in messages.
    n_commits : int
        How many changes are committed, or may be.
    is_lost : bool
        Whether it was found to be removed or replaced, for good: whatever has its name now, others
        may have written it.
    """

    def __init__(self, path: Path, timeout: float, *, read_only: bool = False) -> None:
        self.path = path
        self.shown = shown_as(path)
        self.read_only = read_only
        self.n_commits = 0
        self.is_lost = False
        self._timeout = timeout
        self._process = os.getpid()
        self._writing = Lock()
        self._idle_lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        self._opened: dict[Path, Identity | None] = {}
        # One connection, whose transaction is the state that is read.
        self._state: sqlite3.Connection | None = None
        self._reading_state = RLock()
        if not path.is_file():
            raise GalleryNotFoundError(
                f"There is no file {self.shown}. SqliteEngine.create(path, dimension) makes one."
            )
        # SQLite opens a write-protected file without a word, and fails at the first change.
        if not os.access(path, os.R_OK if read_only else os.R_OK | os.W_OK):
            needed = "read" if read_only else "read and written"
            raise EngineAccessError(
                f"{self.shown} may not be {needed} by this user. Change its rights."
            )
        if read_only:
            check_only_name(path, self.shown)
            with translate_errors(self.shown):
                self._state = self._state_connection()
            return
        self._lock = FileLock(path, self.shown)
        try:
            check_only_name(path, self.shown)
            remove_dead_drafts(path.parent)
            self._opened = {
                self._lock.path: identity_of(self._lock.descriptor),
                path: identity_of(path),
            }
            with translate_errors(self.shown):
                self._writer = self._writing_connection()
            for suffix in ("-wal", "-shm"):
                self._opened[beside(path, suffix)] = identity_of(beside(path, suffix))
        except BaseException:
            self._lock.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the file from the first statement to the last."""
        if self._state is not None:
            with self._reading_state, translate_errors(self.shown, reading=True):
                self._check_open()
                yield self._state
            return
        connection = self._borrow()
        try:
            with translate_errors(self.shown, reading=True):
                connection.execute("BEGIN")
                yield connection
        finally:
            self._give_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end, on the disk then, and undone after an exception."""
        if self.read_only:
            raise EngineAccessError(
                f"{self.shown} was opened to be read only. {NOTHING_CHANGED} Open it without "
                "read_only to change it."
            )
        with self._writing:
            self._check_open()
            self.check_in_place()
            writer = self._writer
            with translate_errors(self.shown):
                try:
                    writer.execute("BEGIN IMMEDIATE")
                    yield writer
                    self.check_in_place()
                    self.n_commits += 1
                    try:
                        writer.execute("COMMIT")
                    except sqlite3.Error:
                        self.n_commits -= 1
                        raise
                    # Once more: what went to a file that is not found by name is not acknowledged.
                    self.check_in_place()
                finally:
                    if writer.in_transaction:
                        writer.execute("ROLLBACK")

    def check_in_place(self) -> None:
        """An error unless the file, SQLite's files beside it and the lock are those of the start.

        The gallery is opened by name the next time: what is written to other files is lost.
        """
        if not self.is_lost:
            moved = [path for path, own in self._opened.items() if identity_of(path) != own]
            if not moved:
                return
            self._lost_parts = ", ".join(shown_as(path) for path in moved)
            self.is_lost = True
            log.error("%s", self._lost())
        raise self._lost()

    def close(self) -> None:
        """Close all connections and let others have the file. Closing twice is no error."""
        if self._process != os.getpid():
            # A forked child has none of this: its parent goes on with these connections.
            return
        with self._writing:
            if self._is_closed:
                return
            self._is_closed = True
            if self._state is not None:
                with self._reading_state:
                    self._state.close()
                return
            try:
                with self._idle_lock:
                    for connection in self._idle:
                        connection.close()
                    self._idle.clear()
                # The last connection folds the write-ahead log into the file.
                self._writer.close()
            finally:
                self._lock.close()

    def _lost(self) -> EngineUnavailableError:
        return EngineUnavailableError(
            f"{self._lost_parts} was removed or replaced while {self.shown} was open, so that "
            "changes would be lost, and none is made any more. Put the right file in place, "
            "nearsure restore does so, and open it again."
        )

    def _check_mode(self, mode: str) -> None:
        if mode != "wal":
            raise EngineAccessError(
                f"{self.shown} lies where SQLite can keep no write-ahead log. Put it on a local "
                "disk."
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_error(self.shown)
        if self._process != os.getpid():
            raise EngineError(
                f"{self.shown} was opened before this process was forked. Open galleries after it."
            )

    def _writing_connection(self) -> sqlite3.Connection:
        connection = connect(self.path, "rw", self._timeout)
        try:
            # Before anything else: a database of another program is not to be changed.
            check_is_gallery(connection, self.shown)
            check_tables(connection, self.shown)
            self._check_mode(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            for setting in ("synchronous = FULL", "fullfsync = ON", "foreign_keys = ON"):
                connection.execute(f"PRAGMA {setting}")
            # The log is made by what is read first.
            connection.execute("SELECT COUNT(*) FROM settings").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _state_connection(self) -> sqlite3.Connection:
        connection = connect(self.path, "ro", self._timeout)
        try:
            connection.execute("BEGIN")
            check_is_gallery(connection, self.shown)
            check_tables(connection, self.shown)
        except BaseException:
            connection.close()
            raise
        return connection

    def _borrow(self) -> sqlite3.Connection:
        with self._idle_lock:
            self._check_open()
            self.check_in_place()
            if self._idle:
                return self._idle.pop()
        with translate_errors(self.shown):
            connection = connect(self.path, "rw", self._timeout)
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        with self._idle_lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()


def connect(
    path: Path, mode: Literal["rw", "ro", "ro&immutable=1"], timeout: float = 5.0
) -> sqlite3.Connection:
    """Open a database that is there, for any thread; an immutable one makes no files beside it."""
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    # What a file declares may use only functions that do no harm.
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def shown_as(path: Path) -> str:
    """A path for messages, without what may be a password."""
    # Part by part: in the middle of a path, the name before a password would not be seen as one.
    return str(Path(*map(redacted, path.parts)))
