"""A new gallery, or a copy of one: there whole, or not at all."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from nearsure.engines.sqlite.connection import shown_as
from nearsure.engines.sqlite.failures import read_clearly, told_clearly
from nearsure.engines.sqlite.file_check import check_contents, check_tables
from nearsure.engines.sqlite.file_lock import FileLock, beside, check_only_name
from nearsure.engines.sqlite.index_cache import CACHE_SUFFIX
from nearsure.engines.sqlite.schema import Layout, check_is_gallery, create_tables, read_layout
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    GalleryMismatchError,
    GalleryNotFoundError,
    NearsureError,
)
from nearsure.whole_files import Draft

# What a gallery that was deleted may have left: SQLite would take its log for one of the new file.
LEFTOVERS = ("-wal", "-shm", "-journal", CACHE_SUFFIX)
# Copied at a time; after each, it is said how far the copy is.
PAGES = 4096


def create_gallery(path: Path, layout: Layout) -> None:
    """Make an empty gallery.

    It is made under another name and renamed, so that no moment leaves half a gallery.
    """
    shown = shown_as(path)
    with closing(FileLock(path, shown)):
        _check_free(path, shown)
        try:
            draft = Draft.of(path)
            try:
                with (
                    told_clearly(shown),
                    closing(sqlite3.connect(draft.path, isolation_level=None)) as connection,
                ):
                    connection.execute("BEGIN")
                    create_tables(connection, layout)
                    connection.execute("COMMIT")
                put_in_place(draft.path, path)
            finally:
                draft.drop()
        except NearsureError:
            raise
        except OSError as error:
            raise EngineAccessError(f"{shown} cannot be made: {error.strerror}.") from error


def put_in_place(made: Path, path: Path) -> None:
    """Give a closed gallery the name of another, whose lock is held, and of which nothing stays."""
    if path.exists():
        # Its log goes into it first: should this process end here, it is as it was.
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in LEFTOVERS:
        beside(path, suffix).unlink(missing_ok=True)
    made.replace(path)
    _sync_folder(path.parent)


def copy_gallery(source: Path, copy: Path, advance: Callable[[int], None]) -> None:
    """Copy a gallery as it is at this moment, also while a service changes it, and check the copy.

    Parameters
    ----------
    source : Path
        The gallery; what its log holds is copied, too.
    copy : Path
        A new file, closed and without a log at the end.
    advance : callable
        Is told of bytes that were copied.

    Raises
    ------
    GalleryNotFoundError
        If there is no file.
    GalleryMismatchError
        If it is no gallery, or holds what no gallery does.
    EngineError
        If it is damaged, or cannot be read or written.
    """
    shown = shown_as(source)
    if not source.is_file():
        raise GalleryNotFoundError(f"There is no file {shown}.")
    check_only_name(source, shown)
    # Whoever may write it leaves no log behind when it was not open; whoever may not can read it.
    mode = "rw" if os.access(source, os.W_OK) else "ro"
    address = f"file:{quote(os.fsencode(source))}?mode={mode}"
    # Nobody may read what they may not read there.
    copy.touch(mode=0o600)
    of_copy = f"The copy of {shown}"
    with (
        told_clearly(shown),
        closing(sqlite3.connect(address, uri=True, isolation_level=None)) as own,
        closing(sqlite3.connect(copy, isolation_level=None)) as copied,
    ):
        own.execute("PRAGMA trusted_schema = OFF")
        check_is_gallery(own, shown)
        page_size = own.execute("PRAGMA page_size").fetchone()[0]
        n_left = own.execute("PRAGMA page_count").fetchone()[0]

        def progress(_: int, remaining: int, __: int) -> None:
            nonlocal n_left
            advance((n_left - remaining) * page_size)
            n_left = remaining

        # One state from the first page to the last, whatever is written meanwhile.
        own.execute("BEGIN")
        own.execute("SELECT COUNT(*) FROM settings").fetchone()
        with told_clearly(of_copy):
            own.backup(copied, pages=PAGES, progress=progress)
            copied.execute("PRAGMA journal_mode = DELETE")
            copied.execute("PRAGMA trusted_schema = OFF")
            _check_whole(copied, shown)
    shutil.copymode(source, copy)


def _check_whole(connection: sqlite3.Connection, shown: str) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise EngineError(f"{shown} is damaged: {' '.join(found.split())}. Take an earlier backup.")
    check_tables(connection, shown)
    with read_clearly(shown):
        check_contents(connection, read_layout(connection, shown), shown)


def _check_free(path: Path, shown: str) -> None:
    if path.exists():
        raise GalleryMismatchError(
            f"{shown} is there already. Open it with SqliteEngine(path), or choose another name."
        )


def _sync_folder(folder: Path) -> None:
    """Let the new name outlast a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
