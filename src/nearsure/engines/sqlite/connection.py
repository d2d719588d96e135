"""The open file: one connection that writes, and as many as are needed to read."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from urllib.parse import quote

from nearsure.engines.secrets import redacted
from nearsure.engines.sqlite.failures import closed, read_clearly, told_clearly
from nearsure.engines.sqlite.file_check import check_tables
from nearsure.engines.sqlite.file_lock import (
    FileLock,
    Identity,
    beside,
    check_only_name,
    identity_of,
)
from nearsure.engines.sqlite.schema import check_is_gallery
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryNotFoundError,
)
from nearsure.whole_files import remove_dead_drafts

log = logging.getLogger("nearsure.engines")


class GalleryFile:
    """A gallery's file, owned by this process until it is closed.

    Parameters
    ----------
    path : Path
        Absolute, without symbolic links.
    timeout : float
        Seconds to wait for programs that lock the file.

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

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.shown = shown_as(path)
        self.n_commits = 0
        self.is_lost = False
        self._timeout = timeout
        self._process = os.getpid()
        self._writing = Lock()
        self._idle_lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        if not path.is_file():
            raise GalleryNotFoundError(
                f"There is no file {self.shown}. SqliteEngine.create(path, dimension) makes one."
            )
        self._lock = FileLock(path, self.shown)
        try:
            self._check_rights()
            check_only_name(path, self.shown)
            remove_dead_drafts(path.parent)
            self._opened: dict[Path, Identity | None] = {
                self._lock.path: self._lock.identity,
                path: identity_of(path),
            }
            with told_clearly(self.shown):
                self._writer = self._writing_connection()
            for suffix in ("-wal", "-shm"):
                self._opened[beside(path, suffix)] = identity_of(beside(path, suffix))
        except BaseException:
            self._lock.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the file from the first statement to the last."""
        connection = self._borrowed()
        try:
            with told_clearly(self.shown), read_clearly(self.shown):
                connection.execute("BEGIN")
                yield connection
        finally:
            self._give_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end, on the disk then, and undone after an exception."""
        with self._writing:
            self._check_open()
            self.check_in_place()
            writer = self._writer
            with told_clearly(self.shown):
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
                    # Once more: what went to a file that nobody will open is not acknowledged.
                    self.check_in_place()
                finally:
                    if writer.in_transaction:
                        writer.execute("ROLLBACK")

    def check_in_place(self) -> None:
        """An error unless the file, SQLite's files beside it and the lock are those of the start.

        Whoever opens the gallery next finds them by name: what is written to others is lost.
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
            try:
                with self._idle_lock:
                    for connection in self._idle:
                        connection.close()
                    self._idle.clear()
                # The last connection folds the write-ahead log into the file.
                self._writer.close()
            finally:
                self._lock.close()

    def _check_rights(self) -> None:
        # SQLite opens a write-protected file without a word, and fails at the first change.
        if not os.access(self.path, os.R_OK | os.W_OK):
            raise EngineAccessError(
                f"{self.shown} may not be read and written by this user. Change its rights."
            )

    def _lost(self) -> EngineUnavailableError:
        return EngineUnavailableError(
            f"{self._lost_parts} was removed or replaced while {self.shown} was open, so that "
            "changes would be lost, and none is made any more. Put the right file in place, "
            "nearsure restore does so, and open it anew."
        )

    def _check_mode(self, mode: str) -> None:
        if mode != "wal":
            raise EngineAccessError(
                f"{self.shown} lies where SQLite can keep no write-ahead log. Put it on a local "
                "disk."
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed(self.shown)
        if self._process != os.getpid():
            raise EngineError(
                f"{self.shown} was opened before this process was forked. Open galleries after it."
            )

    def _writing_connection(self) -> sqlite3.Connection:
        connection = self._connected()
        try:
            # Before anything else: a database of somebody else's is not to be changed.
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

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode=rw",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        # What a file declares may use only functions that do no harm.
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _borrowed(self) -> sqlite3.Connection:
        with self._idle_lock:
            self._check_open()
            self.check_in_place()
            if self._idle:
                return self._idle.pop()
        with told_clearly(self.shown):
            connection = self._connected()
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


def shown_as(path: Path) -> str:
    """A path for messages, without what may be a password."""
    # Part by part: in the middle of a path, the name before a password would not be seen as one.
    return str(Path(*map(redacted, path.parts)))
