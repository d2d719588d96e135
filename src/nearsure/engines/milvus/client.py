"""A Milvus client that reconnects: addresses, errors, logging and local files."""

import base64
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from nearsure.engines.registry import without
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    MissingExtraError,
    NearsureError,
)
from nearsure.extras import require

# A forgotten engine may be cleared away in the middle of what holds the lock.
_registry_lock = threading.RLock()


@dataclass
class LiteFile:
    """A path that engines of this process have open.

    Parameters
    ----------
    path : Path
        Absolute.
    foreign : bool
        Whether it was open before nearsure came, so that it is not nearsure's to close.
    lock : lock
        Held while something is written: milvus-lite takes one writer at a time.
    """

    path: Path
    foreign: bool
    lock: threading.RLock = field(default_factory=threading.RLock)
    n_users: int = 0


_open_files: dict[Path, LiteFile] = {}


def enter(uri: str) -> LiteFile:
    """Register one more user of a path."""
    path = Path(uri).absolute()
    if not path.parent.is_dir():
        raise GalleryNotFoundError(f"There is no folder {path.parent} to keep {path.name} in.")
    manager = _manager()
    with _registry_lock:
        foreign = str(path) in getattr(manager, "_servers", {})
        file = _open_files.setdefault(path, LiteFile(path, foreign))
        file.n_users += 1
    return file


def leave(file: LiteFile) -> None:
    """Take one user off, and close the file after the last."""
    with _registry_lock:
        file.n_users -= 1
        if file.n_users:
            return
        del _open_files[file.path]
        if not file.foreign:
            _manager().release_server(str(file.path))


def opening_error(path: Path, causes: list[BaseException]) -> NearsureError:
    """Why milvus-lite could not open a path; the reason stands in its log alone."""
    cause = causes[0] if causes else None
    name = type(cause).__name__
    if name == "DataDirLockedError":
        return EngineUnavailableError(
            f"{path} is open in another process; milvus-lite takes one at a time. Close it there, "
            "or run a Milvus server for several."
        )
    if isinstance(cause, FileExistsError | NotADirectoryError):
        return GalleryMismatchError(f"{path} is not what this version of milvus-lite keeps.")
    if isinstance(cause, OSError):
        return EngineAccessError(f"{path} cannot be opened: {cause.strerror}.")
    return EngineError(f"milvus-lite could not open {path}: {name}.")


def _manager() -> Any:  # noqa: ANN401
    try:
        return import_module("milvus_lite.server_manager").server_manager_instance
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "A Milvus gallery in a file needs milvus-lite, which is not installed: "
            "pip install milvus-lite"
        ) from error


SCHEMES = ("http", "https", "tcp", "unix")
FILE_ENDING = ".db"


@dataclass(frozen=True)
class Address:
    """A file, or a server.

    Parameters
    ----------
    shown : str
        A path, or a URI without user and password; pymilvus is given the same.
    token : str
        ``user:password`` or an API key; empty if there is none.
    is_file : bool
        Whether it is a file of milvus-lite.
    """

    shown: str
    token: str = field(repr=False)
    is_file: bool

    @property
    def secrets(self) -> tuple[str, ...]:
        """All that must not be shown: the token, its password, and how it travels."""
        if not self.token:
            return ()
        travelling = base64.b64encode(self.token.encode()).decode()
        return (self.token, travelling, self.token.partition(":")[2])


def address_of(uri: str, token: str | None = None) -> Address:
    """Read a URI or a path; an error that does not show it if that cannot be done for certain.

    Examples
    --------
    >>> address_of("https://ann:s3cret@db:19530/shop?token=abc").shown
    'https://db:19530/shop'
    >>> address_of("gallery.db").is_file
    True
    """
    if "://" not in uri:
        # "ann:s3cret@db" may be a path or not.
        if not uri.endswith(FILE_ENDING) or ("@" in uri and not uri.startswith(("/", "."))):
            raise _unreadable("It has no http://, and is no path that ends in .db")
        return Address(uri, token or "", is_file=True)
    parts = _split(uri)
    if parts.scheme not in SCHEMES:
        raise _unreadable(f"It must begin with one of {', '.join(f'{own}://' for own in SCHEMES)}")
    if "@" in parts.path + parts.query + parts.fragment:
        raise _unreadable("An @ follows the first /, ? or #")
    if parts.path.endswith(FILE_ENDING):
        raise _unreadable("A server's address ends in .db, as only a path may")
    user_info, _, host = parts.netloc.rpartition("@")
    shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
    return Address(shown, token or user_info, is_file=False)


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        is_whole = parts.scheme == "unix" or bool(parts.hostname)
        _ = parts.port
    except ValueError:  # which quotes the address
        is_whole = False
    if not is_whole:
        raise _unreadable("Its host or its port cannot be read")
    return parts


