"""Changes of a gallery, each in one transaction: whole, or not at all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import errors

from nearsure.arrays import AnyArray
from nearsure.engines.postgres.connections import Connection, Connections
from nearsure.engines.postgres.index_building import drop_if_empty
from nearsure.engines.postgres.reading import check_all_there
from nearsure.engines.postgres.settings import Settings
from nearsure.engines.postgres.statements import Statements
from nearsure.errors import InvalidInputError
from nearsure.index.stable_ids import a_few

# Points that are sent between two calls of a progress function.
_BLOCK = 10_000


@dataclass(frozen=True)
class Changes:
    """Adding, removing and relabelling in one table.

    Parameters
    ----------
    connections : Connections
        The server.
    statements : Statements
        What is asked of the table.
    settings : Settings
        What transactions are begun with.
    """

    connections: Connections
    statements: Statements
    settings: Settings

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
            self.settings.of_any(connection)
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

        def write(connection: Connection) -> None:
            self.settings.of_any(connection)
            removed = connection.execute(self.statements.remove, [own_ids]).fetchall()
            check_all_there(ids, [row[0] for row in removed])

        self.connections.writing(write)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, all or none."""
        layout = self.statements.layout
        if layout.label is None:
            raise InvalidInputError("There must be a column of labels. Got None.")
        values = [layout.id.outgoing(ids), layout.label.outgoing(labels)]
        statement = self.statements.relabel(layout.label)

        def write(connection: Connection) -> None:
            self.settings.of_any(connection)
            changed = connection.execute(statement, values).fetchall()
            check_all_there(ids, [row[0] for row in changed])

        self.connections.writing(write)

    def _copy(
        self,
        connection: Connection,
        columns: Sequence[Sequence[Any]],
        vectors: AnyArray,
        progress: Callable[[int], None] | None,
    ) -> None:
        layout = self.statements.layout
        layout.stored.take_up(connection)
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

    def _is_empty(self, connection: Connection) -> bool:
        return connection.execute(self.statements.any_row).fetchone() is None

    def _check_are_new(self, connection: Connection, own_ids: Sequence[Any]) -> None:
        there = connection.execute(self.statements.ids_among, [own_ids]).fetchall()
        if there:
            raise InvalidInputError(
                f"ids of new points must be new. Got {a_few([row[0] for row in there])}, which the "
                "gallery holds already. Nothing was added. Remove these points first, or leave "
                "them out."
            ) from None
