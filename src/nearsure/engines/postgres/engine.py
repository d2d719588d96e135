"""`PostgresEngine` and its options."""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from psycopg import errors

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines import checks
from nearsure.engines.contract import Capabilities, Effort, Fingerprint, Found, Kind, Stored
from nearsure.engines.hits import (
    SPARE_CANDIDATES,
    Hits,
    arrange_points,
    concatenate_found,
    found_from_hits,
    replace_rows,
    with_distances,
    with_vectors,
)
from nearsure.engines.postgres import schema
from nearsure.engines.postgres.pool import Connection, Connections, address_of
from nearsure.engines.postgres.schema import MetricName, Names
from nearsure.engines.postgres.sql import (
    LARGEST_EF_SEARCH,
    LARGEST_PROBES,
    Settings,
    Statements,
    build_index,
    drop_if_empty,
    options_of,
)
from nearsure.errors import InvalidInputError, UnusableGalleryError
from nearsure.index.exact import unit_vectors

if TYPE_CHECKING:
    from typing import Self

# PostgreSQL counts milliseconds in 32 bits.
_LARGEST_SECONDS = (2**31 - 1) // 1000
# What an answer may take in memory, on the server and here.
_ANSWER_BYTES = 2**24
_LARGEST_BATCH = 1000
# Points that one portion of a scan holds.
_PORTION = 10_000
# What one statement may bring: PostgreSQL's values end at 2^30 bytes.
_FETCHED_BYTES = 2**26
# Points that are sent between two calls of a progress function.
_BLOCK = 10_000


def check_options(index: str, ef_search: int, probes: int) -> None:
    """An error if one of these cannot be."""
    if index not in ("exact", "hnsw", "ivfflat"):
        raise InvalidInputError(
            f"The 'index' parameter must be exact, hnsw or ivfflat. Got {index!r} instead."
        )
    for name, value, largest in (
        ("ef_search", ef_search, LARGEST_EF_SEARCH),
        ("probes", probes, LARGEST_PROBES),
    ):
        if not 1 <= value <= largest:
            raise InvalidInputError(
                f"The {name!r} parameter must be from 1 to {largest}. Got {value} instead."
            )


def check_limits(pool_size: int, timeout: float, statement_timeout: float | None) -> None:
    """An error if one of these cannot be."""
    if pool_size < 1:
        raise InvalidInputError(
            f"The 'pool_size' parameter must be at least 1. Got {pool_size!r} instead."
        )
    for name, value in (("timeout", timeout), ("statement_timeout", statement_timeout)):
        if value is not None and not (math.isfinite(value) and 0 < value <= _LARGEST_SECONDS):
            raise InvalidInputError(
                f"The {name!r} parameter must be seconds above 0 and up to {_LARGEST_SECONDS}. "
                f"Got {value!r} instead."
            )


IndexName: TypeAlias = Literal["exact", "hnsw", "ivfflat"]


