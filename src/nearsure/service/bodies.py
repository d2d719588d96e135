"""JSON bodies, parsed and checked in one step."""

import asyncio
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response

from nearsure.service.errors import ProblemError
from nearsure.service.schemas import LARGEST_VECTOR

Body = TypeVar("Body", bound=BaseModel)
# Larger ones are read in a thread, so that others are not kept waiting.
LARGEST_AT_ONCE = 64 * 1024
# So many marks too many are parsed nevertheless: the message can then say what is wrong.
TOLERATED = 64
PORTION = 64 * 1024
QUOTE = ord('"')
SCHEMAS = "#/components/schemas/"


async def read_body(
    request: Request, kind: type[Body], *, rows: int = 1, dimension: int = 0
) -> Body:
    """The body of a request as what it should be; a `ValidationError` says where it is not.

    Parameters
    ----------
    request : Request
        Whose body it is.
    kind : type
        What it should be.
    rows, dimension : int
        Vectors, items or ids that it may hold, and numbers of each. What holds far more is refused
        before it is parsed; how many there are exactly is for the caller to check.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() not in ("application/json", ""):
        raise ProblemError(
            415, "unsupported_media_type", "The body must be JSON: content-type: application/json."
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError(
            415, "unsupported_encoding", "The body must not be compressed. Send it as it is."
        )
    body = await request.body()

    def read() -> Body:
        check_parts(body, rows, dimension)
        # Strictly: text or true in the place of a number is a mistake of the client, no number.
        return kind.model_validate_json(body, strict=True)

    return read() if len(body) <= LARGEST_AT_ONCE else await asyncio.to_thread(read)


def check_parts(body: bytes, rows: int, dimension: int) -> None:
    """An error if JSON has far more parts than so many rows need.

    Two million lists of one number take seconds and a gigabyte to parse, and no other request is
    answered meanwhile; their brackets are counted in milliseconds.
    """
    most = {
        # A row is an object with a vector at most, and has three keys and two texts.
        b"[": rows + TOLERATED,
        b"{": rows + TOLERATED,
        b":": 3 * rows + TOLERATED,
        b'"': 2 * (5 * rows + TOLERATED),
        b",": rows * (dimension + 3) + LARGEST_VECTOR,
    }
    if all(body.count(mark) <= limit for mark, limit in most.items()):
        return
    # Perhaps they stand in text, where they mean nothing.
    counts = dict.fromkeys(most, 0)
    for part in outside_text(body):
        for mark, limit in most.items():
            counts[mark] += part.count(mark)
            if counts[mark] > limit:
                raise _too_many_parts(rows)


def outside_text(body: bytes, portion: int = PORTION) -> Iterator[bytes]:
    """JSON without what stands between quotes, in portions; quotes themselves are left.

    What follows a mistake may be cut in the wrong places: no parser comes so far.

    Examples
    --------
    >>> b"".join(outside_text(b'{"a, b": ["[1]", 2]}'))
    b'{"": ["", 2]}'
    """
    # Without what looks like the end of a text and is none.
    letters = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    n_quotes = 0
    for start in range(0, len(letters), portion):
        part = letters[start : start + portion]
        is_quote = part == QUOTE
        so_far = n_quotes + np.cumsum(is_quote)
        n_quotes = int(so_far[-1])
        yield part[is_quote | (so_far % 2 == 0)].tobytes()


def _too_many_parts(rows: int) -> ProblemError:
    if rows == 1:
        return ProblemError(
            422,
            "invalid_request",
            "body: It has far more lists, names or values than it may have. Send one query or "
            "change at a time.",
        )
    return ProblemError(
        422,
        "batch_too_large",
        f"A request may have {rows} vectors or items. Got far more, or more than belongs in them: "
        "send several requests.",
    )


def describe_body(kind: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of a body that `read_body` reads."""
    content = {"schema": {"$ref": f"{SCHEMAS}{kind.__name__}"}, "example": example}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def json_answer(document: object, status: int = 200) -> Response:
    """What is known to be right, without being checked again."""
    return Response(to_json(document), status, media_type="application/json")
