"""From the catalogue of a database to the layout of a table, or to what is wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from nearsure.engines.postgres.binary_vectors import VectorCodec, VectorType
from nearsure.engines.postgres.columns import TYPES, Column
from nearsure.engines.postgres.connections import Connection
from nearsure.engines.postgres.layout import INDEX_OPTIONS, Layout, Names, VectorIndex
from nearsure.engines.postgres.metrics import Metric
from nearsure.errors import GalleryMismatchError, GalleryNotFoundError

_TABLE_KINDS = ("r", "p", "m")

_EXTENSION = """
SELECT e.extversion, n.nspname, t.typname, t.oid, t.typarray
FROM pg_extension e
JOIN pg_namespace n ON n.oid = e.extnamespace
JOIN pg_type t ON t.typnamespace = n.oid AND t.typname IN ('vector', 'halfvec')
WHERE e.extname = 'vector'
"""
_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, a.attnum, t.typname, a.atttypmod, a.attnotnull
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
_IS_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_index
    WHERE indrelid = %s AND indkey[0] = %s AND indnkeyatts = 1
    AND indisunique AND indisvalid AND indpred IS NULL
)
"""
_INDEXES = """
SELECT m.amname, o.opcname, c.reloptions
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
JOIN pg_opclass o ON o.oid = i.indclass[0]
WHERE i.indrelid = %s AND i.indkey[0] = %s AND i.indisvalid AND i.indpred IS NULL
AND m.amname IN ('hnsw', 'ivfflat')
ORDER BY i.indexrelid
"""


@dataclass(frozen=True)
class _Extension:
    version: tuple[int, ...]
    schema: str
    oids: dict[VectorType, tuple[int, int]]


@dataclass(frozen=True)
class _RawColumn:
    name: str
    number: int
    type: str
    modifier: int
    is_never_null: bool


def read_layout(connection: Connection, names: Names, metric: Metric, index: str) -> Layout:
    """The layout of a table, for a search by this metric and this kind of index."""
    extension = _extension(connection)
    table_oid, relation, may_rebuild = _table(connection, names)
    rows = connection.execute(_COLUMNS, [table_oid]).fetchall()
    columns = {row[0]: _RawColumn(*row) for row in rows}
    own_id = _column(columns, names.id_column, "id_column", TYPES, names)
    _check_identifies(connection, table_oid, own_id, names)
    label = None
    if names.label_column is not None:
        raw_label = _column(columns, names.label_column, "label_column", TYPES, names)
        label = Column(raw_label.name, raw_label.type)
    vector = _column(columns, names.vector_column, "vector_column", tuple(extension.oids), names)
    dimension = vector.modifier
    if dimension < 0:
        dimension = _dimension_of_data(connection, relation, vector, extension.schema)
    chosen = None
    if index != "exact":
        opclass = f"{vector.type}_{metric.opclass}"
        indexes = connection.execute(_INDEXES, [table_oid, vector.number]).fetchall()
        chosen = _chosen_index(indexes, index, opclass, names)
    codecs = {name: VectorCodec(name, dimension, *oids) for name, oids in extension.oids.items()}
    stored = next(codec for name, codec in codecs.items() if name == vector.type)
    return Layout(
        relation=relation,
        id=Column(own_id.name, own_id.type),
        label=label,
        vector_column=vector.name,
        may_lack_vector=not vector.is_never_null,
        stored=stored,
        asked=codecs["vector"] if chosen is None else stored,
        extension_schema=extension.schema,
        extension_version=extension.version,
        index=chosen,
        may_rebuild=may_rebuild,
    )


def _extension(connection: Connection) -> _Extension:
    rows = connection.execute(_EXTENSION).fetchall()
    if not rows:
        raise GalleryNotFoundError(
            "The database must have the extension 'vector'. Got one without. Run CREATE EXTENSION "
            "vector, or let PostgresEngine.create do so."
        )
    version = tuple(int(part) for part in rows[0][0].split(".") if part.isdigit())
    return _Extension(version, rows[0][1], {name: (oid, array) for _, _, name, oid, array in rows})