class PostgresEngine:
    """A table of PostgreSQL with a column of pgvector, as an engine of nearsure.

    Opening looks at the table and fails at once if it cannot be a gallery. The table may be any of
    yours: a primary key (integers, text or UUIDs), a column of vectors, and labels if you like.
    Rows whose vector is null are no points. `create` makes a new table.

    Parameters
    ----------
    uri : str, optional
        ``postgresql://user:password@host:5432/database`` or what else libpq reads; by default the
        environment's ``NEARSURE_POSTGRES_URI``, else what libpq finds in ``PGHOST`` and its like.
        A password is never shown.
    table : str
        Name of the table, or ``"schema.table"``.
    id_column, vector_column : str
        Names of its columns.
    label_column : str or None
        None if labels are not in the table; nearsure keeps them itself then.
    metric : {"euclidean", "cosine", "inner_product"}
        How vectors are compared. "inner_product" is the cosine of vectors that are stored at unit
        length, and `add` stores them so.
    index : {"exact", "hnsw", "ivfflat"}
        What answers. "exact" scans the table, whatever indexes it has.
    ef_search : int
        For "hnsw": how many candidates are kept, from 1 to 1000; more than k in any case.
    probes : int
        For "ivfflat": how many lists are looked into; more where they hold fewer than k points.
    refine : bool
        Whether distances are recomputed in double precision, from the vectors of k + 8
        candidates; otherwise they are PostgreSQL's, in single precision, and fewer bytes travel.
    pool_size : int
        How many connections may be open for several threads.
    timeout : float
        Seconds to wait for the server to accept a connection, and for a connection to be free.
    statement_timeout : float, optional
        Seconds after which the server gives up a statement; by default its own setting.

    Attributes
    ----------
    capabilities, dimension, metric
        As the contract has them.

    Examples
    --------
    >>> from nearsure.engines.postgres import PostgresEngine  # doctest: +SKIP
    >>> engine = PostgresEngine.create("postgresql:///shop", dimension=128, index="hnsw")
    ... # doctest: +SKIP
    >>> engine.add(vectors, ids, labels)  # doctest: +SKIP
    >>> engine.search(queries, k=10).ids  # doctest: +SKIP
    """

    def __init__(
        self,
        uri: str | None = None,
        *,
        table: str = "gallery",
        id_column: str = "id",
        label_column: str | None = "label",
        vector_column: str = "embedding",
        metric: MetricName = "euclidean",
        index: IndexName = "exact",
        ef_search: int = 100,
        probes: int = 10,
        refine: bool = True,
        pool_size: int = 8,
        timeout: float = 10.0,
        statement_timeout: float | None = None,
    ) -> None:
        check_options(index, ef_search, probes)
        check_limits(pool_size, timeout, statement_timeout)
        self._metric_name = metric
        self._metric = schema.metric_of(metric)
        self._index_name = index
        self._names = Names(table, id_column, label_column, vector_column)
        self._settings = Settings(ef_search, probes, statement_timeout)
        self._refine = refine
        self._address = address_of(uri, timeout)
        self._connections = Connections(self._address, pool_size, timeout)
        # An engine that is forgotten gives its connections back, too.
        weakref.finalize(self, self._connections.close)
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        uri: str | None = None,
        *,
        dimension: int,
        id_kind: Kind = "integer",
        label_kind: Kind | None = "integer",
        table: str = "gallery",
        id_column: str = "id",
        label_column: str | None = "label",
        vector_column: str = "embedding",
        metadata_column: str | None = "metadata",
        metric: MetricName = "euclidean",
        index: IndexName = "exact",
        m: int | None = None,
        ef_construction: int | None = None,
        lists: int | None = None,
        ef_search: int = 100,
        probes: int = 10,
        refine: bool = True,
        pool_size: int = 8,
        timeout: float = 10.0,
        statement_timeout: float | None = None,
    ) -> "Self":
        """Make a new table with its index, and the extension if the database lacks it.

        Parameters
        ----------
        dimension : int
            Length of a vector.
        id_kind : {"integer", "text"}
            What names a point.
        label_kind : {"integer", "text"} or None
            What labels are; None for a table without.
        metadata_column : str or None
            A column of JSON for whatever else you keep; nearsure does not read it.
        m, ef_construction : int, optional
            What an index "hnsw" is built with; by default 16 and 64.
        lists : int, optional
            What an index "ivfflat" is built with; by default 100.

        Notes
        -----
        The other parameters are those of the class.
        """
        # All that the class would refuse, before there is a table.
        check_options(index, ef_search, probes)
        check_limits(pool_size, timeout, statement_timeout)
        chosen_metric = schema.metric_of(metric)
        options = {"m": m, "ef_construction": ef_construction, "lists": lists}
        chosen = None if index == "exact" else options_of(index, options)
        label = None if label_kind is None else label_column
        names = Names(table, id_column, label, vector_column)

        def make(connection: Connection) -> None:
            schema.create_table(
                connection, names, dimension, (id_kind, label_kind), metadata_column
            )
            if chosen is not None:
                layout = schema.read_layout(connection, names, chosen_metric, "exact")
                statements = Statements(layout, chosen_metric, refine)
                build_index(connection, statements, index, chosen)

        with closing(Connections(address_of(uri, timeout), 1, timeout)) as connections:
            connections.writing(schema.ensure_extension)
            connections.writing(make)
        return cls(
            uri,
            table=table,
            id_column=id_column,
            label_column=label,
            vector_column=vector_column,
            metric=metric,
            index=index,
            ef_search=ef_search,
            probes=probes,
            refine=refine,
            pool_size=pool_size,
            timeout=timeout,
            statement_timeout=statement_timeout,
        )

    def fingerprint(self) -> Fingerprint:
        """All that decides which neighbours are found."""
        index = self._layout.index
        built: dict[str, str | int] = {}
        if index is not None:
            built = {"operator_class": index.opclass, **index.options}
            built |= self._settings.of_method(index.method)
        return {
            "engine": "postgres",
            "index": self._index_name,
            "metric": self._metric_name,
            "dimension": self.dimension,
            "vectors": self._layout.stored.type,
            "refine": self._refine,
            **built,
        }

    def size(self) -> int:
        """How many points there are now."""
        return int(self._number(self._statements.count))

    @property
    def effort(self) -> Effort | None:
        """``ef_search`` or ``probes``, and its limit; None for "exact"."""
        return self._settings.effort(self._layout)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query."""
        return self._search(queries, k, self._settings)

    def search_with_effort(self, queries: AnyArray, k: int, effort: int) -> Found:
        """The same with another ``ef_search`` or ``probes``."""
        own = checks.checked_effort(effort, self.effort)
        return self._search(queries, k, replace(self._settings, **own))

    def _search(self, queries: AnyArray, k: int, settings: Settings) -> Found:
        queries = checks.checked_queries(queries, self.dimension)
        k = checks.checked_k(k, self.capabilities)
        if self.metric == "cosine":
            queries = unit_vectors(queries.astype(np.float64))
        n_asked = k + SPARE_CANDIDATES if self._refine else k
        parts = self._parts(len(queries), n_asked)
        return concatenate_found(
            [self._nearest(queries[part], k, n_asked, settings) for part in parts]
        )

    def add(
        self,
        vectors: AnyArray,
        ids: AnyArray,
        labels: AnyArray | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add points, all or none.

        The index of an empty table is built after its first points, which is faster than to grow
        it. Give a large gallery in one call; after many calls, `create_index` rebuilds it.

        Parameters
        ----------
        vectors : array of shape (n, dimension)
            Finite; not zero under "cosine" and "inner_product".
        ids : array of shape (n,)
            Distinct, and none there already.
        labels : array of shape (n,), optional
            Given if, and only if, the table has labels.
        progress : callable, optional
            Called with the number of points sent so far, now and then; they are all there when
            `add` returns, and none before.
        """
        points, own_ids, own_labels = checks.checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        if self.metric == "cosine":
            units = unit_vectors(self._layout.stored.rounded(points))
            points = units if self._metric_name == "inner_product" else points
        layout = self._layout
        columns: list[Sequence[Any]] = [layout.id.outgoing(own_ids)]
        if layout.label is not None and own_labels is not None:
            columns.append(layout.label.outgoing(own_labels))
        rounded = layout.stored.rounded(points)
        # Seen in a transaction of its own, so that two first loads do not wait for each other.
        is_first = (
            layout.index is not None
            and layout.may_rebuild
            and not self._number(self._statements.any_row)
        )

        def write(connection: Connection) -> None:
            self._settings.apply(connection)
            # An index is built faster, and the lists of "ivfflat" are better, when points are in.
            rebuilding = drop_if_empty(connection, self._statements) if is_first else None
            try:
                self._copy(connection, columns, rounded, progress)
            except errors.UniqueViolation:
                connection.rollback()
                there = connection.execute(self._statements.ids_among, [columns[0]]).fetchall()
                checks.check_none_there([row[0] for row in there])
                raise
            if rebuilding is not None:
                connection.execute(rebuilding)

        self._connections.writing(write)

    def remove(self, ids: AnyArray) -> None:
        """Remove points, all or none."""
        ids = checks.checked_ids(ids, self.capabilities)
        self._change_all(ids, self._statements.remove, [self._layout.id.outgoing(ids)])

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, all or none."""
        column = self._layout.label
        if column is None:
            raise InvalidInputError(
                f"{self._names.table!r} must be opened with a label_column to be relabelled. "
                "Got None, and nearsure keeps the labels itself."
            )
        ids = checks.checked_ids(ids, self.capabilities)
        labels = checks.checked_labels(labels, len(ids), self.capabilities)
        values = [self._layout.id.outgoing(ids), column.outgoing(labels)]
        self._change_all(ids, self._statements.relabel(column), values)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors and labels, in the order of `ids`."""
        ids = checks.checked_ids(ids, self.capabilities)
        own_ids = self._layout.id.outgoing(ids)
        size = max(1, _FETCHED_BYTES // self._layout.stored.n_bytes)

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            self._settings.apply(connection)
            cursor = connection.cursor(binary=True)
            rows = []
            for start in range(0, len(own_ids) or 1, size):
                cursor.execute(self._statements.fetch, [own_ids[start : start + size]])
                rows += cursor.fetchall()
            return rows

        found, labels, _, data = self._unpack(self._connections.reading(ask))
        vectors = self._layout.stored.decode(data, len(found))
        return arrange_points(Stored(found, labels, vectors), ids)

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, in portions, ids ascending, as they are when the scan begins."""
        layout = self._layout
        # A connection of its own: a slow reader shall not keep others waiting.
        with self._connections.dedicated() as connection:
            self._settings.apply(connection)
            with connection.cursor("nearsure_scan", binary=True) as cursor:
                cursor.execute(self._statements.scan)
                while rows := cursor.fetchmany(_PORTION):
                    columns = list(zip(*rows, strict=True))
                    labels = None if layout.label is None else layout.label.incoming(columns[1])
                    yield Stored(layout.id.incoming(columns[0]), labels)

    def create_index(
        self,
        index: Literal["hnsw", "ivfflat"],
        *,
        m: int | None = None,
        ef_construction: int | None = None,
        lists: int | None = None,
    ) -> None:
        """Build or rebuild an approximate index; others cannot write meanwhile.

        Engines that are open keep what they search with; open one with this `index` to use it.

        Parameters
        ----------
        index : {"hnsw", "ivfflat"}
            Its kind; an index of the same kind and metric is replaced.
        m, ef_construction, lists : int, optional
            As for `create`.
        """
        options = options_of(index, {"m": m, "ef_construction": ef_construction, "lists": lists})
        self._connections.writing(
            lambda connection: build_index(connection, self._statements, index, options)
        )
        if index == self._index_name:
            self._look()

    def close(self) -> None:
        """Give back the connections. Closing twice is no error."""
        self._connections.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"PostgresEngine(<{self._address.shown}>, table={self._names.table!r}, "
            f"index={self._index_name!r}, metric={self._metric_name!r})"
        )

    def _look(self) -> None:
        """Take the table as it is now."""
        wanted = (self._names, self._metric, self._index_name)
        self._layout = layout = self._connections.reading(
            lambda connection: schema.read_layout(connection, *wanted)
        )
        self.dimension = layout.stored.dimension
        self.metric = self._metric.meaning
        self.capabilities = Capabilities(
            exact=self._index_name == "exact",
            holds_labels=layout.label is not None,
            ids=layout.id.kind,
            labels=None if layout.label is None else layout.label.kind,
        )
        self._statements = Statements(self._layout, self._metric, self._refine)
        if self._metric.needs_unit_length:
            off = self._number(self._statements.farthest_from_unit)
            schema.check_unit_length(off, repr(self._names.table))

    def _parts(self, n_queries: int, n_asked: int) -> Iterator[slice]:
        n_bytes = 16 + (self._layout.stored.n_bytes if self._refine else 8)
        size = max(1, min(_LARGEST_BATCH, _ANSWER_BYTES // (n_asked * n_bytes)))
        for start in range(0, n_queries, size):
            yield slice(start, start + size)

    def _nearest(self, queries: AnyArray, k: int, n_asked: int, settings: Settings) -> Found:
        by_index = settings.index_can_give(self._layout, n_asked)
        hits = self._hits(queries, n_asked, settings, by_index=by_index)
        found = found_from_hits(queries, hits, k)
        if not by_index or (found.counts >= k).all():
            return found
        # An index may give fewer than there are. They are counted, and looked for without it.
        short = np.flatnonzero(found.counts < self._number(self._statements.count_up_to, k))
        if not short.size:
            return found
        hits = self._hits(queries[short], n_asked, settings, by_index=False)
        again = found_from_hits(queries[short], hits, k)
        return replace_rows(found, short, again)

    def _hits(self, queries: AnyArray, n_asked: int, settings: Settings, *, by_index: bool) -> Hits:
        """What PostgreSQL finds: all queries in one statement by an index, else one for each."""
        codec, statements = self._layout.asked, self._statements
        values: Sequence[bytes] = (
            [codec.as_array(queries)] if by_index else codec.one_by_one(queries)
        )
        statement = statements.nearest_by_index if by_index else statements.nearest_by_scan

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            codec.register(connection)
            with connection.pipeline():
                if by_index:
                    settings.of_index_scan(connection, self._layout, n_asked)
                else:
                    settings.apply(connection)
                cursors = [connection.cursor(binary=True) for _ in values]
                for cursor, value in zip(cursors, values, strict=True):
                    cursor.execute(statement, [value, n_asked])
                return [row for cursor in cursors for row in cursor.fetchall()]

        rows = self._connections.reading(ask)
        if not by_index:
            return self._hits_of(np.arange(len(queries)), rows)
        numbers = np.array([row[0] for row in rows], np.int64) - 1
        return self._hits_of(numbers, [row[1:] for row in rows])

    def _hits_of(self, numbers: IntArray, rows: Sequence[Sequence[Any]]) -> Hits:
        """The hits in rows, each of which answers the query of its number."""
        ids, labels, counts, data = self._unpack(rows)
        hits, metric = Hits(np.repeat(numbers, counts), ids, labels), self._metric
        if not self._refine:
            distances = np.frombuffer(data, ">f8").astype(np.float64)
            return with_distances(hits, distances, metric.sq_distances)
        vectors = self._layout.stored.decode(data, len(ids))
        if metric.needs_unit_length and len(vectors):
            # A longer vector takes the place of nearer ones, which are then not among these.
            lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
            table = self._layout.relation.as_string()
            schema.check_unit_length(float(np.abs(lengths - 1).max()), table)
        return with_vectors(hits, vectors, metric.meaning)

    def _unpack(
        self, rows: Sequence[Sequence[Any]]
    ) -> tuple[AnyArray, AnyArray | None, IntArray, bytes]:
        """Ids and labels (if there are any) of packed rows, how many each held, and the rest."""
        layout = self._layout
        columns = list(zip(*rows, strict=True))
        ids, counts = layout.id.unpacked(columns[0])
        labels = None
        if layout.label is not None:
            labels, n_labels = layout.label.unpacked(columns[1])
            if not np.array_equal(n_labels, counts):
                raise UnusableGalleryError(layout.label.has_nulls)
        return ids, labels, counts, b"".join(part or b"" for part in columns[-1])

    def _change_all(self, ids: AnyArray, statement: bytes, values: Sequence[Any]) -> None:
        """Run a statement that returns the ids it changed, which must be all."""

        def write(connection: Connection) -> None:
            self._settings.apply(connection)
            changed = connection.execute(statement, values).fetchall()
            checks.check_all_there(ids, {row[0] for row in changed})

        self._connections.writing(write)

    def _copy(
        self,
        connection: Connection,
        columns: Sequence[Sequence[Any]],
        vectors: AnyArray,
        progress: Callable[[int], None] | None,
    ) -> None:
        codec = self._layout.stored
        codec.register(connection)
        with connection.cursor().copy(self._statements.copy) as copy:
            copy.set_types([*(column.type for column in self._layout.named), codec.oid])
            for start in range(0, len(vectors), _BLOCK):
                part = slice(start, start + _BLOCK)
                encoded = codec.one_by_one(vectors[part])
                for row in zip(*(column[part] for column in columns), encoded, strict=True):
                    copy.write_row(row)
                if progress is not None:
                    progress(start + len(encoded))

    def _number(self, statement: bytes, *values: int) -> float:
        """The number that a statement returns, 0 if none."""

        def ask(connection: Connection) -> float:
            self._settings.apply(connection)
            row = connection.execute(statement, values).fetchone()
            return 0 if row is None else row[0] or 0

        return self._connections.reading(ask)
