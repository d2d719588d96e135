"""SQL statements, settings of a session, and the building of indexes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from psycopg import sql

from nearsure.engines.contract import Effort
from nearsure.engines.postgres.pool import Connection
from nearsure.engines.postgres.schema import INDEX_OPTIONS, Column, Layout, Metric, read_indexes
from nearsure.errors import InvalidInputError

if TYPE_CHECKING:
    from typing import LiteralString

_COMMA = sql.SQL(", ")


@dataclass(frozen=True)
class Statements:
    """What is asked of one table by one metric.

    Parameters
    ----------
    layout : Layout
        The table.
    metric : Metric
        How its vectors are compared.
    refined : bool
        Whether a search reads vectors, from which distances are recomputed, or the distances of
        PostgreSQL.
    """

    layout: Layout
    metric: Metric
    refined: bool

    @cached_property
    def nearest_by_index(self) -> bytes:
        """Takes an array of queries and a limit; a row for each query, with its number from 1."""
        # An index serves this order and no other, so that ties come as they come.
        distance = self._composed("{vector} {operator} nearsure_query.vector")
        return self._text(
            "SELECT nearsure_query.number, hits.* "
            "FROM unnest(%b) WITH ORDINALITY AS nearsure_query (vector, number) "
            "CROSS JOIN LATERAL ({nearest}) AS hits",
            nearest=self._nearest(distance, ties=sql.SQL("")),
        )

    @cached_property
    def nearest_by_scan(self) -> bytes:
        """Takes one query and a limit; one row, without a number.

        A statement for each query, as PostgreSQL scans a large table with several processes only
        where the scan is not repeated within the statement.
        """
        # No index is on the sum, so that none can answer approximately.
        distance = self._composed("({vector}::{asked} {operator} %b) + 0")
        return self._nearest(distance, ties=self._composed(", {id_order}")).as_bytes()

    @cached_property
    def any_row(self) -> bytes:
        """One row if the table has any, with or without a vector."""
        return self._text("SELECT 1 FROM {table} LIMIT 1")

    @cached_property
    def count_up_to(self) -> bytes:
        """Takes a limit; how many points there are, but no more than that."""
        return self._text(
            "SELECT count(*) FROM (SELECT FROM {table} WHERE {is_point} LIMIT %s) AS taken"
        )

    @cached_property
    def count(self) -> bytes:
        """How many points there are."""
        return self._text("SELECT count(*) FROM {table} WHERE {is_point}")

    @cached_property
    def farthest_from_unit(self) -> bytes:
        """How far the lengths of some vectors are from 1, at most."""
        return self._text(
            "SELECT max(abs({norm}(taken.nearsure_vector) - 1)) FROM (SELECT {vector}::{single} "
            "AS nearsure_vector FROM {table} WHERE {is_point} LIMIT 1000) AS taken",
            norm=self._of_extension("vector_norm"),
            single=self._of_extension("vector"),
        )

    @cached_property
    def scan(self) -> bytes:
        """Ids and labels, ids ascending."""
        return self._text(
            "SELECT {columns} FROM {table} WHERE {is_point} ORDER BY {id_order}",
            columns=_COMMA.join(column.plain for column in self.layout.named),
        )

    @cached_property
    def fetch(self) -> bytes:
        """Takes ids; one row with those points, in any order."""
        return self._text(
            "SELECT {packed} FROM {table} WHERE {is_named} AND {is_point}",
            packed=self._packed(with_vectors=True),
        )

    @cached_property
    def ids_among(self) -> bytes:
        """Takes ids; those that rows of the table have."""
        return self._text("SELECT {plain_id} FROM {table} WHERE {is_named}")

    @cached_property
    def remove(self) -> bytes:
        """Takes ids; those that were removed."""
        return self._text(
            "DELETE FROM {table} WHERE {is_named} AND {is_point} RETURNING {plain_id}"
        )

    def relabel(self, label: Column) -> bytes:
        """Takes ids and labels; the ids that were relabelled."""
        # The table has another name here, as its own may be that of the list.
        return self._text(
            "UPDATE {table} AS nearsure_points SET {label} = {new_label} "
            "FROM unnest(%s::{id_array}, %s::{label_array}) AS nearsure_list ({new_id}, "
            "{new_label}) WHERE {id} = {new_id} AND {is_point} RETURNING {plain_id}",
            label=label.identifier,
            label_array=label.array,
            new_id=self._unused("nearsure_id"),
            new_label=self._unused("nearsure_label"),
        )

    @cached_property
    def copy(self) -> bytes:
        """Rows of id, label (if there are any) and vector follow."""
        return self._text(
            "COPY {table} ({columns}, {vector}) FROM STDIN (FORMAT binary)",
            columns=_COMMA.join(column.identifier for column in self.layout.named),
        )

    @cached_property
    def _parts(self) -> dict[str, sql.Composable]:
        """What the templates of statements name."""
        layout, vector = self.layout, sql.Identifier(self.layout.vector_column)
        own_id = layout.id.identifier
        has_vector = sql.SQL("{} IS NOT NULL").format(vector)
        operator = sql.SQL("OPERATOR({}." + self.metric.operator + ")")
        return {
            "table": layout.relation,
            "id": own_id,
            "plain_id": layout.id.plain,
            "id_order": layout.id.sort_key,
            "id_array": layout.id.array,
            "is_named": sql.SQL("{} = ANY (%s::{})").format(own_id, layout.id.array),
            "vector": vector,
            "asked": self._of_extension(layout.asked.type),
            "is_point": has_vector if layout.may_lack_vector else sql.SQL("TRUE"),
            "operator": operator.format(sql.Identifier(layout.extension_schema)),
        }

    def _nearest(self, distance: sql.Composable, ties: sql.Composable) -> sql.Composed:
        columns = [column.identifier for column in self.layout.named]
        if self.refined:
            columns.append(self._parts["vector"])
        # The table has another name here, as its own may be that of the queries.
        return self._composed(
            "SELECT {packed} FROM (SELECT {columns}, {distance} AS {name} FROM {table} "
            "AS nearsure_points WHERE {is_point} ORDER BY {name}{ties} LIMIT %s) AS nearest",
            packed=self._packed(with_vectors=self.refined),
            columns=_COMMA.join(columns),
            distance=distance,
            name=self._unused("nearsure distance"),
            ties=ties,
        )

    def _packed(self, *, with_vectors: bool) -> sql.Composed:
        """Ids, labels (if there are any) and vectors or distances of many rows as one."""
        send, values = sql.Identifier("float8send"), self._unused("nearsure distance")
        if with_vectors:
            send = self._of_extension(f"{self.layout.stored.type}_send")
            values = sql.Identifier(self.layout.vector_column)
        rest = sql.SQL("string_agg({}({}), '')").format(send, values)
        return _COMMA.join([*(column.packed for column in self.layout.named), rest])

    def _unused(self, name: str) -> sql.Identifier:
        """A name that no column of the gallery has."""
        columns = {self.layout.vector_column, *(column.name for column in self.layout.named)}
        while name in columns:
            name += "_"
        return sql.Identifier(name)

    def _of_extension(self, name: str) -> sql.Identifier:
        return sql.Identifier(self.layout.extension_schema, name)

    def _composed(self, template: "LiteralString", **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(template).format(**self._parts, **parts)

    def _text(self, template: "LiteralString", **parts: sql.Composable) -> bytes:
        return self._composed(template, **parts).as_bytes()


LARGEST_EF_SEARCH = 1000
LARGEST_PROBES = 32_768
_NO_LIMIT = str(2**31 - 1)


@dataclass(frozen=True)
class Settings:
    """What transactions are begun with.

    Parameters
    ----------
    ef_search : int
        How many candidates "hnsw" keeps; never fewer than are asked for.
    probes : int
        How many lists "ivfflat" looks into.
    statement_timeout : float or None
        Seconds after which the server gives a statement up.
    """

    ef_search: int
    probes: int
    statement_timeout: float | None

    def of_method(self, method: str) -> dict[str, int]:
        """What a kind of index heeds of these."""
        return {"ef_search": self.ef_search} if method == "hnsw" else {"probes": self.probes}

    def effort(self, layout: Layout) -> Effort | None:
        """How much of the index is searched, and at most; None without an index."""
        if layout.index is None:
            return None
        if layout.index.method == "hnsw":
            return Effort("ef_search", self.ef_search, LARGEST_EF_SEARCH)
        n_lists = int(layout.index.options.get("lists", LARGEST_PROBES))
        return Effort("probes", self.probes, max(n_lists, self.probes))

    def index_can_give(self, layout: Layout, n_asked: int) -> bool:
        """Whether there is an index that returns as many hits."""
        if layout.index is None:
            return False
        if layout.index.method != "hnsw" or layout.can_continue:
            return True
        return n_asked <= LARGEST_EF_SEARCH

    def of_index_scan(self, connection: Connection, layout: Layout, n_asked: int) -> None:
        """Have the planner take the index, and the index look far enough."""
        # Compiling a statement takes longer than running it.
        own = {"enable_seqscan": "off", "enable_sort": "off", "jit": "off"}
        method = "" if layout.index is None else layout.index.method
        if method == "hnsw":
            ef_search = min(max(self.ef_search, n_asked), LARGEST_EF_SEARCH)
            own["hnsw.ef_search"] = str(ef_search)
        else:
            own["ivfflat.probes"] = str(self.probes)
        if layout.can_continue:
            own[f"{method}.iterative_scan"] = "relaxed_order"
            if method == "hnsw":
                own["hnsw.max_scan_tuples"] = _NO_LIMIT
        self.apply(connection, own)

    def apply(self, connection: Connection, own: Mapping[str, str] | None = None) -> None:
        """Set the time limit of every statement, and some more, for the transaction."""
        every = dict(own or {})
        if self.statement_timeout is not None:
            every["statement_timeout"] = str(max(1, round(1000 * self.statement_timeout)))
        if every:
            # True: until the end of the transaction.
            calls = _COMMA.join([sql.SQL("set_config(%s, %s, true)")] * len(every))
            values = [part for pair in every.items() for part in pair]
            connection.execute(sql.SQL("SELECT {}").format(calls), values)


def options_of(method: str, given: Mapping[str, int | None]) -> dict[str, int]:
    """The options of an index: those given, else pgvector's own."""
    if method not in INDEX_OPTIONS:
        raise InvalidInputError(
            f"The 'index' parameter must be one of {', '.join(INDEX_OPTIONS)}. "
            f"Got {method!r} instead."
        )
    own = INDEX_OPTIONS[method]
    foreign = [name for name, value in given.items() if value is not None and name not in own]
    if foreign:
        raise InvalidInputError(
            f"Options of the index {method} are {', '.join(own)}. Got {', '.join(foreign)} instead."
        )
    return {name: given.get(name) or default for name, default in own.items()}


