"""Tables of galleries: read from the catalogue, or created; columns and metrics."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
from psycopg import errors, sql

from nearsure import neighbors
from nearsure.arrays import AnyArray, FloatArray
from nearsure.engines.contract import Kind
from nearsure.engines.postgres.codec import VectorCodec, VectorType
from nearsure.engines.postgres.pool import Connection
from nearsure.errors import (
    EngineError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    UnusableGalleryError,
)
from nearsure.validation import preview

if TYPE_CHECKING:
    from typing import LiteralString

_INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
_TEXTS = ("text", "varchar", "uuid")
TYPES = (*_INTEGERS, *_TEXTS)


@dataclass(frozen=True)
class Column:
    """A column of ids or of labels.

    Parameters
    ----------
    name : str
        As the table has it.
    type : str
        One of `TYPES`.
    """

    name: str
    type: str

    @property
    def kind(self) -> Kind:
        """What it is to nearsure."""
        return "integer" if self.type in _INTEGERS else "text"

    @property
    def identifier(self) -> sql.Composable:
        """Its name in a statement."""
        return sql.Identifier(self.name)

    @property
    def sort_key(self) -> sql.Composable:
        """What sorts it as Python sorts: text by code points, whatever the server's language."""
        if self.type in ("text", "varchar"):
            return sql.SQL('{} COLLATE "C"').format(self.identifier)
        return self.identifier

    @property
    def plain(self) -> sql.Composable:
        """Its values as bigint or text."""
        cast = "bigint" if self.kind == "integer" else "text"
        return sql.SQL("{}::" + cast).format(self.identifier)

    @property
    def packed(self) -> sql.Composable:
        """Its values of many rows as one: a string of bytes, or an array of text."""
        form = "string_agg(int8send({}), '')" if self.kind == "integer" else "array_agg({})"
        return sql.SQL(form).format(self.plain)

    @property
    def array(self) -> sql.Composable:
        """The type that `outgoing` values have together."""
        if self.type == "uuid":
            return sql.SQL("uuid[]")
        return sql.SQL("bigint[]" if self.kind == "integer" else "text[]")

    def unpacked(self, parts: Sequence[Any]) -> tuple[AnyArray, AnyArray]:
        """The values of several packed ones behind each other, and how many each held."""
        if self.kind == "integer":
            data = [part or b"" for part in parts]
            values = np.frombuffer(b"".join(data), ">i8").astype(np.int64)
            return values, np.array([len(part) for part in data], np.int64) // 8
        lists = [part or [] for part in parts]
        flat = [value for part in lists for value in part]
        return self.incoming(flat), np.array([len(part) for part in lists], np.int64)

    def incoming(self, values: Sequence[Any]) -> AnyArray:
        """Values as they were read, as int64 or strings."""
        if any(value is None for value in values):
            raise UnusableGalleryError(self.has_nulls)
        return np.array(values, np.int64 if self.kind == "integer" else str)

    @property
    def has_nulls(self) -> str:
        """The message where a value is missing."""
        return (
            f"Every point must have a value in the column {self.name!r}. Got some without. Fill "
            "them in, or give label_column=None to keep labels outside of the table."
        )

    def outgoing(self, values: AnyArray) -> list[Any]:
        """Values as psycopg sends them; an error if the column cannot hold them."""
        if self.kind == "integer":
            limit = 2 ** (_INTEGERS[self.type] - 1)
            beyond = values[(values < -limit) | (values > limit - 1)]
            if beyond.size:
                raise InvalidInputError(
                    f"Values of the column {self.name!r} must fit its type {self.type}. "
                    f"Got {preview(beyond.tolist())} instead."
                )
            return list(values.tolist())
        texts: list[str] = values.tolist()
        if self.type != "uuid":
            return texts
        bad = [text for text in texts if not is_uuid(text)]
        if bad:
            raise InvalidInputError(
                f"Values of the column {self.name!r} must be lower-case UUIDs. "
                f"Got {bad[0]!r} instead."
            )
        return [UUID(text) for text in texts]


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can hold a text: no NUL, no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as PostgreSQL writes it."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


# The options of each kind of index, with pgvector's defaults.
INDEX_OPTIONS: Mapping[str, Mapping[str, int]] = {
    "hnsw": {"m": 16, "ef_construction": 64},
    "ivfflat": {"lists": 100},
}


