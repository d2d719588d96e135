"""Connections are few, come back, and are not shared between processes."""

import os
import time

import numpy as np
import postgres_server
import pytest
from postgres_server import N_POINTS, USER, Server, add_one

from nearsure.engines.postgres import PostgresEngine
from nearsure.errors import (
    EngineError,
    EngineUnavailableError,
)

server = postgres_server.server
engine = postgres_server.engine


def test_connections_are_not_enough(server: Server, engine: PostgresEngine) -> None:
    with PostgresEngine(server.uri, table=engine._names.table, pool_size=1, timeout=1) as small:
        portions = small.scan()
        next(portions)
        # A scan that is under way keeps nobody waiting.
        assert small.size() == N_POINTS
        portions.close()  # type: ignore[attr-defined]
        with (
            small._connections._slot(),
            pytest.raises(EngineUnavailableError, match="pool_size"),
        ):
            small.size()
        assert small.size() == N_POINTS


def test_closed_means_closed(server: Server, engine: PostgresEngine) -> None:
    other = PostgresEngine(server.uri, table=engine._names.table)
    other.close()
    for ask in (other.size, lambda: add_one(other), lambda: list(other.scan())):
        with pytest.raises(EngineError, match="closed"):
            ask()
    assert other.fingerprint()["engine"] == "postgres"


def test_forgotten_engines_give_their_connections_back(
    server: Server, engine: PostgresEngine
) -> None:
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{USER}'"  # noqa: S608
    before = server.run(sessions)[0][0]
    other = PostgresEngine(server.uri, table=engine._names.table)
    assert server.run(sessions)[0][0] == before + 1
    del other
    deadline = time.monotonic() + 5
    while server.run(sessions)[0][0] > before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_each_has_its_own_connection(engine: PostgresEngine) -> None:
    before = engine.search(np.ones((2, 8)), 5).ids
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        # The child must not return into pytest, whatever happens.
        try:
            ids = engine.search(np.ones((2, 8)), 5).ids
            engine.close()
            os.write(writes, ids.tobytes())
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as answer:  # noqa: PTH123 - a descriptor
        assert answer.read() == before.tobytes()
    os.waitpid(child, 0)
    np.testing.assert_array_equal(engine.search(np.ones((2, 8)), 5).ids, before)
