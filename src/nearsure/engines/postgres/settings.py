"""Settings of the server that hold for one transaction."""

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import sql

from nearsure.engines.postgres.connections import Connection
from nearsure.engines.postgres.layout import Layout

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
        self._apply(connection, own)

    def of_any(self, connection: Connection) -> None:
        """What holds for every statement."""
        self._apply(connection, {})

    def _apply(self, connection: Connection, own: Mapping[str, str]) -> None:
        every = dict(own)
        if self.statement_timeout is not None:
            every["statement_timeout"] = str(max(1, round(1000 * self.statement_timeout)))
        if every:
            # True: until the end of the transaction.
            calls = sql.SQL(", ").join([sql.SQL("set_config(%s, %s, true)")] * len(every))
            values = [part for pair in every.items() for part in pair]
            connection.execute(sql.SQL("SELECT {}").format(calls), values)
