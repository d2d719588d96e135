"""Connections to PostgreSQL: a pool, addresses without secrets, errors translated."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from nearsure.engines.registry import without
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
)

URI_VARIABLE = "NEARSURE_POSTGRES_URI"
_SCHEMES = ("postgresql://", "postgres://")
_SECRET_FIELDS = ("password", "sslpassword")
_SHOWN_FIELDS = ("host", "port", "dbname", "user")
# A server that vanished without closing connections is noticed within a minute, not two hours.
_DEFAULTS: dict[str, str | int] = {
    "fallback_application_name": "nearsure",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# Also where data were sent and not received: keepalives do not count then. Sockets of the same
# machine ignore it.
_FIRST_WITH_USER_TIMEOUT = 120_000
if pq.version() >= _FIRST_WITH_USER_TIMEOUT:
    _DEFAULTS["tcp_user_timeout"] = 60_000


@dataclass(frozen=True)
class Address:
    """Parameters of a connection; `shown` holds none of the secrets.

    Parameters
    ----------
    conninfo : str
        What libpq is given.
    secrets : tuple of str
        What no message may quote.
    shown : str
        Host, port, database and user, as far as they were given.
    """

    conninfo: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    shown: str

    def clean(self, text: str) -> str:
        """A text without the secrets of this address."""
        return without(text, *self.secrets)


def address_of(uri: str | None, timeout: float) -> Address:
    """Read an address: the URI, else the environment's, else what libpq finds by itself.

    Examples
    --------
    >>> address_of("postgresql://ann:s3cret@db:5433/shop", timeout=5).shown
    'host=db port=5433 dbname=shop user=ann'
    """
    text = uri if uri is not None else os.environ.get(URI_VARIABLE, "")
    try:
        given = {name: part for name, part in conninfo_to_dict(text).items() if part is not None}
        # What cannot be a port, or several, may be the rest of a password.
        is_read = all(not part or part.isdigit() for part in str(given.get("port", "")).split(","))
    except psycopg.ProgrammingError:
        is_read = False
    if not is_read:
        # The parser's own message may quote the password, so it is not passed on.
        raise InvalidInputError(
            "uri must be an address that libpq reads, such as "
            "postgresql://user@host:5432/database or 'host=... dbname=...'. Got one that it cannot "
            "read (it is not shown, as it may hold a password). Percent-encode special characters."
        )
    if _may_show_a_password(text, given):
        raise InvalidInputError(
            "uri must have one @, before the host. Got one elsewhere (it is not shown, as it may "
            "hold a password). Write %40 for an @ in a password or a name, and %2F for a /."
        )
    secrets = [str(given[name]) for name in _SECRET_FIELDS if given.get(name)]
    secrets += filter(None, [os.environ.get("PGPASSWORD")])
    shown = " ".join(f"{name}={given[name]}" for name in _SHOWN_FIELDS if given.get(name))
    parameters = {
        **_DEFAULTS,
        "connect_timeout": max(1, round(timeout)),
        **given,
        # Ids and labels are Unicode, whatever the environment of this process has.
        "client_encoding": "utf8",
    }
    return Address(make_conninfo("", **parameters), tuple(secrets), shown or "libpq's defaults")


def _may_show_a_password(text: str, given: dict[str, str | int]) -> bool:
    """Whether an @, / or ? that was not encoded moved a password into what is shown."""
    _, _, behind_scheme = text.partition("://")
    _, _, behind_host = behind_scheme.partition("/")
    host, database, user = (str(given.get(name, "")) for name in ("host", "dbname", "user"))
    if text.startswith(_SCHEMES) and ("@" in behind_host or "?" in user):
        return True
    return "@" in host or "@" in database


# The first match decides. Codes: appendix A of PostgreSQL's manual.
_BY_STATE: tuple[tuple[tuple[str, ...], type[EngineError], str], ...] = (
    (("28",), EngineAccessError, "It refuses the login: check user and password."),
    (("42501",), EngineAccessError, "The user lacks a right: have it granted."),
    (("25006",), EngineAccessError, "The server or the user is read-only: write to the primary."),
    (("3D000",), GalleryNotFoundError, "Check the database's name."),
    (("42P01", "3F000"), GalleryNotFoundError, "Check the table's name, or create it."),
    (("42P07",), GalleryMismatchError, "Open it with PostgresEngine(...), or choose another name."),
    (("08", "57P", "53300"), EngineUnavailableError, "Try again when it is back."),
    (("57014",), EngineError, "Raise statement_timeout, or ask for less at once."),
    (("53100",), EngineError, "Nothing was changed. Make room on the server's disk, and repeat."),
    (("53",), EngineError, "Nothing was changed. Free the server's resources, and repeat."),
    (("40", "55P03"), EngineError, "Nothing was changed, as others changed the same; repeat it."),
    (("58P01",), EngineError, "pgvector may not be installed on the server."),
    (("0A000",), EngineError, "This server, or a table of this kind, cannot do it."),
    (("22", "23", "42", "54"), GalleryMismatchError, "Check that the table matches the request."),
)
# libpq gives no code when it fails to connect, so its text decides.
_REFUSED = (
    "authentication failed",
    "no password supplied",
    "pg_hba.conf",
    "permission denied",
    "not permitted to log in",
)


def engine_error(error: psycopg.Error, address: Address) -> EngineError:
    """The same as an error of nearsure, with a remedy."""
    raw = error.diag.message_primary or str(error).strip() or type(error).__name__
    text = address.clean(raw)
    if error.diag.message_detail:
        text += f" ({address.clean(error.diag.message_detail)})"
    for states, kind, remedy in _BY_STATE:
        if error.sqlstate is not None and error.sqlstate.startswith(states):
            return kind(f"PostgreSQL ({address.shown}): {text}. {remedy}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return _connection_error(raw, text, address)
    return EngineError(f"PostgreSQL ({address.shown}): {text}.")


def _connection_error(raw: str, text: str, address: Address) -> EngineError:
    """Errors of the connection itself, which carry no code; `text` is what may be shown of it."""
    where = f"PostgreSQL ({address.shown})"
    # A password may be a word of the message, so that the signs are looked for before it is hidden.
    is_missing = "does not exist" in raw
    if is_missing and 'FATAL:  database "' in raw:
        return GalleryNotFoundError(f"{where}: {text}. Check the database's name.")
    if (is_missing and 'FATAL:  role "' in raw) or any(sign in raw for sign in _REFUSED):
        return EngineAccessError(f"{where}: {text}. Check user, password and rights.")
    return EngineUnavailableError(
        f"{where} cannot be reached, or went away: {text}. Check that it runs, and try again."
    )


Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Pool: TypeAlias = ConnectionPool[Connection]
Result = TypeVar("Result")

# Seconds between the attempts of a read: at once for a connection that had gone stale, then
# long enough for a server that is about to be back.
_PAUSES = (0.0, 0.5)
# What became of a write that failed.
_OUTCOMES = {
    "checking": "Nothing was changed.",
    "working": "Nothing was changed.",
    "committing": "The connection broke while the change was being committed: it was made whole or "
    "not at all. Look with size() or fetch() before repeating it.",
}


class Connections:
    """A few connections for several threads, opened when needed.

    Parameters
    ----------
    address : Address
        The server.
    size : int
        How many may be open at once.
    timeout : float
        Seconds to wait for one that is free.
    """

    def __init__(self, address: Address, size: int, timeout: float) -> None:
        self._address = address
        self._size = size
        self._timeout = timeout
        self._closed = False
        # By process: a parent keeps its connections, as closing them in a child would end its
        # sessions.
        self._pools = {os.getpid(): self._new_pool()}
        self._is_suspect = False

    def reading(self, work: Callable[[Connection], Result]) -> Result:
        """What `work` returns, asked again if the connection broke: a read changes nothing."""
        return self._run(work, may_repeat=lambda: True)

    def writing(self, work: Callable[[Connection], Result]) -> Result:
        """What `work` returns, committed whole; never asked again, as it may have been done."""
        stage = "checking"

        def write(connection: Connection) -> Result:
            nonlocal stage
            Pool.check_connection(connection)
            stage = "working"
            result = work(connection)
            stage = "committing"
            return result

        try:
            return self._run(write, may_repeat=lambda: stage == "checking")
        except EngineUnavailableError as failure:
            raise EngineUnavailableError(f"{failure} {_OUTCOMES[stage]}") from None

    @contextmanager
    def dedicated(self) -> Iterator[Connection]:
        """A connection for what lasts long, beside those that may be open at once."""
        self._check_open()
        try:
            with closing(self._connect()) as connection:
                yield connection
        except psycopg.Error as error:
            raise engine_error(error, self._address) from None

    def close(self) -> None:
        """Close what is idle; what is lent out is closed when it comes back."""
        self._closed = True
        pool = self._pools.get(os.getpid())
        if pool is not None:
            pool.close()

    def _run(self, work: Callable[[Connection], Result], may_repeat: Callable[[], bool]) -> Result:
        pauses = iter(_PAUSES)
        while True:
            is_lent = False
            try:
                with self._lent() as connection:
                    is_lent = True
                    return work(connection)
            except PoolTimeout:
                raise self._waited_in_vain() from None
            except psycopg.Error as error:
                failure = engine_error(error, self._address)
                is_repeated = isinstance(failure, EngineUnavailableError) and may_repeat()
                pause = next(pauses, None) if is_repeated else None
                if pause is None:
                    raise failure from None
                self._is_suspect = True
                if is_lent:
                    # If one connection broke while it lay idle, the others did, too.
                    self._own_pool().drain()
                time.sleep(pause)

    def _waited_in_vain(self) -> EngineError:
        """Why no connection came: the server refuses new ones, or all are in use."""
        try:
            self._connect().close()
        except psycopg.Error as error:
            return engine_error(error, self._address)
        return EngineUnavailableError(
            f"All {self._size} connections to PostgreSQL ({self._address.shown}) were in use, or "
            f"could not be opened, for {self._timeout:g} seconds. Raise pool_size or timeout."
        )

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        """A connection of the pool, whose transaction is committed at the end."""
        self._check_open()
        pool = self._own_pool()
        stats = pool.get_stats()
        if self._is_suspect or (not stats["pool_available"] and stats["pool_size"] < self._size):
            # The pool connects in a thread of its own, and would only tell that time is over.
            self._connect().close()
            self._is_suspect = False
        with pool.connection() as connection:
            yield connection

    def _own_pool(self) -> Pool:
        """The pool of this process; another one after a fork."""
        pool = self._pools.get(os.getpid())
        if pool is None:
            new = self._new_pool()
            pool = self._pools.setdefault(os.getpid(), new)
            if pool is not new:
                new.close()
        return pool

    def _connect(self) -> Connection:
        return psycopg.connect(self._address.conninfo, prepare_threshold=None)

    def _new_pool(self) -> Pool:
        return ConnectionPool(
            self._address.conninfo,
            # Statements are planned again each time: a plan that was kept would ignore the
            # settings of later transactions, and poolers before the server would lose it.
            kwargs={"prepare_threshold": None},
            min_size=0,
            max_size=self._size,
            timeout=self._timeout,
            # Only one attempt: the next request makes another.
            reconnect_timeout=0,
            num_workers=1,
            open=True,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("The engine was closed. Make a new one.")
