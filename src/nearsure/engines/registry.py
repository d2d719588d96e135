"""Engines by name or address; each is imported when it is asked for."""

from importlib import import_module
from typing import Any, cast

from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError
from nearsure.extras import require

SERVERS = ("postgres", "milvus")
SQLITE = "sqlite:"


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
