"""Notes beside the points, and the record of changes."""

import sqlite3
from collections.abc import Iterator, MutableMapping
from typing import Any

from nearsure.arrays import AnyArray
from nearsure.engines.sqlite.file import DatabaseFile
from nearsure.engines.sqlite.schema import Layout, changes_table
from nearsure.errors import InvalidInputError


class Notes(MutableMapping[str, bytes]):
    """Bytes under names, on the disk when an assignment returns, whole or not at all.

    Parameters
    ----------
    file : DatabaseFile
        Where they are.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def __getitem__(self, name: str) -> bytes:
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT content FROM notes WHERE name = ?", (_checked(name),)
            ).fetchone()
        if found is None:
            raise KeyError(name)
        return bytes(found[0])

    def __setitem__(self, name: str, content: bytes) -> None:
        self.update({name: content})

    def update(self, *given: Any, **named: bytes) -> None:  # noqa: ANN401
        """Write several notes, all or none; given as for a dict."""
        notes: dict[str, bytes] = dict(*given, **named)
        for name, content in notes.items():
            _checked(name)
            if not isinstance(content, bytes):
                raise InvalidInputError(
                    f"The content of a note must be bytes. Got {type(content).__name__} instead."
                )
        with self._file.writing() as connection:
            connection.executemany("REPLACE INTO notes VALUES (?, ?)", notes.items())

    def __delitem__(self, name: str) -> None:
        with self._file.writing() as connection:
            gone = connection.execute("DELETE FROM notes WHERE name = ?", (_checked(name),))
            if not gone.rowcount:
                raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        with self._file.reading() as connection:
            found = connection.execute("SELECT name FROM notes ORDER BY name").fetchall()
        return iter([name for (name,) in found])

    def __len__(self) -> int:
        with self._file.reading() as connection:
            return int(connection.execute("SELECT COUNT(*) FROM notes").fetchone()[0])


def _checked(name: str) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(
            f"The name of a note must be text. Got {type(name).__name__} instead."
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            "The name of a note must be valid Unicode. Got a lone surrogate."
        ) from None
    return name


class Changes:
    """Ids of points that were added, removed or relabelled, written down with the change itself.

    Nothing is written down before `watch` is called: filling a gallery does not cost a list of all
    its ids.

    Parameters
    ----------
    file : DatabaseFile
        Where they are.
    layout : Layout
        What ids are.
    """

    def __init__(self, file: DatabaseFile, layout: Layout) -> None:
        self._file, self._layout = file, layout
        with file.reading() as connection:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'changes'")
            self._is_watched = found.fetchone() is not None

    def watch(self) -> None:
        """Write changes down from now on, also when the gallery is opened another time."""
        if self._is_watched:
            return
        with self._file.writing() as writer:
            writer.execute(changes_table(self._layout))
        self._is_watched = True

    def record(self, writer: sqlite3.Connection, ids: AnyArray) -> None:
        """Write down that points are changed, within the transaction that changes them."""
        if self._is_watched:
            writer.executemany(
                "REPLACE INTO changes (id) VALUES (?)", zip(ids.tolist(), strict=True)
            )

    def last(self) -> int:
        """The number of the last change; 0 before the first."""
        with self._file.reading() as connection:
            found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'")
            row = found.fetchone()
        return 0 if row is None else int(row[0])

    def since(self, number: int) -> AnyArray:
        """Ids that were changed after the change of a number, each once, shape (n,)."""
        ids: list[str | int] = []
        if self._is_watched:
            with self._file.reading() as connection:
                found = connection.execute(
                    "SELECT id FROM changes WHERE number > ? ORDER BY number", (number,)
                )
                ids = [own for (own,) in found]
        return self._layout.array(ids, self._layout.ids)

    def forget(self, number: int) -> None:
        """Forget changes up to that of a number, which are not needed any more."""
        if self._is_watched:
            with self._file.writing() as writer:
                writer.execute("DELETE FROM changes WHERE number <= ?", (number,))
