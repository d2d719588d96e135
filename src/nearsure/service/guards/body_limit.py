"""Bodies that are too large, alone or together, are refused before or while they come."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.guards.refusal import RefusableCall
from nearsure.service.problems import Overloaded, ProblemError

LARGEST_TOGETHER = 256 * 2**20
# Thousands of these fit beside the others, and need not be counted.
SMALL = 64 * 2**10
# Of 2**64 - 1: servers read no larger number, but zeros may stand before it.
MOST_DIGITS = 20


class BodyLimit:
    """ASGI middleware: 413 for a body of more bytes, whether it says so or only turns out so.

    503 if the bodies of all requests under way come to too many. What counts is what has come, as
    whoever only announces a large body takes no memory.

    Parameters
    ----------
    app : ASGI application
    largest_body : int
        Bytes of one.
    largest_together : int
        Bytes of those under way; at least one of the largest may come in any case.
    """

    def __init__(
        self, app: ASGIApp, largest_body: int, largest_together: int = LARGEST_TOGETHER
    ) -> None:
        self.app = app
        self.largest_body = largest_body
        self.largest_together = max(largest_together, largest_body)
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what comes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = _declared_length(scope)
        if declared is not None and declared > self.largest_body:
            await self._too_large().answer(send)
            return
        if declared is not None and declared <= SMALL:
            # The server hands on no more than was declared.
            await self.app(scope, receive, send)
            return
        call = RefusableCall(send)
        n_bytes = 0

        async def counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_new = len(message.get("body", b""))
            n_bytes += n_new
            self.under_way += n_new
            if n_bytes > self.largest_body:
                raise call.refuse(self._too_large())
            if self.under_way > self.largest_together:
                raise call.refuse(Overloaded("Too much is being sent. Ask again shortly."))
            return message

        try:
            await call.run(self.app, scope, counted)
        finally:
            self.under_way -= n_bytes

    def _too_large(self) -> ProblemError:
        return ProblemError(
            413,
            "body_too_large",
            f"A request may have {self.largest_body} bytes. Send it in several parts.",
        )


def _declared_length(scope: Scope) -> int | None:
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    # Beside a transfer coding a length counts for nothing. Digits only: int() takes "1_0", too.
    if b"transfer-encoding" in headers or not length.isdigit():
        return None
    if len(length) > MOST_DIGITS:
        raise ProblemError(
            400,
            "bad_request",
            f"Content-Length may have {MOST_DIGITS} digits. Got {len(length)} instead.",
        )
    return int(length)
