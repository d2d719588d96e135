"""A new table for a gallery."""

from typing import Literal, LiteralString, TypeAlias

from psycopg import errors, sql

from nearsure.engines.postgres.connections import Connection
from nearsure.engines.postgres.layout import Names
from nearsure.errors import EngineError, InvalidInputError

Kind: TypeAlias = Literal["integer", "text"]
# Text sorts as in Python, so that the primary key serves scans in that order.
_TYPES = {"integer": sql.SQL("bigint"), "text": sql.SQL('text COLLATE "C"')}
LARGEST_DIMENSION = 16_000
_MAKE_EXTENSION: LiteralString = "CREATE EXTENSION IF NOT EXISTS vector"


def ensure_extension(connection: Connection) -> None:
    """Make the extension `vector` if the database lacks it."""
    is_there = connection.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchone()
    if is_there is None:
        try:
            connection.execute(_MAKE_EXTENSION)
        except errors.UniqueViolation:
            # Somebody else made it at the same moment.
            connection.rollback()
        except (errors.FeatureNotSupported, errors.UndefinedFile) as error:
            raise EngineError(
                "The server must have pgvector installed, for databases to have the extension "
                f"'vector'. It says: {error.diag.message_primary}. Install pgvector there."
            ) from None


def create_table(
    connection: Connection,
    names: Names,
    dimension: int,
    kinds: tuple[Kind, Kind | None],
    metadata_column: str | None,
) -> None:
    """Make a table of ids, labels (if of any kind), vectors and metadata."""
    if not 1 <= dimension <= LARGEST_DIMENSION:
        raise InvalidInputError(
            f"The 'dimension' parameter must be from 1 to {LARGEST_DIMENSION}, pgvector's limit. "
            f"Got {dimension} instead."
        )
    id_kind, label_kind = kinds
    for name, kind in (("id_kind", id_kind), ("label_kind", label_kind)):
        if kind not in _TYPES and (name, kind) != ("label_kind", None):
            raise InvalidInputError(
                f"The {name!r} parameter must be 'integer' or 'text'. Got {kind!r} instead."
            )
    columns = [_column(names.id_column, _TYPES[id_kind], "PRIMARY KEY")]
    if names.label_column is not None and label_kind is not None:
        columns.append(_column(names.label_column, _TYPES[label_kind], "NOT NULL"))
    columns.append(_column(names.vector_column, _vector_type(connection, dimension), "NOT NULL"))
    if metadata_column is not None:
        columns.append(_column(metadata_column, sql.SQL("jsonb"), ""))
    connection.execute(
        sql.SQL("CREATE TABLE {} ({})").format(names.relation, sql.SQL(", ").join(columns))
    )


def _column(
    name: str, type_name: sql.Composable, constraint: Literal["PRIMARY KEY", "NOT NULL", ""]
) -> sql.Composed:
    return sql.SQL("{} {} {}").format(sql.Identifier(name), type_name, sql.SQL(constraint))


def _vector_type(connection: Connection, dimension: int) -> sql.Composed:
    row = connection.execute(
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
        "WHERE e.extname = 'vector'"
    ).fetchone()
    schema = "public" if row is None else row[0]
    return sql.SQL("{}({})").format(sql.Identifier(schema, "vector"), sql.Literal(dimension))
