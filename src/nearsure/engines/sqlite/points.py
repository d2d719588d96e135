"""Points in SQL, their ids and labels in memory, and their pictures."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.checks import check_all_there, check_none_there
from nearsure.engines.contract import Found, Stored
from nearsure.engines.hits import nothing_of
from nearsure.engines.sqlite.schema import Kind, Layout
from nearsure.errors import InvalidInputError
from nearsure.index.rows import GrowingRows

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
        check_none_there([own for own, _ in self._found(connection, "row", ids.tolist())])

    def rows_of(self, connection: sqlite3.Connection, ids: AnyArray) -> IntArray:
        """The rows of points, in the order of `ids`; an error if any is not there."""
        row_of = {own: found[0] for own, found in self._found(connection, "row", ids.tolist())}
        check_all_there(ids, row_of)
        return np.array([row_of[own] for own in ids.tolist()], np.int64)

    def fetch(self, connection: sqlite3.Connection, ids: AnyArray) -> Stored:
        """Points in the order of `ids`, which may come twice; an error if any is not there."""
        point_of = dict(self._found(connection, "label, vector", list(dict.fromkeys(ids.tolist()))))
        check_all_there(ids, point_of)
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


# Names of points that are gone are cleared away when they are more than this, and than the others.
FEW_GONE = 1024


class PointNames:
    """The id and label of each row; rows are numbered upwards and never again the same.

    `put` may be called while others read, as nothing leads to a row before the index has it.
    `forget` and `relabel` are called while nobody reads.

    Parameters
    ----------
    layout : Layout
        What ids and labels are.

    Examples
    --------
    >>> names = PointNames(Layout(dimension=2))
    >>> names.put(np.array([0, 4]), ["ann", "bob"], ["cat", "dog"])
    >>> found = Found(np.array([[1.0, 2.0, np.inf]]), np.array([[4, 0, -1]]), np.array([2]))
    >>> names.named(found, k=3).ids
    array([['bob', 'ann', '']], dtype='<U3')
    """

    def __init__(self, layout: Layout) -> None:
        self._rows = GrowingRows(np.empty(0, np.int64))
        self._ids = GrowingRows(_empty(layout.ids))
        self._labels = GrowingRows(_empty(layout.labels))
        self._is_there = GrowingRows(np.empty(0, np.bool_))
        # One object for each label, however many points have it.
        self._label_objects: dict[Any, Any] = {}
        self._n_gone = 0

    @property
    def rows(self) -> IntArray:
        """The rows of all points, ascending."""
        rows: IntArray = self._rows.rows[self._is_there.rows]
        return rows

    def put(self, rows: IntArray, ids: list[Any], labels: list[Any]) -> None:
        """Add rows beyond all others."""
        self._ids.append(_filled(self._ids, ids))
        self._labels.append(_filled(self._labels, self._shared(labels)))
        self._is_there.append(np.ones(len(rows), np.bool_))
        # Last: a row that is there has its names.
        self._rows.append(rows)

    def forget(self, rows: IntArray) -> None:
        """Drop rows that the index does not find any more."""
        places = self._places(rows)
        self._is_there.put(places, np.zeros(len(places), np.bool_))
        self._n_gone += len(places)
        if self._n_gone > max(FEW_GONE, len(self._rows.rows) // 2):
            is_there: BoolArray = self._is_there.rows
            self._rows = GrowingRows(self._rows.rows[is_there])
            self._ids = GrowingRows(self._ids.rows[is_there])
            self._labels = GrowingRows(self._labels.rows[is_there])
            self._is_there = GrowingRows(is_there[is_there])
            self._n_gone = 0

    def relabel(self, rows: IntArray, labels: list[Any]) -> None:
        """Give rows other labels."""
        self._labels.put(self._places(rows), _filled(self._labels, self._shared(labels)))

    def named(self, found: Found, k: int) -> Found:
        """The k nearest of each query with ids and labels, equal distances in the order of ids.

        Parameters
        ----------
        found : Found
            What the index found: rows in the place of ids, and at least k columns.
        k : int
            How many to keep.
        """
        valid = found.ids >= 0
        places = np.where(valid, self._places(found.ids), 0)
        ids, labels = (_answer(table.rows, places, valid) for table in (self._ids, self._labels))
        sq_distances = found.sq_distances
        is_tied = (sq_distances[:, 1:] == sq_distances[:, :-1]) & valid[:, 1:]
        if is_tied.any():
            tied = np.flatnonzero(is_tied.any(axis=1))
            # What is missing stays behind: its distance is infinite.
            order = np.lexsort((ids[tied], sq_distances[tied]), axis=1)
            ids[tied] = np.take_along_axis(ids[tied], order, axis=1)
            labels[tied] = np.take_along_axis(labels[tied], order, axis=1)
        return Found(sq_distances[:, :k], ids[:, :k], np.minimum(found.counts, k), labels[:, :k])

    def _places(self, rows: IntArray) -> IntArray:
        known = self._rows.rows
        if not len(known) or known[-1] == len(known) - 1:
            return rows
        places: IntArray = np.searchsorted(known, rows)
        return places

    def _shared(self, labels: list[Any]) -> list[Any]:
        if self._labels.rows.dtype != object:
            return labels
        known = self._label_objects
        return [known.setdefault(label, label) for label in labels]


def _empty(kind: Kind) -> AnyArray:
    return np.empty(0, np.int64 if kind == "integer" else object)


def _filled(table: GrowingRows, values: list[Any]) -> AnyArray:
    return np.array(values, table.rows.dtype)


def _answer(names: AnyArray, places: IntArray, valid: BoolArray) -> AnyArray:
    """Names at places, and nothing where there is no point."""
    if not len(names):
        empty: AnyArray = np.full(places.shape, -1 if names.dtype == np.int64 else "")
        return empty
    own = names[places]
    if own.dtype == object:
        own = own.astype(str)
    own[~valid] = nothing_of(own)
    return own


def put_pictures(connection: sqlite3.Connection, rows: IntArray, pictures: list[bytes]) -> None:
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


def picture_of(connection: sqlite3.Connection, own_id: str | int) -> bytes | None:
    """The picture of a point; None if it has none."""
    found = connection.execute(
        "SELECT picture FROM pictures JOIN points USING (row) "
        "WHERE id = ? AND typeof(picture) = 'blob'",
        (own_id,),
    ).fetchone()
    return None if found is None else bytes(found[0])
