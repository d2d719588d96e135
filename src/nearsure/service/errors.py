"""Problems of requests, and which errors are which problems."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from sklearn.exceptions import NotFittedError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Send

from nearsure.errors import (
    BrokenImageError,
    EngineError,
    GalleryMismatchError,
    InvalidInputError,
    MissingExtraError,
)

log = logging.getLogger("nearsure.service")
# Seconds after which a client that is refused for the moment may retry.
SHORTLY = 1
# How many mistakes of a request an answer lists.
MOST_LISTED = 3
MOST_READ = 100
LONGEST_NAME = 50
NAMES = {
    400: ("bad_request", "The request cannot be read."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take this method."),
    415: ("unsupported_media_type", "This address does not take this kind of content."),
}


class ProblemError(Exception):
    """Whatever ends a request early; the middleware `Problems` turns it into an answer.

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
    """The problem of an engine that fails; its own message is logged and not sent to clients."""
    return ProblemError(
        503,
        "engine_unavailable",
        "The gallery cannot be reached or cannot do this now. Try again shortly.",
        {"retry-after": str(SHORTLY)},
    )


class Overloaded(ProblemError):  # noqa: N818 - a state, and named so in the answer
    """There are more requests than can be answered at the moment."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "overloaded", message, {"retry-after": str(SHORTLY)})


def problem_of(error: Exception) -> ProblemError | None:
    """The problem that an error is to a client; None for one that should not happen."""
    if isinstance(error, ProblemError):
        return error
    return next((make(error) for kinds, make in PROBLEMS if isinstance(error, kinds)), None)


async def raise_again(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Leave an error to the middleware, in place of a handler of the framework."""
    raise error


def _invalid(error: Any) -> ProblemError:  # noqa: ANN401 - pydantic's or FastAPI's
    if isinstance(error, ValidationError):
        n_mistakes = error.error_count()
        if n_mistakes > MOST_READ:
            # Each would become a Python object, made in the event loop.
            return ProblemError(422, "invalid_request", f"body: {n_mistakes} mistakes.")
        mistakes: Any = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        mistakes = error.errors()
    if any(one["type"] == "json_invalid" for one in mistakes):
        return ProblemError(400, "malformed_json", "The body must be JSON. It cannot be read.")
    sentences = [f"{_place(one['loc'])}: {one['msg']}" for one in mistakes[:MOST_LISTED]]
    if len(mistakes) > MOST_LISTED:
        sentences.append(f"and {len(mistakes) - MOST_LISTED} more")
    return ProblemError(422, "invalid_request", "; ".join(sentences) + ".")


def _place(location: tuple[int | str, ...]) -> str:
    """Where something is wrong; names that a client made up may be long."""
    return ".".join(str(part)[:LONGEST_NAME] for part in location) or "body"


def _of_framework(error: Any) -> ProblemError:  # noqa: ANN401
    name, message = NAMES.get(error.status_code, ("http_error", str(error.detail)))
    return ProblemError(error.status_code, name, message, error.headers)


def _of_engine(error: Exception) -> ProblemError:
    log.warning("The engine failed: %s", error)
    return engine_unavailable()


# The first that fits: what does not fit the gallery is an error of an engine, too.
PROBLEMS: tuple[tuple[tuple[type[Exception], ...], Callable[[Any], ProblemError]], ...] = (
    ((ValidationError, RequestValidationError), _invalid),
    ((HTTPException,), _of_framework),
    (
        # The answer is not read, but a client that disconnects is no failure of the service.
        (ClientDisconnect,),
        lambda _: ProblemError(400, "incomplete", "The connection ended before the request did."),
    ),
    (
        (InvalidInputError, GalleryMismatchError, BrokenImageError),
        lambda error: ProblemError(422, "invalid_input", str(error)),
    ),
    ((MissingExtraError,), lambda error: ProblemError(501, "not_installed", str(error))),
    # An engine of one's own may raise plain errors of a connection.
    ((EngineError, TimeoutError, ConnectionError), _of_engine),
    (
        (NotFittedError,),
        lambda _: ProblemError(409, "not_fitted_yet", "Nothing is fitted yet. POST /v1/refit."),
    ),
)