def _unreadable(why: str) -> InvalidInputError:
    return InvalidInputError(
        "uri must be http(s)://[user:password@]host:port[/database], or a path that ends in .db "
        f"(./ before it if it holds an @). {why}; it is not shown, as it may hold a password. "
        "Give a password with /, ? or # in it as token= or NEARSURE_MILVUS_TOKEN."
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
_BY_WORDS = {
    Failure.GONE: "fail connecting to server|closed channel|should create connect first",
    Failure.SLOW: "retry timeout",
    Failure.REFUSED: "auth check failure",
    Failure.WAKING: "not ready yet|service not ready|node not found|no available shard|"
    "shard leader|channel not available|channel not found|not fully loaded|wait for loading|"
    "rate limit|ratelimiter",
    Failure.READ_ONLY: "read-only file system|permission denied",
    Failure.TOO_LARGE: "maxoutputsize|message larger than max",
}


def kind_of(error: BaseException) -> Failure:
    """What an error of pymilvus or gRPC means."""
    # The text of pymilvus is the same for every failure to connect.
    for own in (error.__cause__, error):
        code = _code_of(own)
        if getattr(code, "name", None) in _BY_STATUS:
            return _BY_STATUS[code.name]
    for failure, words in _BY_WORDS.items():
        if re.search(words, text_of(error), re.IGNORECASE):
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
    """The same of a change that was sent and whose answer did not come."""
    return type(error)(
        f"{error} Whether the change was made is unknown: it may have been, or still be. Look with "
        "size() or fetch() before you repeat it."
    )


_ERRORS: dict[Failure, tuple[type[NearsureError], str, str]] = {
    Failure.GONE: (
        EngineUnavailableError,
        "cannot be reached, or went away",
        "Once it is there again, the engine need not be created again.",
    ),
    Failure.SLOW: (EngineUnavailableError, "did not answer in time", "Wait longer with timeout=."),
    Failure.WAKING: (EngineUnavailableError, "is not ready", "Try again later."),
    Failure.RELEASED: (EngineUnavailableError, "is not ready", "Try again later."),
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


# pymilvus logs each failure with a traceback by itself, before it raises it.
#
# What nearsure asks of it comes back as an error of nearsure, without secrets. So its records are
# dropped while nearsure asks, in the thread that asks, and nowhere else.


LIBRARIES = ("pymilvus", "milvus_lite")
_here = threading.local()


class _NotAsking(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        failures: list[BaseException] | None = getattr(_here, "failures", None)
        if failures is None:
            return True
        if record.exc_info and record.exc_info[1] is not None:
            failures.append(record.exc_info[1])
        return False


_NOT_ASKING = _NotAsking()


def watch_loggers() -> None:
    """Make `quiet` work for the loggers of the modules that are imported by now."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in LIBRARIES:
            logger.addFilter(_NOT_ASKING)


@contextmanager
def quiet() -> Iterator[list[BaseException]]:
    """Drop the libraries' log records of this thread, and list the exceptions they held."""
    outer = getattr(_here, "failures", None)
    failures: list[BaseException] = []
    _here.failures = failures
    try:
        yield failures
    finally:
        _here.failures = outer


# A server that is there answers at once; one that is not should not be waited for.
CONNECTING_SECONDS = 5.0
WAKING_SECONDS = 0.1
# What leaves another state behind, of the requests that nearsure makes.
CHANGING = frozenset({"upsert", "delete", "create_collection", "drop_collection", "create_index"})


class Connection:
    """Requests to a file, server or cluster. Threads may share it.

    Parameters
    ----------
    address : Address
        Where, and with which token.
    timeout : float
        Seconds that a request may take.
    may_create : bool
        Whether a file of milvus-lite that is not there is made.
    """

    def __init__(self, address: Address, timeout: float, *, may_create: bool) -> None:
        self.pymilvus = require("pymilvus", extra="milvus", purpose="MilvusEngine")
        self._grpc = require("grpc", extra="milvus", purpose="MilvusEngine")
        self._address, self.timeout = address, timeout
        self.place = f"Milvus at {address.shown}"
        self._pid = os.getpid()
        self._file = None
        if address.is_file:
            if not may_create and not Path(address.shown).exists():
                raise GalleryNotFoundError(f"There is no {address.shown}.")
            self._file = enter(address.shown)
        self._write_lock = self._file.lock if self._file else threading.RLock()
        self._client: Any = None
        self._client_lock = threading.Lock()
        self._closed = False
        try:
            self._connected_client()
        except NearsureError:
            self.close()
            raise

    @property
    def is_file(self) -> bool:
        """Whether it is a file of milvus-lite."""
        return self._address.is_file

    @property
    def write_lock(self) -> threading.RLock:
        """Held while something is written by this process."""
        self._check_process()
        return self._write_lock

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client.

        All that nearsure asks may be asked twice: a search changes nothing, and upserts and
        deletions of the same points come to the same. So a request is repeated once if the server
        went away, while it wakes up, and if the collection (the first argument) had to be loaded.
        """
        give_up = time.monotonic() + self.timeout
        tried: set[Failure] = set()
        while True:
            client = self._client_for(method, was_sent=Failure.GONE in tried)
            try:
                with quiet():
                    return getattr(client, method)(*arguments, timeout=self.timeout, **options)
            except (self.pymilvus.MilvusException, self._grpc.RpcError) as error:
                failure, reason = kind_of(error), self._clean(error)
            if failure in {Failure.GONE, Failure.SLOW}:
                # What is still under way would hold up the next request.
                self._drop(client)
            is_first = failure not in tried
            tried.add(failure)
            if failure is Failure.WAKING and time.monotonic() < give_up:
                time.sleep(WAKING_SECONDS)
            elif failure is Failure.RELEASED and is_first and method != "load_collection":
                self.ask("load_collection", *arguments[:1])
            elif failure is not Failure.GONE or not is_first:
                # Outside of the except clause, so that the original, which may quote a secret, is
                # not chained.
                raise self._error(failure, method, reason)

    def close(self) -> None:
        """Give back the connection, and the file if no other engine has it open."""
        if self._pid != os.getpid():
            # They are the parent's, which goes on with them.
            return
        with self._client_lock:
            if self._closed:
                return
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._file is not None:
            leave(self._file)

    def __repr__(self) -> str:
        return f"<{self.place}>"

    def _check_process(self) -> None:
        """Locks, threads and sockets of gRPC do not survive a fork."""
        if self._pid != os.getpid():
            raise EngineError(
                f"The engine on {self.place} was opened before this process was forked, and works "
                "in the parent alone. Open another in this process"
                + (", once the parent has closed its own." if self.is_file else ".")
            )

    def _connected_client(self) -> Any:  # noqa: ANN401
        self._check_process()
        with self._client_lock:
            if self._closed:
                raise EngineError(f"The engine on {self.place} was closed. Open another.")
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _client_for(self, method: str, *, was_sent: bool) -> Any:  # noqa: ANN401
        try:
            return self._connected_client()
        except EngineUnavailableError as error:
            if was_sent and method in CHANGING:
                raise of_unknown_outcome(error) from None
            raise

    def _error(self, failure: Failure, method: str, reason: str) -> NearsureError:
        error = nearsure_error(failure, self.place, reason)
        if failure in {Failure.GONE, Failure.SLOW} and method in CHANGING:
            return of_unknown_outcome(error)
        return error

    def _drop(self, client: Any) -> None:  # noqa: ANN401
        with self._client_lock:
            if self._client is client:
                self._client = None
        with quiet():
            client.close()

    def _new_client(self) -> Any:  # noqa: ANN401
        watch_loggers()
        with quiet() as logged:
            try:
                return self.pymilvus.MilvusClient(
                    self._address.shown,
                    token=self._address.token,
                    timeout=min(CONNECTING_SECONDS, self.timeout),
                    # Shared ones are never closed by pymilvus.
                    dedicated=True,
                )
            except (self.pymilvus.MilvusException, self._grpc.RpcError) as error:
                failure, reason = kind_of(error), self._clean(error)
        if self._file is not None and failure is not Failure.GONE:
            raise opening_error(self._file.path, logged)
        raise nearsure_error(failure, self.place, reason)

    def _clean(self, error: BaseException) -> str:
        reason = without(text_of(error), *self._address.secrets).rstrip(".")
        return f"{reason}."