class VectorIndex(NamedTuple):
    """An approximate index on the column of vectors.

    Parameters
    ----------
    method : str
        "hnsw" or "ivfflat".
    opclass : str
        Its operator class, such as "vector_l2_ops".
    given : list of str or None
        What it was built with where that is not pgvector's default, such as "m=8".
    is_valid : bool
        Whether it answers.
    dropping, making : str
        Statements that drop it and make it again.
    """

    method: str
    opclass: str
    given: list[str] | None
    is_valid: bool
    dropping: str
    making: str

    @property
    def options(self) -> dict[str, int]:
        """What it was built with."""
        given = dict(option.split("=", 1) for option in self.given or [])
        known = INDEX_OPTIONS[self.method]
        return {name: int(given.get(name, default)) for name, default in known.items()}


@dataclass(frozen=True)
class Names:
    """What a user calls the table and its columns; the schema may be left to the search path."""

    table: str
    id_column: str
    label_column: str | None
    vector_column: str

    def __post_init__(self) -> None:
        columns = (self.id_column, self.label_column, self.vector_column)
        if len(set(columns)) < len(columns):
            raise InvalidInputError(
                "Ids, labels and vectors must be in columns of their own. "
                f"Got {', '.join(map(repr, columns))} instead."
            )
        for name in (self.table, *columns):
            # psycopg would read % as the beginning of a parameter.
            if name is not None and ("%" in name or not name or not is_storable(name)):
                raise InvalidInputError(
                    "Names of tables and columns must not be empty, and be Unicode without % and "
                    f"zero bytes. Got {name!r} instead. Rename it."
                )

    @property
    def relation(self) -> sql.Identifier:
        """The table in a statement; a dot divides the schema from its name."""
        return sql.Identifier(*self.table.split(".", 1))


@dataclass(frozen=True)
class Layout:
    """A table that can be a gallery.

    Parameters
    ----------
    relation : psycopg.sql.Identifier
        The table, with its schema.
    id, label : Column
        Label is None if there is none.
    vector_column : str
        The column of vectors.
    may_lack_vector : bool
        Whether a row may have no vector; such a row is no point of the gallery.
    stored : VectorCodec
        Vectors as the table has them.
    asked : VectorCodec
        Queries as they are sent: in half precision only where an index in half precision asks for
        it.
    extension_schema, extension_version : str, tuple of int
        Where pgvector is, and which.
    index : VectorIndex or None
        The approximate index that answers; None for an exact search.
    may_rebuild : bool
        Whether the user owns the table, and may therefore drop its index and rebuild it.
    """

    relation: sql.Identifier
    id: Column
    label: Column | None
    vector_column: str
    may_lack_vector: bool
    stored: VectorCodec
    asked: VectorCodec
    extension_schema: str
    extension_version: tuple[int, ...]
    index: VectorIndex | None
    may_rebuild: bool

    @property
    def named(self) -> list[Column]:
        """The columns of ids and, if there are any, labels."""
        return [self.id] + ([] if self.label is None else [self.label])

    @property
    def can_continue(self) -> bool:
        """Whether pgvector goes on where an index gave fewer rows than were asked for."""
        return self.extension_version >= (0, 8)


MetricName: TypeAlias = Literal["euclidean", "cosine", "inner_product"]


@dataclass(frozen=True)
class Metric:
    """One way to compare vectors.

    Parameters
    ----------
    operator : str
        What PostgreSQL sorts by.
    opclass : str
        The operator class of an index, behind the name of the type and "_".
    sq_distances : callable
        From what the operator returns to squared Euclidean distances.
    meaning : {"euclidean", "cosine"}
        What it is to nearsure.
    needs_unit_length : bool
        Whether it ranks as it means only where stored vectors have unit length.
    """

    operator: str
    opclass: str
    sq_distances: Callable[[AnyArray], FloatArray]
    meaning: Literal["euclidean", "cosine"]
    needs_unit_length: bool = False


METRICS: Mapping[str, Metric] = {
    "euclidean": Metric("<->", "l2_ops", neighbors.l2, "euclidean"),
    "cosine": Metric("<=>", "cosine_ops", neighbors.cosine_distance, "cosine"),
    "inner_product": Metric(
        "<#>", "ip_ops", neighbors.negative_inner_product, "cosine", needs_unit_length=True
    ),
}


def metric_of(name: str) -> Metric:
    """The metric of this name."""
    if name not in METRICS:
        raise InvalidInputError(
            f"The 'metric' parameter must be one of {', '.join(METRICS)}. Got {name!r} instead."
        )
    return METRICS[name]


