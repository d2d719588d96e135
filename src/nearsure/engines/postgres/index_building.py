"""Approximate indexes, built and built anew."""

from collections.abc import Mapping

from psycopg import sql

from nearsure.engines.postgres.connections import Connection
from nearsure.engines.postgres.layout import INDEX_OPTIONS
from nearsure.engines.postgres.statements import Statements
from nearsure.errors import InvalidInputError

_DROP_AND_MAKE = """
SELECT 'DROP INDEX ' || i.indexrelid::regclass, pg_get_indexdef(i.indexrelid)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
JOIN pg_opclass o ON o.oid = i.indclass[0]
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = to_regclass(%s) AND a.attname = %s
AND i.indpred IS NULL AND m.amname = %s AND o.opcname = %s
ORDER BY i.indisvalid DESC, i.indexrelid
"""


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
    _drop(connection, statements, method, opclass)
    connection.execute(
        sql.SQL("CREATE INDEX ON {} USING {} ({} {}) WITH ({})").format(
            layout.relation,
            sql.Identifier(method),
            sql.Identifier(layout.vector_column),
            sql.Identifier(layout.extension_schema, opclass),
            sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
                for name, value in options.items()
            ),
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
    return _drop(connection, statements, layout.index.method, layout.index.opclass)


def _drop(
    connection: Connection, statements: Statements, method: str, opclass: str
) -> bytes | None:
    layout = statements.layout
    names = [layout.relation.as_string(connection), layout.vector_column]
    row = connection.execute(_DROP_AND_MAKE, [*names, method, opclass]).fetchone()
    if row is None:
        return None
    drop, make = row
    connection.execute(drop.encode())
    return bytes(make.encode())
