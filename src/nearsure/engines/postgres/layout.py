"""What a table is like: asked of the catalogue once, when a gallery is opened."""

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import sql

from nearsure.engines.postgres.binary_vectors import VectorCodec
from nearsure.engines.postgres.columns import Column, is_storable
from nearsure.errors import InvalidInputError

# The options of each kind of index, with pgvector's defaults.
INDEX_OPTIONS: Mapping[str, Mapping[str, int]] = {
    "hnsw": {"m": 16, "ef_construction": 64},
    "ivfflat": {"lists": 100},
}


@dataclass(frozen=True)
class VectorIndex:
    """An approximate index on the column of vectors.

    Parameters
    ----------
    method : str
        "hnsw" or "ivfflat".
    opclass : str
        Its operator class, such as "vector_l2_ops".
    options : tuple of (str, int)
        What it was built with, defaults included.
    """

    method: str
    opclass: str
    options: tuple[tuple[str, int], ...]


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
        Whether the user owns the table, and may therefore drop its index and build it anew.
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
    def can_continue(self) -> bool:
        """Whether pgvector goes on where an index gave fewer rows than were asked for."""
        return self.extension_version >= (0, 8)