def check_unit_length(off: float, table: str) -> None:
    """An error if lengths of vectors differ from 1 by more than rounding does."""
    if off > neighbors.ROUNDING:
        raise GalleryMismatchError(
            f"Vectors of {table} must have unit length for metric 'inner_product'. Got lengths "
            f"that are off by {off:.3g}. Normalise them, or open the table with metric='cosine' "
            "or 'euclidean'."
        )


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
SELECT m.amname, o.opcname, c.reloptions, i.indisvalid,
'DROP INDEX ' || i.indexrelid::regclass, pg_get_indexdef(i.indexrelid)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
JOIN pg_opclass o ON o.oid = i.indclass[0]
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = to_regclass(%s) AND a.attname = %s
AND i.indpred IS NULL AND m.amname IN ('hnsw', 'ivfflat')
ORDER BY i.indisvalid DESC, i.indexrelid
"""


class _Extension(NamedTuple):
    version: tuple[int, ...]
    schema: str
    oids: dict[VectorType, tuple[int, int]]


class _RawColumn(NamedTuple):
    name: str
    number: int
    type: str
    modifier: int
    is_never_null: bool


def read_indexes(
    connection: Connection, relation: sql.Identifier, vector_column: str
) -> list[VectorIndex]:
    """The approximate indexes of a table, valid ones first."""
    names = [relation.as_string(connection), vector_column]
    return [VectorIndex(*row) for row in connection.execute(_INDEXES, names).fetchall()]


def read_layout(connection: Connection, names: Names, metric: Metric, index: str) -> Layout:
    """The layout of a table, for a search by this metric and this kind of index."""
    extension = _extension(connection)
    table_oid, relation, may_rebuild = _table(connection, names)
    rows = connection.execute(_COLUMNS, [table_oid]).fetchall()
    columns = {row[0]: _RawColumn(*row) for row in rows}

    def column(name: str, parameter: str, types: Collection[str]) -> _RawColumn:
        if name not in columns:
            without = "; label_column=None is for tables without"
            also = without if parameter == "label_column" else ""
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

    own_id = column(names.id_column, "id_column", TYPES)
    _check_identifies(connection, table_oid, own_id, names)
    label = None
    if names.label_column is not None:
        label = Column(names.label_column, column(names.label_column, "label_column", TYPES).type)
    vector = column(names.vector_column, "vector_column", extension.oids)
    dimension = vector.modifier
    if dimension < 0:
        dimension = _dimension_of_data(connection, relation, vector, extension.schema)
    chosen = None
    if index != "exact":
        opclass = f"{vector.type}_{metric.opclass}"
        indexes = read_indexes(connection, relation, vector.name)
        chosen = _chosen_index(indexes, index, opclass, names)
    codecs: dict[str, VectorCodec] = {
        name: VectorCodec(name, dimension, *oids) for name, oids in extension.oids.items()
    }
    stored = codecs[vector.type]
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
            "(names are case-sensitive; 'schema.table' names a schema), or make the table "
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
            f"The column {vector.name!r} must declare its dimension, as in {vector.type}(128), or "
            "hold vectors. Got neither: ALTER TABLE ... ALTER COLUMN ... TYPE."
        )
    return int(row[0])


def _chosen_index(
    indexes: list[VectorIndex], method: str, opclass: str, names: Names
) -> VectorIndex:
    valid = [index for index in indexes if index.is_valid]
    fitting = [index for index in valid if index.opclass == opclass]
    chosen = [index for index in fitting if index.method == method]
    if not chosen:
        there = ", ".join(f"{index.method} with {index.opclass}" for index in valid) or "none"
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
    return chosen[0]


# Text sorts as in Python, so that the primary key serves scans in that order.
_TYPES = {"integer": sql.SQL("bigint"), "text": sql.SQL('text COLLATE "C"')}
LARGEST_DIMENSION = 16_000
_MAKE_EXTENSION: "LiteralString" = "CREATE EXTENSION IF NOT EXISTS vector"


def ensure_extension(connection: Connection) -> None:
    """Make the extension `vector` if the database lacks it."""
    is_there = connection.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchone()
    if is_there is None:
        try:
            connection.execute(_MAKE_EXTENSION)
        except errors.UniqueViolation:
            # Another session made it at the same moment.
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
    vector = sql.Identifier(_extension(connection).schema, "vector")
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(name), definition)
        for name, definition in (
            (names.id_column, sql.SQL("{} PRIMARY KEY").format(_TYPES[id_kind])),
            (names.label_column, sql.SQL("{} NOT NULL").format(_TYPES[label_kind or "text"])),
            (names.vector_column, sql.SQL("{}({}) NOT NULL").format(vector, dimension)),
            (metadata_column, sql.SQL("jsonb")),
        )
        if name is not None
    ]
    connection.execute(
        sql.SQL("CREATE TABLE {} ({})").format(names.relation, sql.SQL(", ").join(columns))
    )
