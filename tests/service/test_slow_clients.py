"""Clients that send, read or leave as they should not, seen from the outside of a real service."""

import asyncio
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import numpy as np
import pytest
from asgi_calls import answer_ok, echo, read_body, read_reply, read_until_closed, served
from served_examples import DIMENSION, sqlite_gallery
from service_processes import (
    LONGEST_WAIT,
    ServiceProcesses,
    free_port,
    service_processes,
    wait_until_ready,
)
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from nearsure.arrays import AnyArray
from nearsure.service import ServiceSettings, create_app, slow_clients
from nearsure.service.batching import MicroBatcher
from nearsure.service.errors import Overloaded
from nearsure.service.middleware import BodyLimit, InFlightLimit, Problems

PATIENCE = 1.0
N_SLOTS = 16
TOKEN = "a-token-to-read-with"  # noqa: S105
LARGEST_HEAD = 64 * 1024
HOST = b"Host: localhost\r\n"
SHOWN = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
PUBLIC = b"GET /assets/chart.umd.js HTTP/1.1\r\n" + HOST + b"\r\n"
KNOWN = b"GET /openapi.json HTTP/1.1\r\n" + HOST + SHOWN + b"\r\n"
UNKNOWN = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
PREFLIGHT = b"OPTIONS /v1/model HTTP/1.1\r\n" + HOST + b"\r\n"
QUERY = json.dumps({"vector": [0.0] * DIMENSION, "neighbors": 0, "classes": 1}).encode()
ASK = b"POST /v1/predict HTTP/1.1\r\n" + HOST + SHOWN + b"Content-Type: application/json\r\n"
ASKED = ASK + b"Content-Length: %d\r\n\r\n%b" % (len(QUERY), QUERY)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "service.log"


@pytest.fixture(scope="module")
def processes(log: Path) -> Iterator[ServiceProcesses]:
    with service_processes(log) as started:
        yield started


@contextmanager
def service(processes: ServiceProcesses, folder: Path, patience: float) -> Iterator[int]:
    gallery, port = sqlite_gallery(folder / "birds.sqlite", n_each=8), free_port()
    process_id = processes.start(
        gallery=str(gallery),
        port=port,
        patience=patience,
        largest_queue=N_SLOTS // 2,
        read_tokens=[TOKEN],
    )
    try:
        wait_until_ready(port)
        yield port
    finally:
        processes.kill(process_id)


@pytest.fixture(scope="module")
def port(processes: ServiceProcesses, log: Path) -> Iterator[int]:
    with service(processes, log.parent, PATIENCE) as port:
        yield port


@pytest.fixture
def small_port(tmp_path: Path) -> Iterator[int]:
    """A service with four places, and buffers so small that few answers fill them."""
    gallery = sqlite_gallery(tmp_path / "birds.sqlite", n_each=8)
    app = create_app(ServiceSettings(str(gallery), read_tokens=(TOKEN,), largest_queue=2))
    with TestClient(app), served(app, patience=PATIENCE, send_buffer=4096) as port:
        yield port


@pytest.fixture(autouse=True)
def nothing_breaks(port: int, log: Path) -> Iterator[None]:
    """Whatever a test has done, the log tells of no failure, and the next client is served."""
    before = log.read_text()
    yield
    assert status_of_query(port) == 200
    assert "Traceback" not in log.read_text().removeprefix(before)


def connected(port: int, *, buffer: int | None = None) -> socket.socket:
    connection = socket.socket()
    connection.settimeout(10)
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect(("127.0.0.1", port))
    return connection


def status_of(reply: bytes) -> int:
    return int(reply.split(maxsplit=2)[1])


def status_of_query(port: int) -> int:
    """Of a client that is known, and does everything right."""
    with connected(port) as connection:
        connection.sendall(ASKED)
        return status_of(read_reply(connection))


