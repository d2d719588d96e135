"""Clients that hold a connection without using it.

uvicorn waits for the head of a request for ever: it closes a connection that is silent after an
answer, but not one that never sends anything, nor one that sends a byte now and then; and it keeps
as many headers as come. This protocol sets a time and a size for the head, a time for the rest of a
body after an answer was given, a time for a client to take its answer, and a number of connections.

A request to change the protocol that has a body is refused: the parser does not read that body, and
would take it for the next request, which could be made to pass a proxy unseen.
"""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("nearsure.service")

LARGEST_HEAD = 64 * 1024
# Somebody who was answered early (too large, not allowed) may go on sending so long: were the
# connection closed at once, the answer would be lost on the way.
LINGER = 2.0


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits; `patient_protocol` makes the class that uvicorn is given."""

    patience = 30.0
    largest_connections = 10_000
    has_turned_away = False

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_is_due = True
        self._head_bytes = 0
        self._n_parts = 0
        self._body_is_due = False
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head from now on."""
        super().connection_made(transport)
        if len(self.connections) > self.largest_connections:
            self._tell_once()
            self._turn_away(b"503 Service Unavailable", "overloaded", "Too many connections.")
            return
        self._set_deadline(self.patience, self._head_too_slow)

    def data_received(self, data: bytes) -> None:
        """Take what came, and look whether the head is complete."""
        n_parts = self._n_parts
        super().data_received(data)
        # Where something was completed, most of the data was no part of the next head.
        if not self._head_is_due or self._n_parts > n_parts or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > LARGEST_HEAD:
            self._turn_away(
                b"431 Request Header Fields Too Large",
                "head_too_large",
                f"The head of a request may have {LARGEST_HEAD} bytes.",
            )
        elif self._deadline is None:
            self._set_deadline(self.patience, self._head_too_slow)

    def on_headers_complete(self) -> None:
        """From here on the app's own limits hold."""
        if self.parser.should_upgrade() and _has_body(self.headers):
            self._is_refused = True
            self._turn_away(
                b"400 Bad Request",
                "no_upgrade",
                "The service speaks HTTP/1.1 alone. Send no Upgrade header.",
            )
            return
        self._head_is_due = False
        self._head_bytes = 0
        self._n_parts += 1
        self._body_is_due = True
        self._clear_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next thing to come is another head, whenever the client likes."""
        if self._is_refused:
            return
        self._head_is_due = True
        self._body_is_due = False
        self._n_parts += 1
        self._clear_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """What is left of the body is thrown away, but not for ever."""
        super().on_response_complete()
        if self._body_is_due and not self.transport.is_closing():
            self._set_deadline(LINGER, self.transport.close)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._set_deadline(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._clear_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._clear_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's
        """Refuse what is no HTTP, in the form of all refusals."""
        self._turn_away(b"400 Bad Request", "bad_request", "This cannot be read as HTTP/1.1.")

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: it is no fault of the service, which needs no other protocol."""

    def _head_too_slow(self) -> None:
        self._deadline = None
        if self._n_parts and not self.cycle.response_complete:
            # The head of a second request, while the first is still being answered.
            self._set_deadline(self.patience, self._head_too_slow)
            return
        self._turn_away(
            b"408 Request Timeout",
            "head_too_slow",
            f"The head of a request must arrive within {self.patience:g} s.",
        )

    def _tell_once(self) -> None:
        """Whoever comes too often would fill the log, too."""
        kind = type(self)
        if not kind.has_turned_away:
            kind.has_turned_away = True
            log.warning(
                "%d connections are open: further ones are turned away. This is said once.",
                self.largest_connections,
            )

    def _turn_away(self, status: bytes, error: str, message: str) -> None:
        self._clear_deadline()
        body = f'{{"error":"{error}","message":"{message}"}}'.encode()
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, len(body), body)
        )
        self.transport.close()

    def _set_deadline(self, after: float, act: Any) -> None:  # noqa: ANN401
        self._clear_deadline()
        self._deadline = self.loop.call_later(after, act)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in headers
    )


def patient_protocol(patience: float, largest_connections: int = 10_000) -> type[PatientProtocol]:
    """The protocol for ``uvicorn.Config(http=...)``.

    Parameters
    ----------
    patience : float
        Seconds for the head of a request, and for a client that does not take its answer.
    largest_connections : int
        Connections at once, used or idle; further ones are closed with a 503.
    """
    limits = {"patience": patience, "largest_connections": largest_connections}
    return type("ThisPatientProtocol", (PatientProtocol,), limits)
