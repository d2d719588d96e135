"""Answers that are no success: always {"error": code, "message": sentence}."""

import json
from collections.abc import Mapping

from starlette.types import Send

# A client that is turned away for the moment may come back after so many seconds.
SHORTLY = 1


class ProblemError(Exception):
    """Whatever ends a request early; an exception handler of the app turns it into an answer.

    Parameters
    ----------
    status : int
        HTTP status.
    error : str
        Code for programs, such as ``"overloaded"``.
    message : str
        Sentence for people: what was wrong and what to do. It holds no secrets.
    headers : mapping, optional
        Further headers of the answer.

    Examples
    --------
    >>> problem = ProblemError(503, "overloaded", "Too many wait.", {"retry-after": "1"})
    >>> problem.body()
    b'{"error":"overloaded","message":"Too many wait."}'
    """

    def __init__(
        self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, error, message)
        self.status = status
        self.error = error
        self.message = message
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return self.message

    def body(self) -> bytes:
        """The answer's bytes."""
        document = {"error": self.error, "message": self.message}
        return json.dumps(document, separators=(",", ":")).encode()

    async def answer(self, send: Send) -> None:
        """Send it, where no response has been started."""
        body = self.body()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode()) for name, value in self.headers.items()),
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def engine_unavailable() -> ProblemError:
    """The problem of an engine that fails; what it says itself is for the log, not for clients."""
    return ProblemError(
        503,
        "engine_unavailable",
        "The gallery cannot be reached or cannot do this now. Ask again shortly.",
        {"retry-after": str(SHORTLY)},
    )


class Overloaded(ProblemError):  # noqa: N818 - a state, and named so in the answer
    """More is asked than can be answered; it passes."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "overloaded", message, {"retry-after": str(SHORTLY)})
