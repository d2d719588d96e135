"""The statements of a gallery. Names are quoted, values are parameters."""

from dataclasses import dataclass
from functools import cached_property
from typing import LiteralString

from psycopg import sql

from nearsure.engines.postgres.columns import Column
from nearsure.engines.postgres.layout import Layout
from nearsure.engines.postgres.metrics import Metric

_NOTHING = sql.SQL("")


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
        Whether a search reads vectors, from which distances are computed anew, or the distances of
        PostgreSQL.
    """

    layout: Layout
    metric: Metric
    refined: bool

    @cached_property
    def nearest_by_index(self) -> bytes:
        """Takes an array of queries and a limit; a row for each query, with its number from 1."""
        # An index serves this order and no other, so that ties come as they come.
        distance = self._distance(sql.SQL("nearsure_query.vector"), self._vector)
        return _text(
            "SELECT nearsure_query.number, hits.* "
            "FROM unnest(%b) WITH ORDINALITY AS nearsure_query (vector, number) "
            "CROSS JOIN LATERAL ({}) AS hits",
            self._nearest(distance, ties=_NOTHING),
        )

    @cached_property
    def nearest_by_scan(self) -> bytes:
        """Takes one query and a limit; one row, without a number.

        A statement for each query, as PostgreSQL scans a large table with several processes only
        where the scan is not repeated within the statement.
        """
        vector = self._vector
        if self.layout.stored.type != self.layout.asked.type:
            vector = sql.SQL("{}::{}").format(vector, self._of_extension(self.layout.asked.type))
        # No index knows the sum, so that none can answer approximately.
        distance = sql.SQL("({}) + 0").format(self._distance(sql.SQL("%b"), vector))
        ties = sql.SQL(", {}").format(self.layout.id.sort_key)
        return self._nearest(distance, ties).as_bytes()

    @cached_property
    def any_row(self) -> bytes:
        """One row if the table has any, with or without a vector."""
        return _text("SELECT 1 FROM {} LIMIT 1", self.layout.relation)

    @cached_property
    def count_up_to(self) -> bytes:
        """Takes a limit; how many points there are, but no more than that."""
        return _text(
            "SELECT count(*) FROM (SELECT FROM {}{} LIMIT %s) AS taken",
            self.layout.relation,
            self._where(),
        )

    @cached_property
    def count(self) -> bytes:
        """How many points there are."""
        return _text("SELECT count(*) FROM {}{}", self.layout.relation, self._where())

    @cached_property
    def farthest_from_unit(self) -> bytes:
        """How far the lengths of some vectors are from 1, at most."""
        return _text(
            "SELECT max(abs({}(taken.nearsure_vector) - 1)) "
            "FROM (SELECT {}::{} AS nearsure_vector FROM {}{} LIMIT 1000) AS taken",
            self._of_extension("vector_norm"),
            self._vector,
            self._of_extension("vector"),
            self.layout.relation,
            self._where(),
        )

    @cached_property
    def scan(self) -> bytes:
        """Ids and labels, ids ascending."""
        columns = [self.layout.id.plain]
        if self.layout.label is not None:
            columns.append(self.layout.label.plain)
        return _text(
            "SELECT {} FROM {}{} ORDER BY {}",
            sql.SQL(", ").join(columns),
            self.layout.relation,
            self._where(),
            self.layout.id.sort_key,
        )

    @cached_property
    def fetch(self) -> bytes:
        """Takes ids; one row with those points, in any order."""
        packed = self._packed(with_vectors=True)
        return _text(
            "SELECT {} FROM {}{}", packed, self.layout.relation, self._where(self._is_named)
        )

    @cached_property
    def ids_among(self) -> bytes:
        """Takes ids; those that rows of the table have."""
        return _text(
            "SELECT {} FROM {} WHERE {}",
            self.layout.id.plain,
            self.layout.relation,
            self._is_named,
        )

    @cached_property
    def remove(self) -> bytes:
        """Takes ids; those that were removed."""
        return _text(
            "DELETE FROM {}{} RETURNING {}",
            self.layout.relation,
            self._where(self._is_named),
            self.layout.id.plain,
        )

    def relabel(self, label: Column) -> bytes:
        """Takes ids and labels; the ids that were relabelled."""
        new_id, new_label = self._unused("nearsure_id"), self._unused("nearsure_label")
        is_same = sql.SQL("{} = {}").format(self.layout.id.identifier, new_id)
        # The table has another name here, as its own may be that of the list.
        return _text(
            "UPDATE {} AS nearsure_points SET {} = {} "
            "FROM unnest(%s::{}, %s::{}) AS nearsure_list ({}, {}){} RETURNING {}",
            self.layout.relation,
            label.identifier,
            new_label,
            self.layout.id.array,
            label.array,
            new_id,
            new_label,
            self._where(is_same),
            self.layout.id.plain,
        )

    @cached_property
    def copy(self) -> bytes:
        """Rows of id, label (if there are any) and vector follow."""
        names = [self.layout.id.name, self.layout.vector_column]
        if self.layout.label is not None:
            names.insert(1, self.layout.label.name)
        return _text(
            "COPY {} ({}) FROM STDIN (FORMAT binary)",
            self.layout.relation,
            sql.SQL(", ").join(map(sql.Identifier, names)),
        )

    @property
    def _vector(self) -> sql.Composable:
        return sql.Identifier(self.layout.vector_column)

    @property
    def _is_named(self) -> sql.Composable:
        return sql.SQL("{} = ANY (%s::{})").format(self.layout.id.identifier, self.layout.id.array)

    def _nearest(self, distance: sql.Composable, ties: sql.Composable) -> sql.Composed:
        columns = [self.layout.id.identifier]
        if self.layout.label is not None:
            columns.append(self.layout.label.identifier)
        if self.refined:
            columns.append(self._vector)
        # The table has another name here, as its own may be that of the queries.
        return sql.SQL(
            "SELECT {} FROM (SELECT {}, {} AS {} FROM {} AS nearsure_points{} ORDER BY {}{} "
            "LIMIT %s) AS nearest"
        ).format(
            self._packed(with_vectors=self.refined),
            sql.SQL(", ").join(columns),
            distance,
            self._distance_name,
            self.layout.relation,
            self._where(),
            self._distance_name,
            ties,
        )

    def _packed(self, *, with_vectors: bool) -> sql.Composed:
        """Ids, labels (if there are any) and vectors or distances of many rows as one."""
        parts = [self.layout.id.packed]
        if self.layout.label is not None:
            parts.append(self.layout.label.packed)
        if with_vectors:
            send = self._of_extension(f"{self.layout.stored.type}_send")
            parts.append(sql.SQL("string_agg({}({}), '')").format(send, self._vector))
        else:
            parts.append(sql.SQL("string_agg(float8send({}), '')").format(self._distance_name))
        return sql.SQL(", ").join(parts)

    def _distance(self, query: sql.Composable, vector: sql.Composable) -> sql.Composed:
        operator = sql.SQL("OPERATOR({}." + self.metric.operator + ")").format(
            sql.Identifier(self.layout.extension_schema)
        )
        return sql.SQL("{} {} {}").format(vector, operator, query)

    @property
    def _distance_name(self) -> sql.Identifier:
        return self._unused("nearsure distance")

    def _unused(self, name: str) -> sql.Identifier:
        """A name that no column of the gallery has."""
        label = self.layout.label
        columns = (self.layout.id.name, label and label.name, self.layout.vector_column)
        while name in columns:
            name += "_"
        return sql.Identifier(name)

    def _where(self, *conditions: sql.Composable) -> sql.Composed:
        every = list(conditions)
        if self.layout.may_lack_vector:
            every.append(sql.SQL("{} IS NOT NULL").format(self._vector))
        joined = sql.SQL(" AND ").join(every)
        return sql.SQL(" WHERE {}").format(joined) if every else sql.Composed([])

    def _of_extension(self, name: str) -> sql.Identifier:
        return sql.Identifier(self.layout.extension_schema, name)


def _text(template: LiteralString, *parts: sql.Composable) -> bytes:
    return sql.SQL(template).format(*parts).as_bytes()
