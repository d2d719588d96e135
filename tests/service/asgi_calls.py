"""Requests to an ASGI app without a server, and a real server for what needs sockets."""

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from time import monotonic, sleep

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.slow_clients import LimitedProtocol


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> dict[str, str]:
        problem: dict[str, str] = json.loads(self.body)
        return problem


def make_scope(
    method: str = "POST",
    path: str = "/v1/predict",
    headers: Sequence[tuple[str, str]] = (),
    client: tuple[str, int] | None = ("10.0.0.1", 5000),
) -> Scope:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"secret=in-the-query",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "client": client,
    }


async def call(app: ASGIApp, scope: Scope, chunks: Sequence[bytes] = (b"",)) -> Reply:
    """Send a request in chunks, and gather the answer; then the client is gone."""
    reply = Reply()
    rest = list(chunks)

    async def receive() -> Message:
        if not rest:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": rest.pop(0), "more_body": bool(rest)}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert reply.status == 0, "two answers to one request"
            reply.status = message["status"]
            reply.headers = {
                name.decode(): value.decode() for name, value in message.get("headers", ())
            }
        else:
            assert reply.status, "a body before the head"
            reply.body += message.get("body", b"")

    await app(scope, receive, send)
    return reply


async def read_body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return body
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return body


async def answer_ok(send: Send, body: bytes = b"fine") -> None:
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that answers with the body it got."""
    assert scope["type"] == "http"
    await answer_ok(send, await read_body(receive))


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that raises."""
    del receive, send
    raise KeyError(scope["path"])


@contextmanager
def served(
    app: ASGIApp,
    *,
    patience: float,
    largest_connections: int = 100,
    send_buffer: int | None = None,
) -> Iterator[int]:
    """A real server in a thread; gives its port. `send_buffer` is the system's, in bytes."""
    # Of this protocol, or else asyncio lets answers wait for acknowledgements.
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        if send_buffer is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            http=partial(LimitedProtocol, patience, largest_connections),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            deadline = monotonic() + 10
            while not server.started:
                assert monotonic() < deadline, "the server did not start"
                sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)
        assert not thread.is_alive()


def read_until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def read_reply(connection: socket.socket) -> bytes:
    """One answer that declares its length, and leave the connection open."""
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = connection.recv(65536)
        assert chunk, f"closed after {received!r}"
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
