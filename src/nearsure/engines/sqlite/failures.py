"""From what SQLite calls an error to what nearsure does."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
    NearsureError,
)

NOTHING_CHANGED = "Nothing was changed."
# The lowest byte of a code names the kind of an error, the others its variety.
KIND = 0xFF
_BY_KIND: dict[int, tuple[type[NearsureError], str]] = {
    sqlite3.SQLITE_NOTADB: (
        GalleryMismatchError,
        "is not an SQLite database, so it cannot be a gallery. Check the path.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        EngineError,
        (
            "is damaged; beside a copy that was put in place by hand, the old -wal does that. "
            "Restore it from a backup: nearsure restore BACKUP FILE. `sqlite3 FILE .recover` may "
            "save what is left."
        ),
    ),
    sqlite3.SQLITE_FULL: (
        EngineError,
        f"cannot grow, as the disk is full. {NOTHING_CHANGED} Make room, and repeat it.",
    ),
    sqlite3.SQLITE_READONLY: (
        EngineAccessError,
        f"may only be read. {NOTHING_CHANGED} Give this user the right to write it.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        EngineAccessError,
        "cannot be opened. This user must be able to read and write the file and its folder.",
    ),
    sqlite3.SQLITE_PERM: (EngineAccessError, "refuses access. Check the rights of this user."),
    sqlite3.SQLITE_BUSY: (
        EngineUnavailableError,
        f"is locked by another program. {NOTHING_CHANGED} End it there, and ask again.",
    ),
    sqlite3.SQLITE_LOCKED: (
        EngineUnavailableError,
        f"is locked. {NOTHING_CHANGED} Ask again.",
    ),
    sqlite3.SQLITE_IOERR: (
        EngineUnavailableError,
        "cannot be read or written: the disk, or the network that it is on, failed. Ask again.",
    ),
    sqlite3.SQLITE_NOMEM: (EngineError, f"needs more memory than there is. {NOTHING_CHANGED}"),
    sqlite3.SQLITE_TOOBIG: (
        InvalidInputError,
        f"takes nothing as large as that. {NOTHING_CHANGED}",
    ),
    sqlite3.SQLITE_CONSTRAINT: (
        GalleryMismatchError,
        f"does not hold what was expected of it. {NOTHING_CHANGED}",
    ),
}


def closed(shown: str) -> EngineUnavailableError:
    """The error of whatever is asked of a gallery after its end."""
    return EngineUnavailableError(f"{shown} is closed. Open it again: SqliteEngine(path).")


def engine_error(error: sqlite3.Error, shown: str) -> NearsureError:
    """The error of nearsure that says the same of a file, with a remedy."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Only the module itself gives no code: a connection was closed by another thread.
        is_closed = isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error)
        return closed(shown) if is_closed else EngineError(f"{shown}: {error}.")
    kind, sentence = _BY_KIND.get(code & KIND, (EngineError, f"could not be used: {error}."))
    return kind(f"{shown} {sentence}")


@contextmanager
def told_clearly(shown: str) -> Iterator[None]:
    """What is asked of SQLite inside fails with errors of nearsure."""
    try:
        yield
    except sqlite3.Error as error:
        raise engine_error(error, shown) from error


@contextmanager
def read_clearly(shown: str) -> Iterator[None]:
    """What is read inside fails with an error of nearsure if it is not what a gallery holds."""
    try:
        yield
    except NearsureError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise GalleryMismatchError(
            f"{shown} holds what no gallery does: {error}. Restore it from a backup: nearsure "
            "restore BACKUP FILE"
        ) from error
