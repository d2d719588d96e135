"""Engines by name or address, each imported when it is asked for; addresses without passwords."""

import os
import re
from importlib import import_module
from typing import Any, cast
from urllib.parse import unquote

from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError
from nearsure.extras import require

# Engines that `open_engine` and the command line know, by the name of their module and extra.
ENGINES = {
    "postgres": "PostgresEngine",
    "milvus": "MilvusEngine",
    "qdrant": "QdrantEngine",
    "chroma": "ChromaEngine",
    "lance": "LanceEngine",
}
# An address may begin with one of these and a colon.
PREFIXES = ("sqlite", "qdrant", "chroma", "lance")
ADDRESSES = (
    f"{', '.join(map(repr, ENGINES))}, postgresql://..., http(s)://..., qdrant:URL, qdrant:FOLDER, "
    "chroma:FOLDER, lance:FOLDER, or the path of a .sqlite or .db file"
)
HIDDEN = "***"
# Secrets of fewer characters are parts of ordinary words.
SHORT = 6
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
        ``"postgres"``, ``"milvus"``, ``"qdrant"``, ``"chroma"`` or ``"lance"``, whose address and
        secrets are then read from the environment (``NEARSURE_POSTGRES_URI`` or libpq's variables;
        ``NEARSURE_MILVUS_URI`` and ``NEARSURE_MILVUS_TOKEN``; ``NEARSURE_QDRANT_URL`` and
        ``NEARSURE_QDRANT_API_KEY``; ``NEARSURE_CHROMA_PATH``; ``NEARSURE_LANCE_URI``); or a URI:
        ``postgresql://...`` for PostgreSQL, ``http://...``, ``https://...`` or the path of a
        ``.db`` file for Milvus; ``qdrant:``, ``chroma:`` or ``lance:`` before a URL or a folder; or
        the path of a gallery in an SQLite file that ends in ``.sqlite`` or ``.sqlite3``, or any
        path after ``sqlite:``.
    **options
        Of the engine: which table or collection, index, parameters.

    Examples
    --------
    >>> open_engine("redis://localhost")
    Traceback (most recent call last):
    ...
    nearsure.errors.InvalidInputError: address must be 'postgres', 'milvus', 'qdrant', 'chroma', \
'lance', postgresql://..., http(s)://..., qdrant:URL, qdrant:FOLDER, chroma:FOLDER, lance:FOLDER, \
or the path of a .sqlite or .db file. Got something else, which is not repeated here, as it may \
hold a password.
    """
    kind, uri = split_address(address)
    if kind is None:
        raise InvalidInputError(
            f"address must be {ADDRESSES}. Got something else, which is not repeated here, as it "
            "may hold a password."
        )
    return cast("Engine", engine_class(kind)(uri, **options))


def split_address(address: str) -> tuple[str | None, str | None]:
    """The engine that an address names, or None, and the URI or path if one is given.

    Examples
    --------
    >>> split_address("qdrant:http://localhost:6333"), split_address("lance")
    (('qdrant', 'http://localhost:6333'), ('lance', None))
    """
    if address in ENGINES:
        return address, None
    kind, colon, place = address.partition(":")
    if colon and place and kind in PREFIXES and not place.startswith("//"):
        return kind, place
    if "://" not in address and address.endswith((".sqlite", ".sqlite3")):
        return "sqlite", address
    if address.startswith(("postgresql://", "postgres://")):
        return "postgres", address
    if address.startswith(("http://", "https://", "unix:")) or address.endswith(".db"):
        return "milvus", address
    return None, None


def engine_class(kind: str) -> Any:  # noqa: ANN401
    """The class of an engine that `split_address` named."""
    if kind == "sqlite":
        return import_module("nearsure.engines.sqlite").SqliteEngine
    module = require(
        f"nearsure.engines.{kind}", extra=kind, purpose=f"A gallery in {kind.capitalize()}"
    )
    return getattr(module, ENGINES[kind])


def uri_or_variable(uri: str | None, variable: str) -> str:
    """What was given, or else what an environment variable holds."""
    uri = uri or os.environ.get(variable)
    if not uri:
        raise InvalidInputError(
            f"uri must be given, or the environment variable {variable} be set. Got neither."
        )
    return uri


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
    """A text without these secrets, also where an engine quotes them in a message of its own.

    Of a short secret only whole words are hidden: it is a part of many others, and says nothing.

    Examples
    --------
    >>> without("password authentication failed: p", "p")
    'password authentication failed: ***'
    """
    for secret in secrets:
        if secret:
            for form in {secret, unquote(secret)}:
                whole = rf"(?<!\w){re.escape(form)}(?!\w)" if len(form) < SHORT else re.escape(form)
                text = re.sub(whole, HIDDEN, text)
    return redacted(text)
