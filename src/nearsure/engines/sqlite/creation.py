"""A new gallery: there whole, or not at all."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from nearsure.engines.sqlite.connection import shown_as
from nearsure.engines.sqlite.failures import told_clearly
from nearsure.engines.sqlite.file_lock import FileLock, beside
from nearsure.engines.sqlite.index_cache import CACHE_SUFFIX
from nearsure.engines.sqlite.schema import Layout, create_tables
from nearsure.errors import EngineAccessError, GalleryMismatchError, NearsureError

# What a gallery that was deleted may have left: SQLite would take its log for one of the new file.
LEFTOVERS = ("-wal", "-shm", "-journal", CACHE_SUFFIX)


def create_gallery(path: Path, layout: Layout) -> None:
    """Make an empty gallery.

    It is made under another name and renamed, so that no moment leaves half a gallery.
    """
    shown = shown_as(path)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with closing(FileLock(path, shown)):
        _check_free(path, shown)
        try:
            with (
                told_clearly(shown),
                closing(sqlite3.connect(temporary, isolation_level=None)) as connection,
            ):
                connection.execute("BEGIN")
                create_tables(connection, layout)
                connection.execute("COMMIT")
            for suffix in LEFTOVERS:
                beside(path, suffix).unlink(missing_ok=True)
            temporary.replace(path)
            _sync_folder(path.parent)
        except NearsureError:
            raise
        except OSError as error:
            raise EngineAccessError(f"{shown} cannot be made: {error.strerror}.") from error
        finally:
            temporary.unlink(missing_ok=True)


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
