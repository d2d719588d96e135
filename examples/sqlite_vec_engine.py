"""A table of sqlite-vec as an engine of nearsure: one SQLite file, every vector compared."""
# ruff: noqa: D102, INP001  (the contract documents the methods; names are constants)

import sqlite3
from collections.abc import Iterator

import numpy as np
import sqlite_vec

from nearsure.arrays import AnyArray
from nearsure.engines import Capabilities, Fingerprint, Hits, SimpleEngine, Stored

SELECT, DELETE = "SELECT id, label, embedding FROM points", "DELETE FROM points WHERE id = ?"


class SqliteVecEngine(SimpleEngine):
    """Integer ids, text labels; a change is a transaction. sqlite-vec gives 4096 at most."""

    capabilities = Capabilities(
        exact=True, holds_labels=True, ids="integer", labels="text", largest_k=4096 - 8
    )
    name, one_thread = "sqlite-vec", True

    def __init__(self, path: str, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension
        self._file = sqlite3.connect(path, check_same_thread=False)
        self._file.enable_load_extension(True)  # noqa: FBT003
        sqlite_vec.load(self._file)
        columns = f"id INTEGER PRIMARY KEY, embedding FLOAT[{dimension}], +label TEXT"
        self._file.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS points USING vec0({columns})")

    def fingerprint(self) -> Fingerprint:
        return {"engine": "sqlite-vec", "index": "exact", "dimension": self.dimension}

    def count(self) -> int:
        return int(self._file.execute("SELECT count(*) FROM points").fetchone()[0])

    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        sql = f"{SELECT} WHERE embedding MATCH ? AND k = {limit}"
        found = [self._file.execute(sql, (query.tobytes(),)).fetchall() for query in queries]
        points = self._points([row for rows in found for row in rows])
        numbers = np.repeat(np.arange(len(queries)), [len(rows) for rows in found])
        return Hits(numbers, points.ids, points.labels, points.vectors)

    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        packed = [vector.tobytes() for vector in vectors]
        rows = zip(ids.tolist(), packed, np.asarray(labels).tolist(), strict=True)
        with self._file:  # sqlite-vec replaces nothing: what is there goes first.
            self._file.executemany(DELETE, ids[:, None].tolist())
            self._file.executemany("INSERT INTO points(id, embedding, label) VALUES (?,?,?)", rows)

    def delete(self, ids: AnyArray) -> None:
        with self._file:
            self._file.executemany(DELETE, ids[:, None].tolist())

    def get(self, ids: AnyArray) -> Stored:
        one = f"{SELECT} WHERE id = ?"
        return self._points([row for i in ids.tolist() for row in self._file.execute(one, (i,))])

    def scan(self) -> Iterator[Stored]:
        with self.asking():
            points = self._points(self._file.execute(f"{SELECT} ORDER BY id").fetchall())
        yield Stored(points.ids, points.labels)

    def close(self) -> None:
        self._file.close()

    def _points(self, rows: list[tuple[int, str, bytes]]) -> Stored:
        vectors = np.frombuffer(b"".join(row[2] for row in rows), np.float32)
        ids, labels = np.array([row[0] for row in rows], np.int64), [row[1] for row in rows]
        return Stored(ids, np.array(labels, str), vectors.reshape(-1, self.dimension))
