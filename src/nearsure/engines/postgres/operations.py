"""Search, read, add, remove and relabel points in a table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg import errors

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.checks import check_all_there, check_none_there
from nearsure.engines.contract import Found, Stored
from nearsure.engines.hits import (
    SPARE_CANDIDATES,
    Hits,
    arrange_points,
    concatenate_found,
    found_from_hits,
    hits_with_distances,
    hits_with_vectors,
    replace_rows,
)
from nearsure.engines.postgres.pool import Connection, Connections
from nearsure.engines.postgres.schema import Column, check_unit_length
from nearsure.engines.postgres.sql import Settings, Statements, drop_if_empty
from nearsure.errors import UnusableGalleryError
from nearsure.index.exact import unit_vectors

# What an answer may take in memory, on the server and here.
_ANSWER_BYTES = 2**24
_LARGEST_BATCH = 1000
# Points that one portion of a scan holds.
_PORTION = 10_000
# What one statement may bring: PostgreSQL's values end at 2^30 bytes.
_FETCHED_BYTES = 2**26
# Points that are sent between two calls of a progress function.
_BLOCK = 10_000


@dataclass(frozen=True)
class Table:
    """The points of a table: searched, read and changed.

    Parameters
    ----------
    connections : Connections
        The server.
    statements : Statements
        What is asked of the table.
    settings : Settings
        What transactions are begun with, and how hard an approximate index is to try.
    """

    connections: Connections
    statements: Statements
    settings: Settings

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query, however many queries there are."""
        if self.statements.metric.meaning == "cosine":
            queries = unit_vectors(queries.astype(np.float64))
        n_asked = k + SPARE_CANDIDATES if self.statements.refined else k
        parts = self._parts(len(queries), n_asked)
        return concatenate_found([self._nearest(queries[part], k, n_asked) for part in parts])

    def _parts(self, n_queries: int, n_asked: int) -> Iterator[slice]:
        n_bytes = 16 + (self.statements.layout.stored.n_bytes if self.statements.refined else 8)
        size = max(1, min(_LARGEST_BATCH, _ANSWER_BYTES // (n_asked * n_bytes)))
        for start in range(0, n_queries, size):
            yield slice(start, start + size)

    def _nearest(self, queries: AnyArray, k: int, n_asked: int) -> Found:
        if not self.settings.index_can_give(self.statements.layout, n_asked):
            return found_from_hits(queries, self._by_scan(queries, n_asked), k)
        found = found_from_hits(queries, self._by_index(queries, n_asked), k)
        if (found.counts >= k).all():
            return found
        # An index may give fewer than there are. They are counted, and looked for without it.
        short = np.flatnonzero(found.counts < self._number(self.statements.count_up_to, k))
        if not short.size:
            return found
        again = found_from_hits(queries[short], self._by_scan(queries[short], n_asked), k)
        return replace_rows(found, short, again)

    def _by_index(self, queries: AnyArray, n_asked: int) -> Hits:
        layout = self.statements.layout
        asked = layout.asked.as_array(queries)

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            layout.asked.register(connection)
            with connection.pipeline():
                self.settings.of_index_scan(connection, layout, n_asked)
                cursor = connection.cursor(binary=True)
                cursor.execute(self.statements.nearest_by_index, [asked, n_asked])
                return cursor.fetchall()

        rows = self.connections.reading(ask)
        numbers = np.array([row[0] for row in rows], np.int64) - 1
        return self._hits_of(numbers, [row[1:] for row in rows])

    def _by_scan(self, queries: AnyArray, n_asked: int) -> Hits:
        layout = self.statements.layout
        asked = layout.asked.one_by_one(queries)

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            layout.asked.register(connection)
            with connection.pipeline():
                self.settings.apply(connection)
                cursors = [
                    connection.cursor(binary=True).execute(
                        self.statements.nearest_by_scan, [query, n_asked]
                    )
                    for query in asked
                ]
                return [row for cursor in cursors for row in cursor.fetchall()]

        return self._hits_of(np.arange(len(queries)), self.connections.reading(ask))

    def _hits_of(self, numbers: IntArray, rows: Sequence[Sequence[Any]]) -> Hits:
        """The hits in rows, each of which answers the query of its number."""
        ids, labels, counts, data = self._unpack(rows)
        queries, metric = np.repeat(numbers, counts), self.statements.metric
        if not self.statements.refined:
            distances = np.frombuffer(data, ">f8").astype(np.float64)
            return hits_with_distances(queries, ids, labels, distances, metric.sq_distances)
        vectors = self.statements.layout.stored.decode(data, len(ids))
        if metric.needs_unit_length and len(vectors):
            # A longer vector takes the place of nearer ones, which are then not among these.
            lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
            table = self.statements.layout.relation.as_string()
            check_unit_length(float(np.abs(lengths - 1).max()), table)
        return hits_with_vectors(queries, ids, labels, vectors, metric.meaning)

    def _unpack(
        self, rows: Sequence[Sequence[Any]]
    ) -> tuple[AnyArray, AnyArray | None, IntArray, bytes]:
        """Ids and labels (if there are any) of packed rows, how many each held, and the rest."""
        layout = self.statements.layout
        columns = list(zip(*rows, strict=True))
        ids, counts = layout.id.unpacked(columns[0])
        labels = None
        if layout.label is not None:
            labels, n_labels = layout.label.unpacked(columns[1])
            if not np.array_equal(n_labels, counts):
                raise UnusableGalleryError(layout.label.has_nulls)
        return ids, labels, counts, b"".join(part or b"" for part in columns[-1])

    def count(self) -> int:
        """How many points there are."""
        return int(self._number(self.statements.count))

    def farthest_from_unit(self) -> float:
        """How far the lengths of some vectors are from 1, at most; 0 if there are none."""
        return self._number(self.statements.farthest_from_unit)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors and labels, in the order of `ids`."""
        layout = self.statements.layout
        own_ids = layout.id.outgoing(ids)
        size = max(1, _FETCHED_BYTES // layout.stored.n_bytes)

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            self.settings.apply(connection)
            cursor = connection.cursor(binary=True)
            rows = []
            for start in range(0, len(own_ids) or 1, size):
                cursor.execute(self.statements.fetch, [own_ids[start : start + size]])
                rows += cursor.fetchall()
            return rows

        found, labels, _, data = self._unpack(self.connections.reading(ask))
        vectors = layout.stored.decode(data, len(found))
        return arrange_points(Stored(found, labels, vectors), ids)

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, ids ascending, as they were when the scan began."""
        layout = self.statements.layout
        # A connection of its own: a slow reader shall not keep others waiting.
        with self.connections.dedicated() as connection:
            self.settings.apply(connection)
            with connection.cursor("nearsure_scan", binary=True) as cursor:
                cursor.execute(self.statements.scan)
                while rows := cursor.fetchmany(_PORTION):
                    columns = list(zip(*rows, strict=True))
                    labels = None if layout.label is None else layout.label.incoming(columns[1])
                    yield Stored(layout.id.incoming(columns[0]), labels)

    def add(
        self,
        vectors: AnyArray,
        ids: AnyArray,
        labels: AnyArray | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Add points, all or none."""
        layout = self.statements.layout
        columns: list[Sequence[Any]] = [layout.id.outgoing(ids)]
        if layout.label is not None and labels is not None:
            columns.append(layout.label.outgoing(labels))
        vectors = layout.stored.rounded(vectors)
        # Seen in a transaction of its own, so that two first loads do not wait for each other.
        may_rebuild = layout.index is not None and layout.may_rebuild
        is_first = may_rebuild and self.connections.reading(self._is_empty)

        def write(connection: Connection) -> None:
            self.settings.apply(connection)
            # An index is built faster, and the lists of "ivfflat" are better, when points are in.
            rebuilding = drop_if_empty(connection, self.statements) if is_first else None
            try:
                self._copy(connection, columns, vectors, progress)
            except errors.UniqueViolation:
                connection.rollback()
                self._check_are_new(connection, columns[0])
                raise
            if rebuilding is not None:
                connection.execute(rebuilding)

        self.connections.writing(write)

    def remove(self, ids: AnyArray) -> None:
        """Remove points, all or none."""
        own_ids = self.statements.layout.id.outgoing(ids)
        self._change_all(ids, self.statements.remove, [own_ids])

    def relabel(self, column: Column, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels in a column, all or none."""
        values = [self.statements.layout.id.outgoing(ids), column.outgoing(labels)]
        self._change_all(ids, self.statements.relabel(column), values)

    def _change_all(self, ids: AnyArray, statement: bytes, values: Sequence[Any]) -> None:
        """Run a statement that returns the ids it changed, which must be all."""

        def write(connection: Connection) -> None:
            self.settings.apply(connection)
            changed = connection.execute(statement, values).fetchall()
            check_all_there(ids, {row[0] for row in changed})

        self.connections.writing(write)

    def _copy(
        self,
        connection: Connection,
        columns: Sequence[Sequence[Any]],
        vectors: AnyArray,
        progress: Callable[[int], None] | None,
    ) -> None:
        layout = self.statements.layout
        layout.stored.register(connection)
        types: list[str | int] = [layout.id.type]
        if layout.label is not None:
            types.append(layout.label.type)
        with connection.cursor().copy(self.statements.copy) as copy:
            copy.set_types([*types, layout.stored.oid])
            for start in range(0, len(vectors), _BLOCK):
                part = slice(start, start + _BLOCK)
                encoded = layout.stored.one_by_one(vectors[part])
                for row in zip(*(column[part] for column in columns), encoded, strict=True):
                    copy.write_row(row)
                if progress is not None:
                    progress(start + len(encoded))

    def _number(self, statement: bytes, *values: int) -> float:
        """The number that a statement returns, 0 if none."""

        def ask(connection: Connection) -> float:
            self.settings.apply(connection)
            row = connection.execute(statement, values).fetchone()
            return 0 if row is None else row[0] or 0

        return self.connections.reading(ask)

    def _is_empty(self, connection: Connection) -> bool:
        return connection.execute(self.statements.any_row).fetchone() is None

    def _check_are_new(self, connection: Connection, own_ids: Sequence[Any]) -> None:
        there = connection.execute(self.statements.ids_among, [own_ids]).fetchall()
        check_none_there([row[0] for row in there])