class Unreading:
    """A client that sends a request again and again, and reads nothing."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.connection = connection
        self.connection.settimeout(0)
        self._request = request
        self._rest = b""

    def send(self) -> bool:
        """As many requests as the other side takes; whether it has the connection open still."""
        # Where it takes a part of them, the rest comes next: they stay well-formed.
        self._rest = self._rest or 100 * self._request
        try:
            self._rest = self._rest[self.connection.send(self._rest) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            return False
        return True

    def leave(self) -> None:
        """Without a farewell."""
        reset = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        self.connection.close()


def wait_until_closed(clients: list[Unreading]) -> None:
    """Let them send more and more until the service has closed every connection."""
    deadline = monotonic() + LONGEST_WAIT
    while clients := [client for client in clients if client.send()]:
        assert monotonic() < deadline, f"{len(clients)} connections are held"
        sleep(PATIENCE / 4)


@contextmanager
def unreading(port: int, request: bytes, number: int = 4 * N_SLOTS) -> Iterator[list[Unreading]]:
    """More such clients than there are places."""
    with ExitStack() as stack:
        connections = [connected(port, buffer=4096) for _ in range(number)]
        yield [Unreading(stack.enter_context(one), request) for one in connections]


class TestUnreadAnswers:
    def test_the_page_takes_no_place_of_known_clients_and_who_leaves_it_unread_is_closed(
        self, port: int
    ) -> None:
        with unreading(port, PUBLIC) as clients:
            # Again and again: another head follows the answer that is not read.
            for _ in range(8):
                for client in clients:
                    client.send()
                assert status_of_query(port) == 200
            wait_until_closed(clients)

    @pytest.mark.parametrize("request_", [UNKNOWN, PREFLIGHT], ids=["unknown", "preflight"])
    def test_neither_do_refusals(self, small_port: int, request_: bytes) -> None:
        with unreading(small_port, request_, 8) as clients:
            for _ in range(4):
                for client in clients:
                    client.send()
                assert status_of_query(small_port) == 200
            wait_until_closed(clients)

    def test_known_clients_keep_their_places_no_longer_than_patience(self, small_port: int) -> None:
        with unreading(small_port, KNOWN, 8) as clients:
            deadline = monotonic() + LONGEST_WAIT
            while status_of_query(small_port) != 503:
                assert monotonic() < deadline, "the places were never taken"
                for client in clients:
                    client.send()
            wait_until_closed(clients)
        assert status_of_query(small_port) == 200

    def test_who_leaves_before_reading_is_no_failure(
        self, processes: ServiceProcesses, log: Path, tmp_path: Path
    ) -> None:
        before = log.read_text()

        def n_answered() -> int:
            return log.read_text().removeprefix(before).count("chart.umd.js 200")

        with (
            service(processes, tmp_path, 60.0) as port,
            unreading(port, PUBLIC, N_SLOTS) as clients,
        ):
            # Until none of their answers is taken any more, and other requests wait behind it.
            n_before = -1
            while n_before < n_answered():
                n_before = n_answered()
                for client in clients:
                    client.send()
                sleep(0.5)
            for client in clients:
                client.leave()
            sleep(0.5)
            assert status_of_query(port) == 200
        said = log.read_text().removeprefix(before)
        assert "ERROR" not in said
        assert "WARNING" not in said

    def test_who_reads_slowly_but_steadily_gets_everything(self) -> None:
        size = 16_000_000

        async def large(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            await receive()
            head = [(b"content-length", b"%d" % size)]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": bytes(size)})

        with served(large, patience=0.5) as port, connected(port) as connection:
            connection.sendall(PUBLIC)
            start, n_bytes = monotonic(), 0
            while n_bytes < size:
                part = connection.recv(2_000_000, socket.MSG_WAITALL)
                assert part, f"closed after {n_bytes} bytes"
                n_bytes += len(part)
                sleep(0.2)
            assert monotonic() - start > 3 * 0.5

    @pytest.mark.parametrize("ending", [b"no HTTP\r\n\r\n", b"GET /"], ids=["refused", "silent"])
    def test_what_is_left_of_a_last_answer_keeps_no_connection(self, ending: bytes) -> None:
        async def small(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            await receive()
            head = [(b"content-length", b"40000")]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": bytes(40_000)})

        # Too little for the server to stop writing, and too much for the system's buffers.
        with (
            served(small, patience=0.4, send_buffer=4096) as port,
            connected(port, buffer=4096) as connection,
        ):
            client = Unreading(connection, b"x")
            connection.send(PUBLIC)
            sleep(0.1)
            connection.send(ending)
            deadline = monotonic() + LONGEST_WAIT
            while client.send():
                assert monotonic() < deadline, "the connection is held"
                sleep(0.1)


class TestHeads:
    @pytest.mark.parametrize("n_lines", [1, 500])
    def test_a_head_in_one_piece_may_not_be_larger_either(self, port: int, n_lines: int) -> None:
        for size, status in ((LARGEST_HEAD - 1000, 200), (LARGEST_HEAD + 1000, 431)):
            line = b"X: %b\r\n" % (b"y" * (size // n_lines - 5))
            with connected(port) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + n_lines * line + b"\r\n")
                reply = read_reply(connection)
            assert status_of(reply) == status
            if status == 431:
                assert b'"error":"head_too_large"' in reply

    @pytest.mark.parametrize(
        "endless",
        [b"0\r\n" + 3000 * (b"X: " + 1000 * b"y" + b"\r\n"), b"5;" + 3_000_000 * b"x"],
        ids=["trailers", "chunk extension"],
    )
    def test_what_belongs_to_no_body_is_limited_after_the_head_too(
        self, port: int, endless: bytes
    ) -> None:
        with connected(port) as connection:
            try:
                connection.sendall(ASK + b"Transfer-Encoding: chunked\r\n\r\n")
                sleep(0.05)
                connection.sendall(endless)
            except ConnectionError:
                return
            # It may still be on its way; the service closes before it has read it all.
            received = read_until_closed(connection)
            assert received == b"" or status_of(received) == 431


class TestHalfClosed:
    @pytest.mark.parametrize("n_requests", [1, 3])
    def test_who_has_no_more_to_send_is_answered(self, port: int, n_requests: int) -> None:
        with connected(port) as connection:
            connection.sendall(n_requests * ASKED)
            connection.shutdown(socket.SHUT_WR)
            received = read_until_closed(connection)
        assert received.count(b"HTTP/1.1 200 OK\r\n") == n_requests
        assert received.count(b'"label":') >= n_requests

    def test_the_answer_may_take_its_time(self) -> None:
        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            await receive()
            await asyncio.sleep(0.2)
            await answer_ok(send)

        with served(slow, patience=5) as port, connected(port) as connection:
            connection.sendall(2 * PUBLIC)
            connection.shutdown(socket.SHUT_WR)
            received = read_until_closed(connection)
        assert received.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert received.count(b"fine") == 2

    def test_a_large_answer_comes_whole(self, port: int) -> None:
        with connected(port, buffer=4096) as connection:
            connection.sendall(PUBLIC)
            connection.shutdown(socket.SHUT_WR)
            sleep(0.1)
            reply = read_reply(connection)
            assert status_of(reply) == 200
            assert connection.recv(1) == b""

    @pytest.mark.parametrize(
        "beginning", [b"", b"GET /healthz", ASK + b"Content-Length: 50\r\n\r\n{"]
    )
    def test_a_request_that_can_never_be_complete_is_not_waited_for(
        self, port: int, beginning: bytes
    ) -> None:
        with connected(port) as connection:
            connection.sendall(beginning)
            sleep(0.05)
            connection.shutdown(socket.SHUT_WR)
            assert read_until_closed(connection) == b""


class TestRefusals:
    @pytest.mark.parametrize(
        "length", [b"0" * 5000 + b"%d" % len(QUERY), b"0" * 30 + b"%d" % len(QUERY)]
    )
    def test_a_length_of_absurdly_many_digits_is_refused(self, port: int, length: bytes) -> None:
        with connected(port) as connection:
            connection.sendall(ASK + b"Content-Length: %b\r\n\r\n%b" % (length, QUERY))
            reply = read_reply(connection)
        assert status_of(reply) == 400
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"] == "bad_request"


class TestHeadMethod:
    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/healthz",
            "/readyz",
            "/assets/page.js",
            "/openapi.json",
            "/v1/model",
            "/v1/items",
            "/v1/items/p000",
            "/v1/items/nobody",
            "/v1/threshold",
            "/v1/refit",
            "/nowhere",
        ],
    )
    def test_the_answer_is_that_of_get_without_its_body(self, port: int, path: str) -> None:
        request = f"%b {path} HTTP/1.1\r\n".encode() + HOST + SHOWN + b"\r\n"
        with connected(port) as connection:
            connection.sendall(request % b"GET")
            head, _, body = read_reply(connection).partition(b"\r\n\r\n")
            assert body
            # A body would be read here as the beginning of the second answer.
            connection.sendall(request % b"HEAD" + request % b"HEAD")
            received = b""
            while received.count(b"\r\n\r\n") < 2:
                received += connection.recv(65536)
        without_date = [
            [line for line in one.split(b"\r\n") if not line.startswith(b"date:")]
            for one in (head, *received.split(b"\r\n\r\n"))
        ]
        assert without_date == [*3 * [without_date[0]], [b""]]


def numbered(number: int) -> bytes:
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n%d" % number


REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"


@pytest.mark.usefixtures("quiet_server")
class TestRealConnections:
    """A real server, and clients that send as they should not."""

    @pytest.fixture
    def quiet_server(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("CRITICAL")

    def connections(self, port: int, number: int) -> list[socket.socket]:
        return [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(number)]

    def exchange(self, port: int, *pieces: bytes, pause: float = 0.0) -> tuple[bytes, float]:
        """Send pieces with pauses until the server closes; what came, and after how long."""
        start = monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                    sleep(pause)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return read_until_closed(connection), monotonic() - start

    def test_a_head_a_byte_at_a_time_ends_with_408(self) -> None:
        with served(Problems(BodyLimit(echo, 10**6, 0.4)), patience=0.4) as port:
            drip = (bytes([byte]) for byte in b"POST / HTTP/1.1\r\nhost: x\r\n" + 100 * b"x: y\r\n")
            received, duration = self.exchange(port, *drip, pause=0.01)
            assert received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b'"error":"head_too_slow"' in received
            assert duration > 0.35
            # The same on a connection that was used before, also with empty lines only.
            for rest in (b"GET / HTTP/1.1\r\n" + 100 * b"x: y\r\n", 100 * b"\r\n"):
                drip = (bytes([byte]) for byte in rest)
                received, _ = self.exchange(port, REQUEST, *drip, pause=0.01)
                assert received.startswith(b"HTTP/1.1 200 OK\r\n")
                assert received.count(b"HTTP/1.1 408 Request Timeout\r\n") == 1

    def test_a_client_that_says_nothing_is_not_waited_for(self) -> None:
        with served(echo, patience=0.3) as port:
            received, duration = self.exchange(port)
            assert received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert 0.25 < duration < 5

    def test_a_body_a_byte_at_a_time_ends_with_408(self) -> None:
        with served(Problems(BodyLimit(echo, 10**6, 0.4)), patience=0.4) as port:
            head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
            received, duration = self.exchange(port, head, *(1000 * [b"x"]), pause=0.01)
            assert received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b"connection: close" in received
            assert b'"error":"body_too_slow"' in received
            assert duration > 0.35

    def test_endless_headers_end_with_431(self) -> None:
        with served(echo, patience=5) as port:
            line = b"x: " + 1000 * b"y" + b"\r\n"
            received, _ = self.exchange(port, b"GET / HTTP/1.1\r\n", *(2000 * [line]))
            assert received == b"" or received.startswith(b"HTTP/1.1 431 ")

    def test_who_sends_too_much_still_reads_why(self) -> None:
        with served(Problems(BodyLimit(echo, 1000, 10.0)), patience=5) as port:
            head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(head + 1_000_000 * b"x")
                assert read_reply(connection).startswith(b"HTTP/1.1 413 ")
                # The body was complete, so the connection can go on.
                connection.sendall(REQUEST)
                assert read_reply(connection).startswith(b"HTTP/1.1 200 OK\r\n")

    def test_who_never_ends_a_refused_body_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(slow_clients, "LINGER", 0.5)
        with served(Problems(BodyLimit(echo, 1000, 10.0)), patience=5) as port:
            head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
            received, duration = self.exchange(port, head, *(30 * [b"x"]), pause=0.1)
            assert received.startswith(b"HTTP/1.1 413 ")
            assert duration < 5

    def test_who_does_not_read_is_closed(self) -> None:
        ended = asyncio.Event()

        async def large(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(400):
                part = {"type": "http.response.body", "body": bytes(100_000), "more_body": True}
                await send(part)
            ended.set()
            await send({"type": "http.response.body", "body": b""})

        with (
            served(large, patience=0.4) as port,
            socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
        ):
            connection.sendall(REQUEST)
            deadline = monotonic() + 8
            while not ended.is_set() and monotonic() < deadline:
                sleep(0.05)
            assert ended.is_set()

    def test_slow_clients_do_not_hold_up_quick_ones(self) -> None:
        with served(InFlightLimit(BodyLimit(echo, 10**6, 2.0), 20), patience=2.0) as port:
            slow = self.connections(port, 10)
            for connection in slow:
                connection.sendall(REQUEST[:-2])
            with socket.create_connection(("127.0.0.1", port), timeout=10) as quick:
                start = monotonic()
                for _ in range(20):
                    quick.sendall(REQUEST)
                    assert read_reply(quick).endswith(b"body")
                assert monotonic() - start < 1.5
            for connection in slow:
                connection.sendall(b"dy")
                assert read_reply(connection).endswith(b"body")
                connection.close()

    def test_while_the_worker_is_busy_others_are_turned_away_at_once(self) -> None:
        go = Event()

        def answer(rows: AnyArray) -> list[bytes]:
            assert go.wait(10)
            return [b"%d" % row for row in rows[:, 0]]

        batcher: MicroBatcher[bytes] = MicroBatcher(answer, largest_queue=2)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            number = int(await read_body(receive))
            try:
                await answer_ok(send, await batcher.ask(np.array([number])))
            except Overloaded as problem:
                assert scope["type"] == "http"
                await problem.answer(send)

        with served(app, patience=5) as port:
            held = self.connections(port, 3)
            for connection in held:
                connection.sendall(numbered(7))
                sleep(0.05)  # The first is with the worker before the queue fills.
            with socket.create_connection(("127.0.0.1", port), timeout=10) as late:
                start = monotonic()
                for _ in range(50):
                    late.sendall(numbered(8))
                    reply = read_reply(late)
                    assert reply.startswith(b"HTTP/1.1 503 ")
                    assert b"retry-after: 1" in reply
                assert (monotonic() - start) / 50 < 0.1
                go.set()
                for connection in held:
                    assert read_reply(connection).endswith(b"\r\n\r\n7")
                    connection.close()
                late.sendall(numbered(9))
                assert read_reply(late).endswith(b"\r\n\r\n9")
        asyncio.run(batcher.close())

    def test_too_many_connections_are_closed_and_it_recovers(self) -> None:
        with served(echo, patience=5, largest_connections=3) as port:
            held = self.connections(port, 3)
            for connection in held:
                connection.sendall(REQUEST)
                assert read_reply(connection).startswith(b"HTTP/1.1 200 OK\r\n")
            received, _ = self.exchange(port)
            assert received.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            for connection in held:
                connection.close()
            sleep(0.1)
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(REQUEST)
                assert read_reply(connection).startswith(b"HTTP/1.1 200 OK\r\n")
