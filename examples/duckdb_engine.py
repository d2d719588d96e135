"""A table of DuckDB as an engine of nearsure, with or without the HNSW index of vss."""
# ruff: noqa: D102, INP001  (the contract documents the methods; names are constants)

from collections.abc import Iterator

import duckdb
import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines import Capabilities, Fingerprint, Hits, SimpleEngine, Stored

SELECT = "SELECT id, label, embedding FROM points"


class DuckdbEngine(SimpleEngine):
    """Integer ids, text labels; a change is a transaction. Without `vss` all are compared."""

    name, one_thread = "DuckDB", True

    def __init__(self, path: str, dimension: int, *, vss: bool = False) -> None:
        super().__init__()
        self.dimension, self._vss, self._type = dimension, vss, f"FLOAT[{dimension}]"
        self.capabilities = Capabilities(exact=not vss, holds_labels=True, labels="text")
        self._file = duckdb.connect(path)
        columns = f"id BIGINT PRIMARY KEY, label VARCHAR, embedding {self._type}"
        self._file.execute(f"CREATE TABLE IF NOT EXISTS points({columns})")
        if vss:  # INSTALL vss downloads it, once.
            self._file.execute("LOAD vss; SET hnsw_enable_experimental_persistence = true")
            self._file.execute("CREATE INDEX IF NOT EXISTS i ON points USING HNSW (embedding)")

    def fingerprint(self) -> Fingerprint:
        index = "hnsw" if self._vss else "exact"
        return {"engine": "duckdb", "index": index, "dimension": self.dimension}

    def count(self) -> int:
        return int(self._file.execute("SELECT count(*) FROM points").fetchall()[0][0])

    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        sql = f"{SELECT} ORDER BY array_distance(embedding, ?::{self._type}) LIMIT {limit}"
        found = [self._file.execute(sql, [query.tolist()]).fetchall() for query in queries]
        points = self._points([row for rows in found for row in rows])
        numbers = np.repeat(np.arange(len(queries)), [len(rows) for rows in found])
        return Hits(numbers, points.ids, points.labels, points.vectors)

    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        columns = [ids.tolist(), np.asarray(labels).tolist(), vectors.tolist()]
        rows = f"SELECT unnest(?::BIGINT[]), unnest(?::VARCHAR[]), unnest(?::{self._type}[])"
        self._file.execute(f"INSERT OR REPLACE INTO points {rows}", columns)

    def delete(self, ids: AnyArray) -> None:
        gone = "DELETE FROM points WHERE id IN (SELECT unnest(?::BIGINT[]))"
        self._file.execute(gone, [ids.tolist()])

    def get(self, ids: AnyArray) -> Stored:
        some = f"{SELECT} WHERE id IN (SELECT unnest(?::BIGINT[]))"
        return self._points(self._file.execute(some, [ids.tolist()]).fetchall())

    def scan(self) -> Iterator[Stored]:
        with self.asking():
            points = self._points(self._file.execute(f"{SELECT} ORDER BY id").fetchall())
        yield Stored(points.ids, points.labels)

    def close(self) -> None:
        self._file.close()

    def _points(self, rows: list[tuple[int, str, list[float]]]) -> Stored:
        vectors = np.array([row[2] for row in rows], np.float32).reshape(-1, self.dimension)
        ids, labels = np.array([row[0] for row in rows], np.int64), [row[1] for row in rows]
        return Stored(ids, np.array(labels, str), vectors)
