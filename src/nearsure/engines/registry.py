"""Engines by name or address, each imported when it is asked for; addresses without passwords."""

import re
from importlib import import_module
from typing import Any, cast
from urllib.parse import unquote

from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError
from nearsure.extras import require

SERVERS = ("postgres", "milvus")
SQLITE = "sqlite:"
HIDDEN = "***"
# Rather too much is hidden than too little: a password may hold spaces, slashes and further @.
_WITH_SCHEME = re.compile(r"(?<=//)([^\s/:@]*):.*@")
_TOKEN = re.compile(r"(?<=//)[^\s/:@]+@")
_WITHOUT_SCHEME = re.compile(r"(?<![\w/])([^\s/:@'\"(]+):(?!//)[^\s@]*\S*@")
# password=..., "token": ..., api_key=... of connection strings, queries and JSON.
_FIELD = re.compile(
    r"(?i)(\w*(?:password|passwd|pwd|token|api_?key|secret)\w*[\"']?\s*[=:]\s*)"
    r"('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[^\s&,}]+)"
)


def open_engine(address: str, **options: Any) -> Engine:  # noqa: ANN401
    """Open the gallery of an engine.

    Parameters
    ----------
    address : str
        ``"postgres"`` or ``"milvus"``, whose address and secrets are then read from the
        environment (``NEARSURE_POSTGRES_URI`` or libpq's variables; ``NEARSURE_MILVUS_URI`` and
        ``NEARSURE_MILVUS_TOKEN``); or a URI: ``postgresql://...`` for PostgreSQL, ``http://...``,
        ``https://...`` or the path of a ``.db`` file for Milvus; or the path of a gallery in an
        SQLite file that ends in ``.sqlite`` or ``.sqlite3``, or any path after ``sqlite:``.
    **options
        Of `PostgresEngine`, `MilvusEngine` or `SqliteEngine`: which table or collection, index,
        parameters.

    Examples
    --------
    >>> open_engine("redis://localhost")
    Traceback (most recent call last):
    ...
    nearsure.errors.InvalidInputError: address must be 'postgres', 'milvus', postgresql://..., \
http(s)://..., or the path of a .sqlite or .db file. Got something else, which is not repeated \
here, as it may hold a password.
    """
    kind = _kind(address)
    if kind == "sqlite":
        own = import_module("nearsure.engines.sqlite")
        return cast("Engine", own.SqliteEngine(address.removeprefix(SQLITE), **options))
    module = require(
        f"nearsure.engines.{kind}", extra=kind, purpose=f"A gallery in {kind.capitalize()}"
    )
    make = module.PostgresEngine if kind == "postgres" else module.MilvusEngine
    return cast("Engine", make(None if address in SERVERS else address, **options))


def _kind(address: str) -> str:
    if address in SERVERS:
        return address
    is_path = "://" not in address
    if is_path and (address.startswith(SQLITE) or address.endswith((".sqlite", ".sqlite3"))):
        return "sqlite"
    if address.startswith(("postgresql://", "postgres://")):
        return "postgres"
    if address.startswith(("http://", "https://", "unix:")) or address.endswith(".db"):
        return "milvus"
    raise InvalidInputError(
        "address must be 'postgres', 'milvus', postgresql://..., http(s)://..., or the path of a "
        ".sqlite or .db file. Got something else, which is not repeated here, as it may hold a "
        "password."
    )


def redacted(text: str) -> str:
    """A text without the passwords and tokens of the addresses in it.

    Examples
    --------
    >>> redacted("postgresql://ann:s3cret@db:5432/shop?application_name=x")
    'postgresql://ann:***@db:5432/shop?application_name=x'
    >>> redacted("host=db user=ann password='s3 cret' dbname=shop")
    'host=db user=ann password=*** dbname=shop'
    """
    text = _WITH_SCHEME.sub(rf"\1:{HIDDEN}@", text)
    text = _TOKEN.sub(f"{HIDDEN}@", text)
    text = _WITHOUT_SCHEME.sub(rf"\1:{HIDDEN}@", text)
    return _FIELD.sub(rf"\1{HIDDEN}", text)


def without(text: str, *secrets: str | None) -> str:
    """A text without these secrets, also where an engine quotes them in a message of its own."""
    for secret in secrets:
        if secret:
            for form in {secret, unquote(secret)}:
                text = text.replace(form, HIDDEN)
    return redacted(text)