def build_index(
    connection: Connection, statements: Statements, method: str, options: Mapping[str, int]
) -> None:
    """Build an index for the statements' metric, in place of one of the same kind."""
    layout = statements.layout
    opclass = f"{layout.stored.type}_{statements.metric.opclass}"
    _drop(connection, layout, method, opclass)
    given = [
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in options.items()
    ]
    connection.execute(
        sql.SQL("CREATE INDEX ON {} USING {} ({} {}) WITH ({})").format(
            layout.relation,
            sql.Identifier(method),
            sql.Identifier(layout.vector_column),
            sql.Identifier(layout.extension_schema, opclass),
            _COMMA.join(given),
        )
    )


def drop_if_empty(connection: Connection, statements: Statements) -> bytes | None:
    """Drop the index of an empty table; the statement that makes it again, else None."""
    layout = statements.layout
    if layout.index is None:
        return None
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(layout.relation))
    if connection.execute(statements.any_row).fetchone() is not None:
        return None
    return _drop(connection, layout, layout.index.method, layout.index.opclass)


def _drop(connection: Connection, layout: Layout, method: str, opclass: str) -> bytes | None:
    """Drop an index of this kind, the valid one first; the statement that makes it again."""
    for index in read_indexes(connection, layout.relation, layout.vector_column):
        if (index.method, index.opclass) == (method, opclass):
            connection.execute(index.dropping.encode())
            return index.making.encode()
    return None
