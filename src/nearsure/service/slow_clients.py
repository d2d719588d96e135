"""Clients that hold a connection without using it, and how many connections there may be.

uvicorn waits without limit for the head of a request and for a client to read its answer, and
accepts any number of headers. Here the head has a time and a size, the rest of a body that nobody
needs any more has a time, and so has an answer that is not read. `BodyLimit` of the middleware
limits the body itself.

A request to change the protocol that has a body is refused: the parser does not read that body, and
would take it for the next request, which could be made to pass a proxy unseen.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from uvicorn.protocols.http import httptools_impl as uvicorn_http

from nearsure.service.errors import ProblemError

log = logging.getLogger("nearsure.service")

LARGEST_HEAD = 64 * 1024
# A client that was answered early (too large, not allowed) may go on sending so long: were the
# connection closed at once, the answer would be lost on the way.
LINGER = 2.0
BAD_REQUEST = ProblemError(400, "bad_request", "This cannot be read as HTTP/1.1.")
NO_UPGRADE = ProblemError(400, "no_upgrade", "Only HTTP/1.1 is served. Send no Upgrade header.")
TOO_LARGE = ProblemError(
    431, "head_too_large", f"The head of a request may have {LARGEST_HEAD} bytes."
)
TOO_MANY = ProblemError(503, "overloaded", "Too many connections.")


class LimitedProtocol(uvicorn_http.HttpToolsProtocol):
    """uvicorn's protocol with limits, for ``uvicorn.Config(http=partial(LimitedProtocol, ...))``.

    Parameters
    ----------
    patience : float
        Seconds for the head of a request, and for a client to take some more of its answer.
    largest_connections : int
        Connections at once, used or idle; further ones are closed with a 503.
    **options
        uvicorn's.
    """

    def __init__(self, patience: float, largest_connections: int, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._patience, self._largest_connections = patience, largest_connections
        # By what is awaited: "head", "body" or "reader".
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # The second: bytes that came since the last that belonged to a body.
        self._head_is_next, self._n_bytes = True, 0
        self._answered: uvicorn_http.RequestResponseCycle | None = None
        self._refusal = BAD_REQUEST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head from now on, unless there are too many connections."""
        super().connection_made(transport)
        self._wait("head", self._patience, self._end_slow_head)
        if len(self.connections) > self._largest_connections:
            _warn_of_many(self._largest_connections)
            self._refuse(TOO_MANY)

    def data_received(self, data: bytes) -> None:
        """Parse what came; limit what belongs to no body, be it heads, trailers or chunk sizes."""
        self._n_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._n_bytes > LARGEST_HEAD:
            self._refuse(TOO_LARGE)
        elif self._head_is_next and self._n_bytes and "head" not in self._timers:
            self._wait("head", self._patience, self._end_slow_head)

    def on_headers_complete(self) -> None:
        """Refuse a head; or else the app's own limits hold from here on."""
        n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if n_bytes > LARGEST_HEAD:
            self._refusal = TOO_LARGE
        elif self.parser.should_upgrade() and any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        ):
            self._refusal = NO_UPGRADE
        if self._refusal is not BAD_REQUEST:
            # It stops the parser, after which uvicorn calls `send_400_response`.
            raise ValueError(self._refusal.error)
        self._head_is_next, self._n_bytes = False, 0
        self._stop("head")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Leave these bytes to the app, which counts them."""
        self._n_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect another head, at any time."""
        self._head_is_next, self._n_bytes = True, 0
        self._stop("body")
        super().on_message_complete()

    def _start_asgi_task(self, cycle: uvicorn_http.RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Discard what is left of the body, but not for ever."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()
        elif not self._head_is_next and self.cycle.response_complete:
            self._wait("body", LINGER, self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._await_reader()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more, but may read: answer what it has asked, and close then."""
        if self._head_is_next and self._is_answering():
            self.cycle.keep_alive = False
            return True
        self.timeout_keep_alive_handler()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop("head", "body", "reader")
        # uvicorn ends the newest of several requests only, while an older one is being answered.
        if self._answered is not None:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's
        """Refuse what is no HTTP, in the form of all refusals."""
        self._refuse(self._refusal)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: the request is answered without an upgrade."""

    def _is_answering(self) -> bool:
        return self._answered is not None and not self.cycle.response_complete

    def _end_slow_head(self) -> None:
        if self._is_answering():
            # The head of a second request, while the first is still being answered.
            self._wait("head", self._patience, self._end_slow_head)
            return
        message = f"The head of a request must arrive within {self._patience:g} s."
        self._refuse(ProblemError(408, "head_too_slow", message))

    def _await_reader(self, n_before: int | None = None) -> None:
        """Abort a connection whose client must read first, and reads nothing in time."""
        n_unread = self.transport.get_write_buffer_size()
        if n_before is None or n_unread < n_before:
            self._wait("reader", self._patience, partial(self._await_reader, n_unread))
        elif self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()

    def _refuse(self, problem: ProblemError) -> None:
        body = problem.body()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(uvicorn_http.STATUS_LINE[problem.status] + head % len(body) + body)
        self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """Close as soon as the client has read what was sent."""
        self._stop("head", "body")
        self.transport.close()
        self._await_reader()

    def _wait(self, awaited: str, seconds: float, act: Callable[[], None]) -> None:
        """Act after some time, unless what is awaited comes before."""
        self._stop(awaited)
        self._timers[awaited] = self.loop.call_later(seconds, act)

    def _stop(self, *awaited: str) -> None:
        for name in awaited:
            if name in self._timers:
                self._timers.pop(name).cancel()


@cache
def _warn_of_many(n_connections: int) -> None:
    """Warn once: a flood of connections must not fill the log."""
    log.warning("%d connections are open: others are refused. Logged once.", n_connections)
