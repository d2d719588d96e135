"""Connections are few, come back, and are not shared between processes."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import postgres_server
import psycopg
import pytest
from postgres_server import (
    N_POINTS,
    PASSWORD,
    RUNNER,
    USER,
    Server,
    add_one,
    free_port,
    running,
    table_of,
    wait_until,
)
from psycopg.conninfo import conninfo_to_dict

from nearsure.engines.postgres import PostgresEngine, schema
from nearsure.engines.postgres.pool import URI_VARIABLE, address_of
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    NearsureError,
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


# Where the address comes from, and that its password is shown nowhere.


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_secrets_are_shown_nowhere(
    server: Server,
    engine: PostgresEngine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = "hush-hush"  # noqa: S105 - it is nobody's
    monkeypatch.setenv("PGPASSWORD", secret)
    caplog.set_level(logging.DEBUG)
    there = f"127.0.0.1:{server.port}"
    shown = [repr(engine), str(engine), repr(engine._address), str(dict(engine.fingerprint()))]
    addresses = [
        f"postgresql://{USER}:{secret}@{there}/postgres",
        f"postgresql://{USER}@{there}/postgres?password={secret}",
        f"host=127.0.0.1 port={server.port} user={USER} password='{secret}' dbname=postgres",
        f"postgresql://{USER}@{there}/postgres",
        f"postgresql://{USER}:{secret}@127.0.0.1:{free_port()}/postgres",
        # Addresses that are not well formed: an @ and a : that were not encoded, an odd field.
        f"postgresql://{USER}:a@{secret}@{there}/postgres",
        f"postgresql://{USER}:{secret}@host:{secret}/postgres",
        f"postgresql://{USER}:{secret}%zz@{there}/postgres",
        f"postgres://{USER}:x@{there}/postgres?pasword={secret}",
        f"{USER}:{secret}@{there}",
        # A / that was not encoded: what is behind it would be the name of a database.
        f"postgresql://{USER}:123/{secret}@{there}/postgres",
        f"postgres://{USER}:123/a@{secret}@{there}/postgres",
        f"postgresql://{USER}/{secret}:x@{there}/postgres",
        f"postgresql://{USER}?password={secret}@{there}/postgres",
        f"dbname=postgresql://{USER}:{secret}@{there}/postgres",
    ]
    for address in addresses:
        for open_it in (PostgresEngine, lambda uri: PostgresEngine.create(uri, dimension=3)):
            with pytest.raises((EngineError, InvalidInputError)) as caught:
                open_it(address)
            shown += [f"{link!s} {link!r}" for link in chain_of(caught.value)]
    with pytest.raises(GalleryNotFoundError) as missing:
        PostgresEngine(server.uri, table="no such table")
    shown += [f"{link!s} {link!r}" for link in chain_of(missing.value)]
    shown.append(caplog.text)
    for text in shown:
        assert secret not in text
        assert PASSWORD not in text
        assert server.uri not in text


def test_address_from_the_environment(
    server: Server, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = engine._names.table
    monkeypatch.setenv(URI_VARIABLE, server.uri)
    with PostgresEngine(table=table) as other:
        assert other.size() == N_POINTS
        assert str(server.port) in repr(other)
    monkeypatch.delenv(URI_VARIABLE)
    for name, value in {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGUSER": USER,
        "PGPASSWORD": PASSWORD,
        "PGDATABASE": "postgres",
    }.items():
        monkeypatch.setenv(name, value)
    with PostgresEngine(table=table) as other:
        assert other.size() == N_POINTS
        assert "libpq" in repr(other)


def test_an_encoded_at_is_part_of_a_user() -> None:
    address = address_of("postgresql://ann%40home:s3%2Fcr%40et@db:5433/shop", timeout=5)
    parts = conninfo_to_dict(address.conninfo)
    assert (parts["user"], parts["password"], parts["dbname"]) == ("ann@home", "s3/cr@et", "shop")
    assert "s3" not in address.shown


# What goes wrong with a real server: the error says so, nothing is half done, work goes on.


def terminate_others(server: Server) -> None:
    """End the sessions of the user, as a server does that is shut down."""
    sessions = f"FROM pg_stat_activity WHERE usename = '{USER}'"

    def are_ended() -> bool:
        # A pool may be about to open one.
        server.run(f"SELECT pg_terminate_backend(pid) {sessions}")
        return not server.run(f"SELECT 1 {sessions}")

    wait_until(are_ended, "the end of all sessions")


# A server that goes away


def test_killed_during_a_load(server: Server, engine: PostgresEngine) -> None:
    n = 25_000
    vectors = np.random.default_rng(0).normal(size=(n, 8))
    ids, labels = np.arange(n) + 1000, np.zeros(n, np.int64)
    sent: list[int] = []

    def kill_after_the_first_block(n_sent: int) -> None:
        sent.append(n_sent)
        if len(sent) == 1:
            server.kill()

    with pytest.raises(EngineUnavailableError, match="Nothing was changed"):
        engine.add(vectors, ids, labels, progress=kill_after_the_first_block)
    assert sent[0] < n
    with pytest.raises(EngineUnavailableError):
        engine.size()
    server.start()
    assert engine.size() == N_POINTS
    assert sum(len(portion.ids) for portion in engine.scan()) == N_POINTS
    add_one(engine)
    assert engine.size() == N_POINTS + 1


def test_killed_while_scoring(server: Server, engine: PostgresEngine) -> None:
    queries = np.random.default_rng(1).normal(size=(200, 8))
    before = engine.search(queries, 10)
    outcome: list[NearsureError] = []
    is_searching = threading.Event()

    def score() -> None:
        try:
            for _ in range(10_000):
                engine.search(queries, 10)
                is_searching.set()
        except NearsureError as error:
            outcome.append(error)

    thread = threading.Thread(target=score)
    thread.start()
    assert is_searching.wait(20)
    server.kill()
    thread.join(20)
    assert [type(error) for error in outcome] == [EngineUnavailableError]
    for ask in (engine.size, lambda: list(engine.scan()), lambda: engine.fetch(np.array([1]))):
        with pytest.raises(EngineUnavailableError):
            ask()
    with pytest.raises(EngineUnavailableError, match="Nothing was changed"):
        engine.remove(np.array([1]))
    server.start()
    after = engine.search(queries, 10)
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.sq_distances, before.sq_distances)


def test_killed_during_a_scan(
    server: Server, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsure.engines.postgres.engine._PORTION", 10)
    portions = engine.scan()
    assert next(portions).ids.tolist() == list(range(10))
    server.kill()
    with pytest.raises(EngineUnavailableError):
        list(portions)
    server.start()
    assert [len(portion.ids) for portion in engine.scan()] == [10] * 5


def test_sessions_that_ended_are_replaced_unnoticed(server: Server, engine: PostgresEngine) -> None:
    calls: list[Callable[[], object]] = [
        lambda: engine.search(np.ones((3, 8)), 2),
        engine.size,
        lambda: engine.fetch(np.array([1])),
        lambda: list(engine.scan()),
        lambda: add_one(engine),
        lambda: engine.relabel(np.array([10**6]), np.array([2])),
        lambda: engine.remove(np.array([10**6])),
    ]
    for call in calls:
        terminate_others(server)
        call()
    assert engine.size() == N_POINTS


def test_a_full_pool_says_why_no_connection_comes(
    server: Server, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool connects in a thread of its own, and nobody is told that it fails."""
    own = PostgresEngine(server.uri, table=engine._names.table, pool_size=1, timeout=3)
    assert own.size() == N_POINTS
    connect = psycopg.Connection.connect

    def connect_slowly(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        time.sleep(0.02)
        return connect(*args, **options)

    monkeypatch.setattr(psycopg.Connection, "connect", connect_slowly)
    server.kill()
    with pytest.raises(EngineUnavailableError, match="cannot be reached"):
        own.size()
    server.start()
    assert own.size() == N_POINTS
    own.close()


def test_a_commit_of_unknown_outcome_says_so(server: Server, engine: PostgresEngine) -> None:
    server.run(
        "CREATE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'",
        f"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {table_of(engine)} "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION give_up()",
    )
    try:
        with pytest.raises(EngineUnavailableError, match="whole or not at all"):
            add_one(engine)
        assert engine.size() == N_POINTS
    finally:
        server.run("DROP FUNCTION give_up CASCADE")


def test_nobody_there() -> None:
    port = free_port()
    begin = time.monotonic()
    with pytest.raises(EngineUnavailableError, match=f"port={port}.*refused"):
        PostgresEngine(f"postgresql://{USER}:{PASSWORD[:5]}@127.0.0.1:{port}/postgres")
    assert time.monotonic() - begin < 5


# Refusals


def test_wrong_password(server: Server) -> None:
    # The last one is also a word of what the server says.
    for password in ("wr0ng-password", "", "failed"):
        with pytest.raises(EngineAccessError, match="password"):
            PostgresEngine(server.uri_of(USER, password))
    with pytest.raises(EngineAccessError, match="nobody"):
        PostgresEngine(server.uri_of("nobody"))


def test_no_such_database(server: Server) -> None:
    with pytest.raises(GalleryNotFoundError, match="nowhere"):
        PostgresEngine(server.uri.removesuffix("postgres") + "nowhere")


def test_read_only(server: Server, engine: PostgresEngine) -> None:
    server.run(f"ALTER ROLE {USER} SET default_transaction_read_only = on")
    try:
        with PostgresEngine(server.uri, table=engine._names.table) as reader:
            assert reader.search(np.ones((1, 8)), 3).counts.tolist() == [3]
            changes: list[Callable[[], None]] = [
                lambda: add_one(reader),
                lambda: reader.remove(np.array([1])),
                lambda: reader.relabel(np.array([1]), np.array([2])),
                lambda: reader.create_index("hnsw"),
            ]
            for change in changes:
                with pytest.raises(EngineAccessError, match="read-only"):
                    change()
            assert reader.size() == N_POINTS
    finally:
        server.run(f"ALTER ROLE {USER} RESET default_transaction_read_only")


def test_without_the_right(server: Server) -> None:
    table = server.new_name()
    with PostgresEngine.create(server.admin_uri, dimension=8, table=table) as owner:
        add_one(owner)
        with PostgresEngine(server.uri, table=table) as other:
            with pytest.raises(EngineAccessError, match="permission denied"):
                other.size()
            server.run(f"GRANT SELECT, INSERT ON {table} TO {USER}")
            assert other.size() == 1
            add_one(other, 5)
            with pytest.raises(EngineAccessError, match="permission denied"):
                other.remove(np.array([5]))
        assert owner.size() == 2
        postgres_server.drop(server, owner)


def test_table_that_went_away(server: Server, engine: PostgresEngine) -> None:
    server.run(f"DROP TABLE {table_of(engine)}")
    for ask in (
        engine.size,
        lambda: engine.search(np.ones((1, 8)), 1),
        lambda: list(engine.scan()),
        lambda: add_one(engine),
    ):
        with pytest.raises(GalleryNotFoundError, match="does not exist"):
            ask()


def test_table_of_another_dimension(server: Server, engine: PostgresEngine) -> None:
    server.run(
        f"TRUNCATE {table_of(engine)}",
        f"ALTER TABLE {table_of(engine)} ALTER COLUMN embedding TYPE vector(9)",
    )
    with pytest.raises(GalleryMismatchError, match="9 dimensions"):
        add_one(engine)
    server.run(
        f"INSERT INTO {table_of(engine)} (id, label, embedding) "  # noqa: S608
        "VALUES (1, 1, '[1,2,3,4,5,6,7,8,9]')"
    )
    with pytest.raises(GalleryMismatchError, match="dimension"):
        engine.search(np.ones((1, 8)), 1)
    with pytest.raises(GalleryMismatchError, match="dimension 8"):
        engine.fetch(np.array([1]))


@pytest.fixture
def small_disk(server: Server) -> Iterator[Path]:
    folder = server.folder / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("a small disk needs root")
    made = subprocess.run(  # noqa: S603 - the arguments are ours
        [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        folder.rmdir()
        pytest.skip("a small disk cannot be mounted here")
    try:
        shutil.chown(folder, server.system_user or os.geteuid())
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607
        folder.rmdir()


def test_disk_full(server: Server, small_disk: Path) -> None:
    server.run(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    table = server.new_name()
    try:
        with PostgresEngine.create(server.admin_uri, dimension=64, table=table) as engine:
            server.run(f"ALTER TABLE {table} SET TABLESPACE small")
            add = np.zeros((1, 64))
            engine.add(add, np.array([-1]), np.array([0]))
            many = np.zeros((30_000, 64))
            with pytest.raises(EngineError, match=r"No space left.*Make room"):
                engine.add(many, np.arange(30_000), np.zeros(30_000, np.int64))
            assert engine.size() == 1
            assert [portion.ids.tolist() for portion in engine.scan()] == [[-1]]
            server.run(f"VACUUM FULL {table}")
            engine.add(add, np.array([-2]), np.array([0]))
    finally:
        server.run(f"DROP TABLE IF EXISTS {table}", "DROP TABLESPACE small")


def test_a_full_disk_in_the_middle_of_a_load(server: Server, engine: PostgresEngine) -> None:
    """The server's answer, wherever a disk cannot be filled."""
    server.run(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF NEW.id < 1500 THEN RETURN NEW; END IF; "
        "RAISE EXCEPTION ''No space left'' USING ERRCODE = ''disk_full''; END'",
        f"CREATE TRIGGER full_disk BEFORE INSERT ON {table_of(engine)} "
        "FOR EACH ROW EXECUTE FUNCTION full_disk()",
    )
    try:
        with pytest.raises(EngineError, match="Make room"):
            engine.add(np.ones((900, 8)), np.arange(900) + 1000, np.zeros(900, np.int64))
        assert engine.size() == N_POINTS
    finally:
        server.run("DROP FUNCTION full_disk CASCADE")


def test_what_the_server_does_not_support(server: Server, engine: PostgresEngine) -> None:
    server.run(
        "CREATE FUNCTION decline() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RAISE EXCEPTION ''not here'' USING ERRCODE = ''0A000''; END'",
        f"CREATE TRIGGER decline BEFORE INSERT ON {table_of(engine)} "
        "FOR EACH ROW EXECUTE FUNCTION decline()",
    )
    try:
        with pytest.raises(EngineError, match=r"not here.*cannot do it") as caught:
            add_one(engine)
        assert "pgvector" not in str(caught.value)
    finally:
        server.run("DROP FUNCTION decline CASCADE")


def test_server_without_pgvector(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_MAKE_EXTENSION", "CREATE EXTENSION none_such")
    server.run("CREATE DATABASE bare")
    try:
        with pytest.raises(EngineError, match=r"none_such.*Install pgvector"):
            PostgresEngine.create(server.admin_uri.removesuffix("postgres") + "bare", dimension=2)
    finally:
        server.run("DROP DATABASE bare WITH (FORCE)")


def test_a_statement_that_takes_too_long(server: Server, engine: PostgresEngine) -> None:
    with (
        PostgresEngine(server.uri, table=engine._names.table, statement_timeout=0.2) as hasty,
        psycopg.connect(server.admin_uri) as other,
    ):
        other.execute(f"LOCK TABLE {table_of(engine)} IN ACCESS EXCLUSIVE MODE".encode())
        for ask in (
            hasty.size,
            lambda: hasty.search(np.ones((1, 8)), 1),
            lambda: list(hasty.scan()),
            lambda: hasty.remove(np.array([1])),
        ):
            with pytest.raises(EngineError, match="statement_timeout"):
                ask()
