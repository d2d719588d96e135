"""Connections are few, come back, and are not shared between processes."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import postgres_server
import pytest
from postgres_server import N_POINTS, RUNNER, Server, add_one, running, wait_until

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
            small._connections._lent(),
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
    # By a name of its own: sessions of others may be about to end.
    sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'forgotten'"
    uri = f"{server.uri}?application_name=forgotten"
    other = PostgresEngine(uri, table=engine._names.table)
    # The connection that was tried first is about to end.
    wait_until(lambda: len(server.run(sessions)) == 1, "the only session")
    del other
    wait_until(lambda: not server.run(sessions), "the end of the session")


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


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_no_thread_meets_what_is_the_parents(engine: PostgresEngine) -> None:
    engine.size()
    connections = engine._connections
    parents = connections._own_pool()
    reads, writes = os.pipe()
    # In the middle of somebody's change, and with all connections lent.
    lent = [connections._lent() for _ in range(connections._size)]
    for connection in lent:
        connection.__enter__()
    with parents._lock:
        child = os.fork()
        if not child:
            try:
                seen: list[object] = []
                barrier = threading.Barrier(4)

                def ask() -> None:
                    barrier.wait(10)
                    seen.append(engine.size())

                threads = [threading.Thread(target=ask) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(20)
                seen.append(connections._own_pool() is parents)
                os.write(writes, repr(seen).encode())
            finally:
                os._exit(0)
    for connection in lent:
        connection.__exit__(None, None, None)
    os.close(writes)
    with open(reads, "rb") as answer:  # noqa: PTH123 - a descriptor
        assert answer.read().decode() == repr([*[N_POINTS] * 4, False])
    os.waitpid(child, 0)
    assert engine.size() == N_POINTS


def test_a_server_that_falls_silent_is_noticed(engine: PostgresEngine) -> None:
    with engine._connections.dedicated() as connection:
        parameters = connection.info.get_parameters()
    assert parameters["keepalives_idle"] == "30"
    assert parameters["tcp_user_timeout"] == "60000"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's death")
def test_a_server_does_not_outlive_the_tests() -> None:
    """Of the tests themselves: a program that was started ends when its starter is killed."""
    code = (
        "import os, subprocess, sys, time; "
        "own = [sys.executable, '-I', '-S', sys.argv[1], str(os.getpid()), '']; "
        "print(subprocess.Popen([*own, '/bin/sleep', '60'], stdout=-3).pid, flush=True); "
        "time.sleep(60)"
    )
    with subprocess.Popen(  # noqa: S603 - the arguments are ours
        [sys.executable, "-c", code, RUNNER], stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        program = int(starter.stdout.readline())
        assert program in running()
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: program not in running(), "the end of the program")
