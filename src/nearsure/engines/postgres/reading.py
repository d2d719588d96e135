"""How many points there are, points by their ids, and all ids in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Stored
from nearsure.engines.postgres.connections import Connection, Connections
from nearsure.engines.postgres.packed_rows import unpacked
from nearsure.engines.postgres.settings import Settings
from nearsure.engines.postgres.statements import Statements
from nearsure.errors import InvalidInputError
from nearsure.index.stable_ids import a_few

_PORTION = 10_000
# What one statement may bring: PostgreSQL's values end at 2^30 bytes.
_FETCHED_BYTES = 2**26


@dataclass(frozen=True)
class Reading:
    """Reading one table, without searching.

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

    def count(self) -> int:
        """How many points there are."""

        def ask(connection: Connection) -> int:
            self.settings.of_any(connection)
            row = connection.execute(self.statements.count).fetchone()
            return 0 if row is None else int(row[0])

        return self.connections.reading(ask)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors and labels, in the order of `ids`."""
        layout = self.statements.layout
        own_ids = layout.id.outgoing(ids)
        size = max(1, _FETCHED_BYTES // layout.stored.n_bytes)

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            self.settings.of_any(connection)
            cursor = connection.cursor(binary=True)
            rows = []
            for start in range(0, len(own_ids) or 1, size):
                cursor.execute(self.statements.fetch, [own_ids[start : start + size]])
                rows += cursor.fetchall()
            return rows

        packed = unpacked(layout, self.connections.reading(ask))
        check_all_there(ids, packed.ids.tolist())
        row_of = {own: row for row, own in enumerate(packed.ids.tolist())}
        order = np.array([row_of[own] for own in ids.tolist()], np.int64)
        labels = None if packed.labels is None else packed.labels[order]
        return Stored(packed.ids[order], labels, packed.vectors(layout)[order])

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, ids ascending, as they were when the scan began."""
        layout = self.statements.layout
        # A connection of its own: a slow reader shall not keep others waiting.
        with self.connections.apart() as connection:
            self.settings.of_any(connection)
            with connection.cursor("nearsure_scan", binary=True) as cursor:
                cursor.execute(self.statements.scan)
                while rows := cursor.fetchmany(_PORTION):
                    columns = list(zip(*rows, strict=True))
                    labels = None if layout.label is None else layout.label.incoming(columns[1])
                    yield Stored(layout.id.incoming(columns[0]), labels)


def check_all_there(asked: AnyArray, there: Sequence[Any]) -> None:
    """An error that names a few of the ids that are not there."""
    known = set(there)
    missing = [own for own in asked.tolist() if own not in known]
    if missing:
        raise InvalidInputError(
            "ids must be those of points in the gallery. "
            f"Got {a_few(missing)}, which it does not hold."
        )
