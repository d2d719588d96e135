"""Clients that do not keep to HTTP, or take their time, on a real server."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from time import monotonic, sleep

import pytest
from asgi_calls import read_reply, read_until_closed, served
from served_examples import DIMENSION, INSIDE, sqlite_gallery
from starlette.testclient import TestClient

from nearsure.service import ServiceSettings, create_app

PATIENCE = 1.0
LARGEST = 100_000
HOST = b"Host: localhost\r\n"
ASK = b"POST /v1/predict HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
QUERY = json.dumps({"vector": [0.0] * DIMENSION, "neighbors": 0, "classes": 1}).encode()
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(QUERY), QUERY)
GOOD = ASK + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(QUERY), QUERY)
SECOND = b"GET /v1/model HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
TRANSFERS = {
    "negative length": b"Content-Length: -5\r\n\r\n" + QUERY,
    "no number": b"Content-Length: abc\r\n\r\n" + QUERY,
    "sign": b"Content-Length: +60\r\n\r\n" + QUERY,
    "hexadecimal": b"Content-Length: 0x3c\r\n\r\n" + QUERY,
    "list": b"Content-Length: 60, 60\r\n\r\n" + QUERY,
    "beyond 64 bits": b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + QUERY,
    "two lengths": b"Content-Length: 60\r\nContent-Length: 3\r\n\r\n" + QUERY,
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + CHUNKED,
    "unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED,
    "chunks not last": b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKED,
    "space before the colon": b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKED,
    "folded line": b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    "no chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + QUERY,
    "negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + QUERY,
    "endless chunk": b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n" + QUERY,
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = sqlite_gallery(tmp_path_factory.mktemp("gallery") / "birds.sqlite", n_each=8)
    app = create_app(ServiceSettings(str(path), patience=PATIENCE, largest_body=LARGEST))
    with TestClient(app), served(app, patience=PATIENCE) as port:
        yield port


@pytest.fixture(autouse=True)
def others_are_answered(port: int) -> Iterator[None]:
    """Whatever a test has sent, the next client is served."""
    yield
    assert answered(port, GOOD)[0] == 200


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def parts(reply: bytes) -> tuple[int, bytes]:
    """Status and body of what came, which is one answer."""
    assert len(re.findall(rb"HTTP/1\.1 \d", reply)) == 1, reply
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def answered(port: int, request: bytes) -> tuple[int, bytes]:
    """The one answer on a connection that the server closes."""
    with connected(port) as connection:
        connection.sendall(request)
        return parts(read_until_closed(connection))


def check_problem(body: bytes) -> str:
    problem: dict[str, str] = json.loads(body)
    assert set(problem) == {"error", "message"}
    assert not any(inside.encode() in body for inside in INSIDE)
    return problem["error"]


@pytest.mark.parametrize("transfer", TRANSFERS.values(), ids=TRANSFERS.keys())
def test_a_body_of_doubtful_length_ends_the_connection(port: int, transfer: bytes) -> None:
    # What stands behind it is never taken for another request.
    status, body = answered(port, ASK + transfer + SECOND)
    assert (status, check_problem(body)) == (400, "bad_request")


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n",
        b"POST /v1/predict HTTP/1.1\nHost: localhost\n\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
        b"G\x00T /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused(port: int, request_: bytes) -> None:
    status, body = answered(port, request_)
    assert (status, check_problem(body)) == (400, "bad_request")


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: %d\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: 0\r\n",
    ],
)
def test_a_body_after_an_upgrade_is_no_request(port: int, framing: bytes) -> None:
    head = ASK + b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    head += (framing % len(SECOND) if b"%" in framing else framing) + b"\r\n"
    with connected(port) as connection:
        connection.sendall(head)
        # In a packet of its own: the parser would begin anew with it.
        sleep(0.05)
        connection.sendall(SECOND)
        status, body = parts(read_until_closed(connection))
    assert (status, check_problem(body)) == (400, "no_upgrade")
    ignored = SECOND.replace(b"close", b"Upgrade, close\r\nUpgrade: websocket")
    assert answered(port, ignored)[0] == 200


def test_a_length_beyond_the_limit_is_refused_unread(port: int) -> None:
    for length in (LARGEST + 1, 2**63, 2**64 - 1):
        with connected(port) as connection:
            connection.sendall(ASK + b"Content-Length: %d\r\n\r\n" % length)
            status, body = parts(read_reply(connection))
        assert (status, check_problem(body)) == (413, "body_too_large")


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://\xe9[]"])
def test_an_origin_that_is_no_address_is_refused(port: int, origin: str) -> None:
    head = ASK + f"Origin: {origin}\r\nConnection: close\r\n".encode("latin-1")
    status, body = answered(port, head + b"Content-Length: %d\r\n\r\n%b" % (len(QUERY), QUERY))
    assert (status, check_problem(body)) == (403, "not_local")


def test_chunks_beyond_the_limit_are_refused(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(ASK + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.sendall((b"4000\r\n" + b" " * 0x4000 + b"\r\n") * 10 + b"0\r\n\r\n")
        status, body = parts(read_reply(connection))
    assert (status, check_problem(body)) == (413, "body_too_large")
    whole = ASK + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED
    assert answered(port, whole)[0] == 200


def test_slow_and_silent_clients_are_sent_away_together(port: int) -> None:
    beginnings = {
        b"": "head_too_slow",
        ASK: "head_too_slow",
        ASK + b"Content-Length: 50\r\n\r\n{": "body_too_slow",
        ASK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{": "body_too_slow",
    }
    start = monotonic()
    held = []
    for beginning, error in beginnings.items():
        for _ in range(5):
            connection = connected(port)
            connection.sendall(beginning)
            held.append((connection, error))
    # They keep nobody else waiting.
    assert answered(port, GOOD)[0] == 200
    assert monotonic() - start < PATIENCE
    for connection, error in held:
        with connection:
            status, body = parts(read_until_closed(connection))
            assert (status, check_problem(body)) == (408, error)
    assert monotonic() - start < 5 * PATIENCE


def test_a_client_that_leaves_is_no_failure(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with connected(port) as connection:
                connection.sendall(ASK + b"Content-Length: 50\r\n\r\n{")
                sleep(0.02)
        assert answered(port, GOOD)[0] == 200
    lines = [record.getMessage() for record in caplog.records if record.name == "nearsure.access"]
    assert sum("/v1/predict 400" in line for line in lines) == 3
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../settings.py",
        "/assets/%2e%2e/settings.py",
        "/assets/..%2fsettings.py",
        "/assets/..%5csettings.py",
        "/assets/%2fetc/passwd",
        "/assets//etc/passwd",
        "/assets//page.js",
        "/assets/page.js%00",
        "/assets/page.js/",
        "/assets/index.html",
        "/assets/__init__.py",
        "/assets/",
        "/assets",
        "//assets/page.js",
        "//etc/passwd",
        "/../../etc/passwd",
        "/assets/../v1/model",
        "/v1/../v1/model",
        "/v1//model",
        "/v1/model/",
        "/V1/model",
        "/%76%31%2fmodel%00",
        "/v1/items/%ff",
        "/v1/items/%zz",
        "/v1/items/../model",
        "/docs",
        "/redoc",
        "*",
    ],
)
def test_tricks_with_addresses_lead_nowhere(port: int, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    status, body = answered(port, request)
    assert status == 404
    assert check_problem(body) in ("not_found", "no_such_item")


def test_an_encoded_character_is_decoded_once(port: int) -> None:
    items = [{"id": own, "label": own, "vector": [9.0] * DIMENSION} for own in ("%2e", ".", "..")]
    body = json.dumps({"items": items}).encode()
    head = b"POST /v1/items HTTP/1.1\r\n" + HOST + b"Connection: close\r\n"
    added = answered(port, head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert added[0] == 201
    for path, own in (("%252e", "%2e"), ("%2e", "."), (".", "."), ("%2E.", "..")):
        get = f"GET /v1/items/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        status, found = answered(port, get.encode())
        assert (status, json.loads(found)["id"]) == (200, own)
