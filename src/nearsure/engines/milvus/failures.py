"""What pymilvus and gRPC raise, as errors of nearsure."""

from enum import Enum
from typing import Any

from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryNotFoundError,
    NearsureError,
)


class TooLargeError(EngineError):
    """An answer did not fit into a message: less must be asked for at once."""


class Failure(Enum):
    """What went wrong, as far as it decides what to do next."""

    GONE = "the server cannot be reached"
    SLOW = "the server did not answer in time"
    WAKING = "the server is there, but not ready yet"
    RELEASED = "the collection is not in memory"
    MISSING = "there is no such collection"
    REFUSED = "the server refuses"
    READ_ONLY = "a disk or a file cannot be written"
    TOO_LARGE = "the answer does not fit into a message"
    OTHER = "something else"


# Codes of Milvus 2.3 and later (its package merr); milvus-lite uses the same where it has any.
_BY_CODE = {
    1: Failure.OTHER,  # also "not ready", told apart by its message
    100: Failure.MISSING,
    101: Failure.RELEASED,
    1400: Failure.REFUSED,
    1401: Failure.REFUSED,
    # Replicas, channels and nodes that a server finds again after a restart.
    **dict.fromkeys((103, 400, 401, 500, 501, 503, 901, 902, 903), Failure.WAKING),
}
_BY_STATUS = {
    "UNAVAILABLE": Failure.GONE,
    "DEADLINE_EXCEEDED": Failure.SLOW,
    "RESOURCE_EXHAUSTED": Failure.TOO_LARGE,
    "CANCELLED": Failure.GONE,
    "UNAUTHENTICATED": Failure.REFUSED,
    "PERMISSION_DENIED": Failure.REFUSED,
}
_BY_WORDS = (
    ("fail connecting to server", Failure.GONE),
    ("closed channel", Failure.GONE),
    ("retry timeout", Failure.SLOW),
    ("should create connect first", Failure.GONE),
    ("auth check failure", Failure.REFUSED),
    ("not ready yet", Failure.WAKING),
    ("service not ready", Failure.WAKING),
    ("node not found", Failure.WAKING),
    ("no available shard", Failure.WAKING),
    ("shard leader", Failure.WAKING),
    ("channel not available", Failure.WAKING),
    ("channel not found", Failure.WAKING),
    ("not fully loaded", Failure.WAKING),
    ("wait for loading", Failure.WAKING),
    ("rate limit", Failure.WAKING),
    ("ratelimiter", Failure.WAKING),
    ("read-only file system", Failure.READ_ONLY),
    ("permission denied", Failure.READ_ONLY),
    ("maxoutputsize", Failure.TOO_LARGE),
    ("message larger than max", Failure.TOO_LARGE),
)


def kind_of(error: BaseException) -> Failure:
    """What an error of pymilvus or gRPC means."""
    # pymilvus says of every failure to connect that the server may not be there.
    for own in (error.__cause__, error):
        code = _code_of(own)
        if getattr(code, "name", None) in _BY_STATUS:
            return _BY_STATUS[code.name]
    words = text_of(error).lower()
    for part, failure in _BY_WORDS:
        if part in words:
            return failure
    return _BY_CODE.get(code, Failure.OTHER) if isinstance(code, int) else Failure.OTHER


def text_of(error: BaseException) -> str:
    """The message alone, in one line."""
    details: Any = getattr(error, "message", None) or getattr(error, "details", None)
    details = details() if callable(details) else details
    return " ".join(str(details or error).split())


def _code_of(error: BaseException | None) -> Any:  # noqa: ANN401
    code = getattr(error, "code", None)
    return code() if callable(code) else code


def nearsure_error(failure: Failure, place: str, reason: str) -> NearsureError:
    """The error to raise; `reason` must be free of secrets."""
    kind, what, remedy = _ERRORS.get(failure, (EngineError, "could not do it", ""))
    return kind(f"{place} {what}: {reason} {remedy}".rstrip())


def of_unknown_outcome(error: NearsureError) -> NearsureError:
    """The same of a change that was sent: an answer that did not come says nothing."""
    return type(error)(
        f"{error} Whether the change was made is unknown: it may have been, or still be. Look with "
        "size() or fetch() before you repeat it."
    )


_ERRORS: dict[Failure, tuple[type[NearsureError], str, str]] = {
    Failure.GONE: (
        EngineUnavailableError,
        "cannot be reached, or went away",
        "Once it is there again, the engine need not be made anew.",
    ),
    Failure.SLOW: (
        EngineUnavailableError,
        "did not answer in time",
        "Wait longer with timeout=.",
    ),
    Failure.WAKING: (EngineUnavailableError, "is not ready", "Ask again later."),
    Failure.RELEASED: (EngineUnavailableError, "is not ready", "Ask again later."),
    Failure.MISSING: (
        GalleryNotFoundError,
        "has no such collection",
        "MilvusEngine.create makes one.",
    ),
    Failure.REFUSED: (
        EngineAccessError,
        "refuses",
        'Check token= or NEARSURE_MILVUS_TOKEN ("user:password" or an API key) and its rights.',
    ),
    Failure.READ_ONLY: (
        EngineAccessError,
        "cannot be written",
        "See to its disk and to the rights of its files, and do the same again.",
    ),
    Failure.TOO_LARGE: (TooLargeError, "cannot answer in one message", ""),
}
