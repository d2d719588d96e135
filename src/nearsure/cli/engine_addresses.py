"""Engines as the command line names them, and new galleries in them."""

import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

from nearsure.engines.contract import Engine
from nearsure.engines.registry import SERVERS, open_engine
from nearsure.errors import ConfigError, GalleryNotFoundError
from nearsure.extras import require

SQLITE_SUFFIXES = (".sqlite", ".sqlite3")
Kind = Literal["integer", "text"]


def is_sqlite(address: str | Path) -> bool:
    """Whether this is a gallery in one file."""
    text = str(address)
    return text.startswith("sqlite:") or text.lower().endswith(SQLITE_SUFFIXES)


def is_engine(address: str) -> bool:
    """Whether this names an engine, and no file of embeddings."""
    return address in SERVERS or "://" in address or address.endswith(".db") or is_sqlite(address)


def check_is_there(address: str | Path) -> None:
    """An error if there is no such .sqlite file, which opening it would make."""
    path = Path(str(address).removeprefix("sqlite:"))
    if not path.is_file():
        raise FileNotFoundError(f"There is no gallery at {path}.")


def engine_options(
    given: Sequence[str] | None, *, table: str | None = None, collection: str | None = None
) -> dict[str, Any]:
    """Options of an engine from words like ``ef_search=200``.

    Examples
    --------
    >>> engine_options(["ef_search=200", "refine=false", "index=hnsw"], table="birds")
    {'ef_search': 200, 'refine': False, 'index': 'hnsw', 'table': 'birds'}
    """
    options: dict[str, Any] = {}
    for word in given or ():
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            # What was given may hold a password and is not repeated.
            raise ConfigError(
                "--engine-option must be NAME=VALUE, such as ef_search=200. Got something else."
            )
        options[name] = _plain(value)
    if table is not None:
        options["table"] = table
    if collection is not None:
        options["collection"] = collection
    return options


def opened(address: str, options: Mapping[str, Any]) -> Engine:
    """The engine at an address, with a sentence about an option that it has not."""
    try:
        return open_engine(address, **options)
    except TypeError as error:
        _, unexpected, name = str(error).partition("unexpected keyword argument ")
        if not unexpected:
            raise
        raise ConfigError(f"--engine-option: the engine has no option {name}.") from error


def empty_gallery(
    address: str,
    dimension: int,
    *,
    metric: str,
    ids: Kind,
    labels: Kind,
    options: Mapping[str, Any],
) -> Engine:
    """An engine without points for a new gallery: an empty one that is there, or else a new one."""
    kind = _class_at(address)
    uri = None if address in SERVERS else address
    known = inspect.signature(kind).parameters
    allowed = sorted({*known, *inspect.signature(kind.create).parameters} - {"uri", "dimension"})
    for name in options:
        if name not in allowed:
            raise ConfigError(
                f"--engine-option {name}: there is no such option; allowed are "
                f"{', '.join(allowed)}."
            )
    asked = {"metric": metric, **options}
    with suppress(GalleryNotFoundError):
        return _checked_empty(
            kind(uri, **{name: value for name, value in asked.items() if name in known})
        )
    kinds = (
        {"id_kind": ids, "label_kind": labels}
        if "id_kind" in allowed
        else {"ids": ids, "labels": labels}
    )
    return cast("Engine", kind.create(uri=uri, dimension=dimension, **kinds, **asked))


def _checked_empty(engine: Engine) -> Engine:
    n_points = engine.size()
    if n_points:
        engine.close()
        raise ConfigError(
            f"The gallery that --into names holds {n_points:,} points already. Name another table "
            "or collection; or give its address in place of the file, to fit on what it holds."
        )
    return engine


def _class_at(address: str) -> Any:  # noqa: ANN401
    is_postgres = address == "postgres" or address.startswith(("postgresql://", "postgres://"))
    if not is_postgres and not (
        address == "milvus" or address.endswith(".db") or address.startswith(("http:", "https:"))
    ):
        raise ConfigError(
            "--into must be postgresql://..., http(s)://..., the path of a .db file, or postgres "
            "or milvus, whose address is in the environment. Got something else, which is not "
            "repeated here, as it may hold a password. To make a gallery in one file: "
            "-o gallery.sqlite"
        )
    name = "postgres" if is_postgres else "milvus"
    module = require(
        f"nearsure.engines.{name}", extra=name, purpose=f"A gallery in {name.capitalize()}"
    )
    return module.PostgresEngine if is_postgres else module.MilvusEngine


def _plain(value: str) -> object:
    """Numbers, true, false and null as JSON has them; everything else is text."""
    try:
        plain = json.loads(value)
    except ValueError:
        return value
    return plain if plain is None or isinstance(plain, bool | int | float) else value