def _table(connection: Connection, names: Names) -> tuple[int, sql.Identifier, bool]:
    row = connection.execute(_TABLE, [names.relation.as_string(connection)]).fetchone()
    if row is None:
        raise GalleryNotFoundError(
            f"The database has no table {names.table!r} that this user can see. Check the name "
            "(small and capital letters differ; 'schema.table' names a schema), or make the table "
            "with PostgresEngine.create."
        )
    oid, schema, name, kind, may_rebuild = row
    if kind not in _TABLE_KINDS:
        raise GalleryMismatchError(
            f"{names.table!r} must be a table or a materialised view. Got a relation of kind "
            f"{kind!r} instead."
        )
    # The definition of an index on a partitioned table does not make it again.
    return oid, sql.Identifier(schema, name), may_rebuild and kind == "r"


def _column(
    columns: dict[str, _RawColumn],
    name: str,
    parameter: str,
    types: tuple[str, ...],
    names: Names,
) -> _RawColumn:
    if name not in columns:
        also = "; label_column=None is for tables without" if parameter == "label_column" else ""
        raise GalleryMismatchError(
            f"The {parameter!r} parameter must be one of the columns of {names.table!r}: "
            f"{', '.join(columns)}{also}. Got {name!r} instead."
        )
    if columns[name].type not in types:
        raise GalleryMismatchError(
            f"The column {name!r} of {names.table!r} must have one of the types "
            f"{', '.join(types)}. Got {columns[name].type} instead."
        )
    return columns[name]


def _check_identifies(
    connection: Connection, table_oid: int, column: _RawColumn, names: Names
) -> None:
    row = connection.execute(_IS_UNIQUE, [table_oid, column.number]).fetchone()
    if not (row and row[0] and column.is_never_null):
        raise GalleryMismatchError(
            f"The column {column.name!r} of {names.table!r} must be its primary key, or unique and "
            "not null, as it names the points. Got one that is not: ALTER TABLE ... ADD PRIMARY "
            "KEY, or give another id_column."
        )


def _dimension_of_data(
    connection: Connection, relation: sql.Identifier, vector: _RawColumn, extension_schema: str
) -> int:
    column = sql.Identifier(vector.name)
    statement = sql.SQL("SELECT {}({}) FROM {} WHERE {} IS NOT NULL LIMIT 1").format(
        sql.Identifier(extension_schema, "vector_dims"), column, relation, column
    )
    row = connection.execute(statement).fetchone()
    if row is None:
        raise GalleryMismatchError(
            f"The column {vector.name!r} must say its dimension, as in {vector.type}(128), or hold "
            "vectors. Got neither: ALTER TABLE ... ALTER COLUMN ... TYPE."
        )
    return int(row[0])


def _chosen_index(
    rows: Sequence[Sequence[Any]], method: str, opclass: str, names: Names
) -> VectorIndex:
    fitting = [row for row in rows if row[1] == opclass]
    chosen = [row for row in fitting if row[0] == method]
    if not chosen:
        there = ", ".join(f"{row[0]} with {row[1]}" for row in rows) or "none"
        raise GalleryMismatchError(
            f"{names.table!r} must have a valid index {method} with the operator class {opclass}, "
            f"as 'index' and 'metric' say. Got {there}. Open it with another index or metric, or "
            f"with index='exact' and call create_index({method!r})."
        )
    if len(fitting) > 1:
        raise GalleryMismatchError(
            f"{names.table!r} must have one index with the operator class {opclass}, as "
            f"PostgreSQL takes whichever it finds cheaper. Got {len(fitting)}. Drop the others."
        )
    options = chosen[0][2]
    given = dict(option.split("=", 1) for option in options or [])
    known = INDEX_OPTIONS[method]
    return VectorIndex(
        method, opclass, tuple((key, int(given.get(key, known[key]))) for key in known)
    )
