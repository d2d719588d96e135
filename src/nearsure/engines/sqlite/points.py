"""Points, pictures, texts, notes and recorded changes in SQL."""

import sqlite3
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.checks import check_all_there, check_none_there
from nearsure.engines.contract import Stored
from nearsure.engines.sqlite.file import DatabaseFile
from nearsure.engines.sqlite.schema import Layout, changes_table, texts_table
from nearsure.errors import InvalidInputError

# SQLite binds 999 values to a statement in its oldest builds.
PORTION = 900
READ_AT_ONCE = 8192


class PointRows:
    """Statements about points; each takes the connection whose transaction it belongs to.

    Parameters
    ----------
    layout : Layout
        What ids, labels and vectors are.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def next_row(self, connection: sqlite3.Connection) -> int:
        """The number that no row has ever had."""
        last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'points'")
        found = last.fetchone()
        return 0 if found is None else int(found[0]) + 1

    def insert(self, connection: sqlite3.Connection, rows: IntArray, points: Stored) -> None:
        """Add points."""
        ids, labels = points.ids.tolist(), np.asarray(points.labels).tolist()
        blobs = (vector.tobytes() for vector in np.asarray(points.vectors))
        connection.executemany(
            "INSERT INTO points (row, id, label, vector) VALUES (?, ?, ?, ?)",
            zip(rows.tolist(), ids, labels, blobs, strict=True),
        )

    def delete(self, connection: sqlite3.Connection, rows: IntArray) -> None:
        """Remove points, and their pictures."""
        connection.executemany("DELETE FROM points WHERE row = ?", zip(rows.tolist(), strict=True))

    def relabel(self, connection: sqlite3.Connection, rows: IntArray, labels: AnyArray) -> None:
        """Give points other labels."""
        connection.executemany(
            "UPDATE points SET label = ? WHERE row = ?",
            zip(labels.tolist(), rows.tolist(), strict=True),
        )

    def check_new(self, connection: sqlite3.Connection, ids: AnyArray) -> None:
        """An error that names a few ids if points have them already."""
        check_none_there([own for (own,) in _select(connection, "id", ids.tolist())])

    def rows_of(self, connection: sqlite3.Connection, ids: AnyArray) -> IntArray:
        """The rows of points, in the order of `ids`; an error if any is not there."""
        row_of = dict(_select(connection, "id, row", ids.tolist()))
        check_all_there(ids, row_of)
        return np.array([row_of[own] for own in ids.tolist()], np.int64)

    def fetch(self, connection: sqlite3.Connection, ids: AnyArray) -> Stored:
        """Points in the order of `ids`, which may come twice; an error if any is not there."""
        distinct = list(dict.fromkeys(ids.tolist()))
        point_of = {point[0]: point for point in _select(connection, "id, label, vector", distinct)}
        check_all_there(ids, point_of)
        points = [point_of[own] for own in ids.tolist()]
        labels = self._layout.array([label for _, label, _ in points], self._layout.labels)
        return Stored(ids, labels, self._layout.vectors_of([vector for *_, vector in points]))

    def page(
        self,
        connection: sqlite3.Connection,
        after: str | int | None,
        limit: int,
        label: str | int | None,
    ) -> Stored:
        """The first points whose ids come after another, and which have a label."""
        wanted = {"id > :after": after, "label = :label": label}
        conditions = [text for text, value in wanted.items() if value is not None] or ["TRUE"]
        found = connection.execute(
            f"SELECT id, label FROM points WHERE {' AND '.join(conditions)} "  # noqa: S608
            "ORDER BY id LIMIT :limit",
            {"after": after, "label": label, "limit": limit},
        ).fetchall()
        ids, labels = ([point[column] for point in found] for column in (0, 1))
        layout = self._layout
        return Stored(layout.array(ids, layout.ids), layout.array(labels, layout.labels))

    def count(self, connection: sqlite3.Connection, label: str | int | None) -> int:
        """How many points have a label."""
        counted = connection.execute("SELECT COUNT(*) FROM points WHERE label = ?", (label,))
        return int(counted.fetchone()[0])

    def names(self, connection: sqlite3.Connection) -> Iterator[list[tuple[Any, ...]]]:
        """Row, id and label of all points in portions, by ascending row."""
        return _portions(connection.execute("SELECT row, id, label FROM points ORDER BY row"))

    def all_vectors(self, connection: sqlite3.Connection, n_points: int) -> AnyArray:
        """The vectors of all points, by ascending row."""
        layout = self._layout
        vectors = np.empty((n_points, layout.dimension), layout.dtype.newbyteorder("="))
        start = 0
        for portion in _portions(connection.execute("SELECT vector FROM points ORDER BY row")):
            some = layout.vectors_of([vector for (vector,) in portion])
            vectors[start : start + len(some)] = some
            start += len(some)
        return vectors

    def vectors_of_rows(self, connection: sqlite3.Connection, rows: IntArray) -> AnyArray:
        """The vectors of some rows, in ascending order."""
        vector_of = dict(_select(connection, "row, vector", rows.tolist()))
        return self._layout.vectors_of([vector_of[row] for row in rows.tolist()])

    def put_pictures(
        self, connection: sqlite3.Connection, rows: IntArray, pictures: list[bytes]
    ) -> None:
        """Keep the pictures of points, in the place of earlier ones."""
        for picture in pictures:
            if not isinstance(picture, bytes):
                raise InvalidInputError(
                    f"A picture must be the bytes of an image file. Got {type(picture).__name__} "
                    "instead."
                )
        connection.executemany(
            "REPLACE INTO pictures VALUES (?, ?)", zip(rows.tolist(), pictures, strict=True)
        )

    def picture(self, connection: sqlite3.Connection, own_id: str | int) -> bytes | None:
        """The picture of a point; None if it has none."""
        found = connection.execute(
            "SELECT picture FROM pictures JOIN points USING (row) "
            "WHERE id = ? AND typeof(picture) = 'blob'",
            (own_id,),
        ).fetchone()
        return None if found is None else bytes(found[0])

    def put_texts(self, connection: sqlite3.Connection, rows: IntArray, texts: list[str]) -> None:
        """Keep the texts of points, in the place of earlier ones."""
        for text in texts:
            if not isinstance(text, str):
                raise InvalidInputError(
                    f"The text of a point must be a string. Got {type(text).__name__} instead."
                )
            check_text(text, "The text of a point")
        if not has_texts(connection):
            connection.execute(texts_table())
        connection.executemany(
            "REPLACE INTO texts VALUES (?, ?)", zip(rows.tolist(), texts, strict=True)
        )

    def texts(self, connection: sqlite3.Connection, ids: AnyArray) -> dict[Any, str]:
        """The texts of those points that have one, by id."""
        distinct = list(dict.fromkeys(ids.tolist()))
        return dict(_select(connection, "id, text", distinct, "points JOIN texts USING (row)"))


def has_texts(connection: sqlite3.Connection) -> bool:
    """Whether a gallery has a table of texts."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'")
    return found.fetchone() is not None


def _select(
    connection: sqlite3.Connection, columns: str, values: list[Any], table: str = "points"
) -> Iterator[tuple[Any, ...]]:
    """Columns of those points that are there, of which the first column has some values."""
    key = columns.partition(",")[0]
    for start in range(0, len(values), PORTION):
        part = values[start : start + PORTION]
        places = ", ".join("?" * len(part))
        yield from connection.execute(
            f"SELECT {columns} FROM {table} WHERE {key} IN ({places})",  # noqa: S608
            part,
        )


def _portions(cursor: sqlite3.Cursor) -> Iterator[list[tuple[Any, ...]]]:
    while portion := cursor.fetchmany(READ_AT_ONCE):
        yield portion


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
    check_text(name, "The name of a note")
    return name


def check_text(text: str, what: str) -> None:
    """An error if SQLite could not keep a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{what} must be valid Unicode. Got a lone surrogate.") from None


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
