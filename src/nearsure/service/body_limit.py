"""Bodies that are too large are refused before or while they come."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.problems import ProblemError
from nearsure.service.refusal import RefusableCall


class BodyLimit:
    """ASGI middleware: 413 for a body of more bytes, whether it says so or only turns out so.

    Parameters
    ----------
    app : ASGI application
    largest_body : int
        Bytes.
    """

    def __init__(self, app: ASGIApp, largest_body: int) -> None:
        self.app = app
        self.largest_body = largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what comes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = _declared_length(scope)
        if declared is not None and declared > self.largest_body:
            await self._too_large().answer(send)
            return
        if declared is not None:
            # The server hands on no more than was declared.
            await self.app(scope, receive, send)
            return
        call = RefusableCall(send)
        n_bytes = 0

        async def counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self.largest_body:
                raise call.refuse(self._too_large())
            return message

        await call.run(self.app, scope, counted)

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
    return int(length)
