"""A search: statements and settings go out, hits come back, and no query is left short."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.contract import Found
from nearsure.engines.hits import SPARE_CANDIDATES, Hits, found_from_hits
from nearsure.engines.merge import one_after_another
from nearsure.engines.postgres.connections import Connection, Connections
from nearsure.engines.postgres.metrics import check_unit_length
from nearsure.engines.postgres.packed_rows import unpacked
from nearsure.engines.postgres.settings import Settings
from nearsure.engines.postgres.statements import Statements
from nearsure.index.unit import unit_vectors

# What an answer may take in memory, on the server and here.
_ANSWER_BYTES = 2**24
_LARGEST_BATCH = 1000


@dataclass(frozen=True)
class Search:
    """The search of one gallery.

    Parameters
    ----------
    connections : Connections
        The server.
    statements : Statements
        What is asked of the table.
    settings : Settings
        How hard an approximate index is to try.
    """

    connections: Connections
    statements: Statements
    settings: Settings

    def nearest(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query, however many queries there are."""
        if self.statements.metric.meaning == "cosine":
            queries = unit_vectors(queries.astype(np.float64))
        n_asked = k + SPARE_CANDIDATES if self.statements.refined else k
        return one_after_another(
            [
                found_from_hits(queries[part], self._hits(queries[part], k, n_asked), k)
                for part in self._parts(len(queries), n_asked)
            ]
        )

    def _parts(self, n_queries: int, n_asked: int) -> Iterator[slice]:
        n_bytes = 16 + (self.statements.layout.stored.n_bytes if self.statements.refined else 8)
        size = max(1, min(_LARGEST_BATCH, _ANSWER_BYTES // (n_asked * n_bytes)))
        for start in range(0, n_queries, size):
            yield slice(start, start + size)

    def _hits(self, queries: AnyArray, k: int, n_asked: int) -> Hits:
        if not self.settings.index_can_give(self.statements.layout, n_asked):
            return self._by_scan(queries, n_asked)
        hits = self._by_index(queries, n_asked)
        n_hits = np.bincount(hits.queries, minlength=len(queries))
        if (n_hits >= k).all():
            return hits
        # An index may give fewer than there are. They are counted, and looked for without it.
        short = np.flatnonzero(n_hits < self._count_up_to(k))
        if not short.size:
            return hits
        again = self._by_scan(queries[short], n_asked)
        return _replaced(hits, short, again)

    def _by_index(self, queries: AnyArray, n_asked: int) -> Hits:
        layout = self.statements.layout
        asked = layout.asked.as_array(queries)

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            layout.asked.take_up(connection)
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
            layout.asked.take_up(connection)
            with connection.pipeline():
                self.settings.of_any(connection)
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
        packed = unpacked(self.statements.layout, rows)
        every = Hits(np.repeat(numbers, packed.counts), packed.ids, packed.labels)
        metric = self.statements.metric
        # A zero vector has no direction. Under cosine it is never found.
        if self.statements.refined:
            vectors = packed.vectors(self.statements.layout)
            if metric.meaning == "euclidean":
                return replace(every, vectors=vectors)
            if metric.needs_unit_length and len(vectors):
                # A longer vector takes the place of nearer ones, which are then not among these.
                lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
                table = self.statements.layout.relation.as_string()
                check_unit_length(float(np.abs(lengths - 1).max()), table)
            is_directed = np.asarray(vectors.any(axis=1), np.bool_)
            units = unit_vectors(vectors[is_directed].astype(np.float64))
            return replace(_some(every, is_directed), vectors=units)
        distances = packed.distances()
        is_found = np.asarray(~np.isnan(distances), np.bool_)
        sq_distances = metric.sq_distances(distances[is_found])
        return replace(_some(every, is_found), sq_distances=sq_distances)

    def _count_up_to(self, n: int) -> int:
        def ask(connection: Connection) -> int:
            self.settings.of_any(connection)
            row = connection.execute(self.statements.count_up_to, [n]).fetchone()
            return 0 if row is None else int(row[0])

        return self.connections.reading(ask)


def _some(hits: Hits, chosen: BoolArray) -> Hits:
    def part(values: AnyArray | None) -> AnyArray | None:
        return None if values is None else values[chosen]

    return Hits(
        hits.queries[chosen],
        hits.ids[chosen],
        part(hits.labels),
        part(hits.vectors),
        part(hits.sq_distances),
    )


def _replaced(hits: Hits, queries: IntArray, others: Hits) -> Hits:
    """Hits where those of some queries are replaced by `others`, numbered from 0."""
    kept = _some(hits, ~np.isin(hits.queries, queries))

    def joined(ours: AnyArray | None, theirs: AnyArray | None) -> AnyArray | None:
        return None if ours is None or theirs is None else np.concatenate([ours, theirs])

    return Hits(
        np.concatenate([kept.queries, queries[others.queries]]),
        np.concatenate([kept.ids, others.ids]),
        joined(kept.labels, others.labels),
        joined(kept.vectors, others.vectors),
        joined(kept.sq_distances, others.sq_distances),
    )
