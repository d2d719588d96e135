"""The points in the file, in SQL."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Stored
from nearsure.engines.sqlite.schema import Layout
from nearsure.errors import InvalidInputError
from nearsure.index.stable_ids import a_few

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

    def insert(
        self,
        connection: sqlite3.Connection,
        rows: IntArray,
        ids: AnyArray,
        labels: AnyArray,
        vectors: AnyArray,
    ) -> None:
        """Add points."""
        blobs = (vector.tobytes() for vector in vectors)
        connection.executemany(
            "INSERT INTO points (row, id, label, vector) VALUES (?, ?, ?, ?)",
            zip(rows.tolist(), ids.tolist(), labels.tolist(), blobs, strict=True),
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
        there = [own for own, _ in self._found(connection, "row", ids.tolist())]
        if there:
            raise InvalidInputError(
                f"ids of new points must be new. Got {a_few(there)}, which the gallery holds "
                "already. Remove these points first."
            )

    def rows_of(self, connection: sqlite3.Connection, ids: AnyArray) -> IntArray:
        """The rows of points, in the order of `ids`; an error if any is not there."""
        row_of = {own: found[0] for own, found in self._found(connection, "row", ids.tolist())}
        _check_all_there(ids, row_of)
        return np.array([row_of[own] for own in ids.tolist()], np.int64)

    def fetch(self, connection: sqlite3.Connection, ids: AnyArray) -> Stored:
        """Points in the order of `ids`, which may come twice; an error if any is not there."""
        point_of = dict(self._found(connection, "label, vector", list(dict.fromkeys(ids.tolist()))))
        _check_all_there(ids, point_of)
        points = [point_of[own] for own in ids.tolist()]
        labels = self._layout.array([label for label, _ in points], self._layout.labels)
        return Stored(ids, labels, self._layout.vectors_of([vector for _, vector in points]))

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
        """How many points there are, or have a label."""
        where, values = ("", ()) if label is None else ("WHERE label = ?", (label,))
        counted = connection.execute(f"SELECT COUNT(*) FROM points {where}", values)  # noqa: S608
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
        blobs: list[bytes] = []
        for start in range(0, len(rows), PORTION):
            part = rows[start : start + PORTION].tolist()
            found = connection.execute(
                "SELECT vector FROM points "  # noqa: S608
                f"WHERE row IN ({_places(part)}) ORDER BY row",
                part,
            )
            blobs.extend(vector for (vector,) in found)
        return self._layout.vectors_of(blobs)

    def _found(
        self, connection: sqlite3.Connection, columns: str, ids: list[Any]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Those ids that are there, each with some columns of its point."""
        for start in range(0, len(ids), PORTION):
            part = ids[start : start + PORTION]
            for own, *values in connection.execute(
                f"SELECT id, {columns} FROM points WHERE id IN ({_places(part)})",  # noqa: S608
                part,
            ):
                yield own, tuple(values)


def _places(values: list[Any]) -> str:
    return ", ".join("?" * len(values))


def _portions(cursor: sqlite3.Cursor) -> Iterator[list[tuple[Any, ...]]]:
    while portion := cursor.fetchmany(READ_AT_ONCE):
        yield portion


def _check_all_there(ids: AnyArray, there: dict[Any, Any]) -> None:
    missing = [own for own in ids.tolist() if own not in there]
    if missing:
        raise InvalidInputError(
            "ids must be those of points in the gallery. "
            f"Got {a_few(missing)}, which it does not hold."
        )
