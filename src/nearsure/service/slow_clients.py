"""Clients that hold a connection without using it, and how many connections there may be.

uvicorn waits for ever for the head of a request, for its body, and for a client to read its answer,
and keeps as many headers as come. Here each of the three has a time of its own, and the head a
size; what one of them waits for ends no other.

A request to change the protocol that has a body is refused: the parser does not read that body, and
would take it for the next request, which could be made to pass a proxy unseen.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nearsure.service.errors import ProblemError
from nearsure.service.middleware import RefusableCall

log = logging.getLogger("nearsure.service")

MOST_CONNECTIONS = 10_000
# For the gallery, the engine's connections, the listener, the log.
OTHER_FILES = 200
LARGEST_HEAD = 64 * 1024
# A client that was answered early (too large, not allowed) may go on sending so long: were the
# connection closed at once, the answer would be lost on the way.
LINGER = 2.0
BAD_REQUEST = ("400 Bad Request", "bad_request", "This cannot be read as HTTP/1.1.")
NO_UPGRADE = (
    "400 Bad Request",
    "no_upgrade",
    "The service speaks HTTP/1.1 alone. Send no Upgrade header.",
)
TOO_LARGE = (
    "431 Request Header Fields Too Large",
    "head_too_large",
    f"The head of a request may have {LARGEST_HEAD} bytes.",
)
TOO_MANY = ("503 Service Unavailable", "overloaded", "Too many connections.")


def make_protocol(
    patience: float, largest_connections: int = MOST_CONNECTIONS
) -> type["LimitedProtocol"]:
    """The protocol for ``uvicorn.Config(http=...)``.

    Parameters
    ----------
    patience : float
        Seconds for the head of a request, and for a client to take some more of its answer.
    largest_connections : int
        Connections at once, used or idle; further ones are closed with a 503.
    """
    limits = {"patience": patience, "largest_connections": largest_connections}
    return type("ThisLimitedProtocol", (LimitedProtocol,), limits)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits; `make_protocol` makes the class that uvicorn is given."""

    patience = 30.0
    largest_connections = MOST_CONNECTIONS
    has_turned_away = False

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **options)
        self._head, self._body, self._unread = (_Timer(self.loop) for _ in range(3))
        self._head_is_due = True
        # Bytes that came since the last that belonged to a body.
        self._n_bytes = 0
        self._n_unread = 0
        self._answered: RequestResponseCycle | None = None
        self._refusal = BAD_REQUEST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head from now on."""
        super().connection_made(transport)
        if len(self.connections) > self.largest_connections:
            self._warn_once()
            self._turn_away(TOO_MANY)
        else:
            self._head.start(self.patience, self._end_slow_head)

    def data_received(self, data: bytes) -> None:
        """Take what came, and look whether the head is complete."""
        self._n_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        # Headers may also follow a body, and names of anything the length of a part of it.
        if self._n_bytes > LARGEST_HEAD:
            self._turn_away(TOO_LARGE)
        elif self._head_is_due and self._n_bytes and not self._head.is_running:
            self._head.start(self.patience, self._end_slow_head)

    def on_headers_complete(self) -> None:
        """From here on the app's own limits hold."""
        n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if n_bytes > LARGEST_HEAD:
            raise self._refused(TOO_LARGE)
        if self.parser.should_upgrade() and _has_body(self.headers):
            raise self._refused(NO_UPGRADE)
        self._head_is_due = False
        self._n_bytes = 0
        self._head.stop()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """The app counts these bytes."""
        self._n_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The next thing to come is another head, at any time."""
        self._head_is_due = True
        self._n_bytes = 0
        self._body.stop()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """What is left of the body is thrown away, but not for ever."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()
        elif not self._head_is_due and self.cycle.response_complete:
            self._body.start(LINGER, self._close)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """It has read nearly everything."""
        super().resume_writing()
        # A closing connection ends once the rest is read; that is limited, too.
        if not self.transport.is_closing():
            self._unread.stop()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more, but may read: answer what it has asked, and close then."""
        if self._head_is_due and self._is_answering():
            self.cycle.keep_alive = False
            return True
        self._await_reader()
        return False

    def timeout_keep_alive_handler(self) -> None:
        """The client has been silent since its last answer."""
        if not self.transport.is_closing():
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        for timer in (self._head, self._body, self._unread):
            timer.stop()
        # uvicorn ends the newest of several requests only, while an older one is being answered.
        if self._answered is not None:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's
        """Refuse what is no HTTP, in the form of all refusals."""
        self._turn_away(self._refusal)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: it is no fault of the service, which needs no other protocol."""

    def _is_answering(self) -> bool:
        return self._answered is not None and not self.cycle.response_complete

    def _end_slow_head(self) -> None:
        if self._is_answering():
            # The head of a second request, while the first is still being answered.
            self._head.start(self.patience, self._end_slow_head)
            return
        message = f"The head of a request must arrive within {self.patience:g} s."
        self._turn_away(("408 Request Timeout", "head_too_slow", message))

    def _await_reader(self) -> None:
        """Give the client time to read, unless it has been given some already."""
        if not self._unread.is_running:
            self._n_unread = self.transport.get_write_buffer_size()
            self._unread.start(self.patience, self._end_unread)

    def _end_unread(self) -> None:
        if self.transport.get_write_buffer_size() < self._n_unread:
            self._await_reader()
        else:
            self.transport.abort()

    def _warn_once(self) -> None:
        """Warn once: a flood of connections must not fill the log."""
        kind = type(self)
        if not kind.has_turned_away:
            kind.has_turned_away = True
            log.warning(
                "%d connections are open: further ones are turned away. This is said once.",
                self.largest_connections,
            )

    def _refused(self, refusal: tuple[str, str, str]) -> ValueError:
        """What stops the parser, which then asks for an answer."""
        self._refusal = refusal
        return ValueError(refusal[1])

    def _turn_away(self, refusal: tuple[str, str, str]) -> None:
        status, error, message = refusal
        body = f'{{"error":"{error}","message":"{message}"}}'
        self.transport.write(
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        self._close()

    def _close(self) -> None:
        """Close as soon as the client has read what was sent."""
        self._head.stop()
        self._body.stop()
        self._await_reader()
        self.transport.close()


class SlowBody:
    """ASGI middleware: 408 and an end of the connection if a body takes longer than `patience`.

    Parameters
    ----------
    app : ASGI application
    patience : float
        Seconds for the whole body, from the end of the headers.
    """

    def __init__(self, app: ASGIApp, patience: float) -> None:
        self.app = app
        self.patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and watch the clock until its body is complete."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = RefusableCall(send)
        deadline = asyncio.get_running_loop().time() + self.patience
        complete = False

        async def receive_in_time() -> Message:
            nonlocal complete
            if complete:
                # What follows the body is the end of the connection, for which one may wait long.
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise call.refuse(self._too_slow()) from None
            complete = not message.get("more_body", False)
            return message

        await call.run(self.app, scope, receive_in_time)

    def _too_slow(self) -> ProblemError:
        return ProblemError(
            408,
            "body_too_slow",
            f"The body of a request must arrive within {self.patience:g} s.",
            {"connection": "close"},
        )


def raise_file_limit() -> int:
    """Raise the number of files that may be open as far as it is needed and allowed.

    Returns
    -------
    int
        Connections for which there is room. Without room even a refusal could not be sent: the
        client would wait until another leaves.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    # A process with very few files gets along with fewer others.
    return min(MOST_CONNECTIONS, max(soft - OTHER_FILES, soft // 2))


class _Timer:
    """One thing to be done after some time, unless it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self, seconds: float, act: Callable[[], None]) -> None:
        self.stop()
        self._handle = self._loop.call_later(seconds, self._run, act)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self, act: Callable[[], None]) -> None:
        self._handle = None
        act()


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in headers
    )
