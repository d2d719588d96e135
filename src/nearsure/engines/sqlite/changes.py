"""Which points were changed lately, in the file and so for whoever opens it next."""

import sqlite3

from nearsure.arrays import AnyArray
from nearsure.engines.sqlite.connection import GalleryFile
from nearsure.engines.sqlite.schema import Layout, changes_table


class Changes:
    """Ids of points that were added, removed or relabelled, written down with the change itself.

    Nothing is written down before somebody asks for it with `watch`: whoever fills a gallery does
    not pay for a list of all its ids.

    Parameters
    ----------
    file : GalleryFile
        Where they are.
    layout : Layout
        What ids are.
    """

    def __init__(self, file: GalleryFile, layout: Layout) -> None:
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
        """Forget changes up to that of a number, which nobody asks for any more."""
        if self._is_watched:
            with self._file.writing() as writer:
                writer.execute("DELETE FROM changes WHERE number <= ?", (number,))
