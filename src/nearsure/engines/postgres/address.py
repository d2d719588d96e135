"""Where the server is, and what of that may be shown."""

import os
from dataclasses import dataclass, field

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from nearsure.engines.secrets import without
from nearsure.errors import InvalidInputError

URI_VARIABLE = "NEARSURE_POSTGRES_URI"
_SCHEMES = ("postgresql://", "postgres://")
_SECRET_FIELDS = ("password", "sslpassword")
_SHOWN_FIELDS = ("host", "port", "dbname", "user")
# A server that vanished without a word is noticed within a minute, not after two hours.
_DEFAULTS: dict[str, str | int] = {
    "fallback_application_name": "nearsure",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# Also where data were sent and not received: keepalives do not count then. Sockets of the same
# machine do not heed it.
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
    given = _parsed(text)
    if given is None or not _is_port(given.get("port", "")):
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
        # Ids and labels are Unicode, whatever the environment of this process says.
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


def _is_port(port: str | int) -> bool:
    """Whether it can be a port, or several; what cannot may be the rest of a password."""
    return all(part.isdigit() for part in str(port).split(",") if part)


def _parsed(conninfo: str) -> dict[str, str | int] | None:
    try:
        parts = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return None
    return {name: value for name, value in parts.items() if value is not None}
