"""From what PostgreSQL calls an error to what nearsure does, without secrets."""

import psycopg

from nearsure.engines.postgres.address import Address
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
)

# The first match decides. Codes: appendix A of PostgreSQL's manual.
_BY_STATE: tuple[tuple[tuple[str, ...], type[EngineError], str], ...] = (
    (("28",), EngineAccessError, "It refuses the login: check user and password."),
    (("42501",), EngineAccessError, "The user lacks a right: have it granted."),
    (("25006",), EngineAccessError, "The server or the user is read-only: write to the primary."),
    (("3D000",), GalleryNotFoundError, "Check the database's name."),
    (("42P01", "3F000"), GalleryNotFoundError, "Check the table's name, or create it."),
    (("42P07",), GalleryMismatchError, "Open it with PostgresEngine(...), or choose another name."),
    (("08", "57P", "53300"), EngineUnavailableError, "Ask again when it is back."),
    (("57014",), EngineError, "Raise statement_timeout, or ask for less at once."),
    (("53100",), EngineError, "Nothing was changed. Make room on the server's disk, and repeat."),
    (("53",), EngineError, "Nothing was changed. Free the server's resources, and repeat."),
    (("40", "55P03"), EngineError, "Nothing was changed, as others changed the same; repeat it."),
    (("58P01",), EngineError, "pgvector may not be installed on the server."),
    (("0A000",), EngineError, "This server, or a table of this kind, cannot do it."),
    (("22", "23", "42", "54"), GalleryMismatchError, "Compare the table with what is asked of it."),
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
    """The error of nearsure that says the same, with a remedy."""
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
        f"{where} cannot be reached, or went away: {text}. Check that it runs, and ask again."
    )
