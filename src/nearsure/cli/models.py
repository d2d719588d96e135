"""Open a model file or the address of an engine."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from nearsure.atomic import atomic_write
from nearsure.cli.files import refuse_address, translate_errors
from nearsure.errors import ConfigError, GalleryNotFoundError, InvalidInputError
from nearsure.extras import require

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.engines.contract import Engine


SQLITE_SUFFIXES = (".sqlite", ".sqlite3")
Kind = Literal["integer", "text"]


def is_sqlite(address: str | Path) -> bool:
    """Whether this is a gallery in one file."""
    text = str(address)
    return text.startswith("sqlite:") or text.lower().endswith(SQLITE_SUFFIXES)


def is_engine(address: str) -> bool:
    """Whether this names an engine, and no file of embeddings."""
    from nearsure.engines.registry import SERVERS

    return address in SERVERS or "://" in address or address.endswith(".db") or is_sqlite(address)


def check_exists(address: str | Path) -> None:
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
        options[name] = _parse(value)
    if table is not None:
        options["table"] = table
    if collection is not None:
        options["collection"] = collection
    return options


def open_gallery(address: str, options: Mapping[str, Any]) -> "Engine":
    """Open the engine at an address; an .sqlite file must exist."""
    from nearsure.engines.registry import open_engine

    if is_sqlite(address):
        check_exists(address)

    try:
        return open_engine(address, **options)
    except TypeError as error:
        _, unexpected, name = str(error).partition("unexpected keyword argument ")
        if not unexpected:
            raise
        raise ConfigError(f"--engine-option: the engine has no option {name}.") from error


def create_gallery(
    address: str,
    dimension: int,
    *,
    metric: str,
    ids: Kind,
    labels: Kind,
    options: Mapping[str, Any],
) -> "Engine":
    """Open an engine without points for a new gallery: an empty one, or else a new one."""
    from nearsure.engines.registry import SERVERS

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
        return _require_empty(
            kind(uri, **{name: value for name, value in asked.items() if name in known})
        )
    kinds = (
        {"id_kind": ids, "label_kind": labels}
        if "id_kind" in allowed
        else {"ids": ids, "labels": labels}
    )
    return cast("Engine", kind.create(uri=uri, dimension=dimension, **kinds, **asked))


def _require_empty(engine: "Engine") -> "Engine":
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


def _parse(value: str) -> object:
    """Numbers, true, false and null as JSON has them; everything else is text."""
    try:
        plain = json.loads(value)
    except ValueError:
        return value
    return plain if plain is None or isinstance(plain, bool | int | float) else value


# Under which an .sqlite gallery keeps the fit; the service reads it, too.
MODEL_NOTE = "model"


@contextmanager
def open_model(
    model: Path, gallery: str | None = None, options: Mapping[str, Any] | None = None
) -> "Iterator[NEDClassifier]":
    """The classifier, until the block ends.

    Parameters
    ----------
    model : path
        A model file, or an .sqlite gallery that keeps its fit.
    gallery : str, optional
        Address of the engine that holds the points, if the model does not.
    options : mapping, optional
        Of this engine.
    """
    options = options or {}
    refuse_address("--model", model)
    if gallery is None and options and not is_sqlite(model):
        raise ConfigError("Options of an engine were given without --gallery, which names it.")
    if not is_sqlite(model):
        engine = None if gallery is None else open_gallery(gallery, options)
        with nullcontext() if engine is None else closing(engine):
            yield _load(model, engine)
        return
    if gallery is not None:
        raise ConfigError(f"--gallery must be left out: {model} holds its points itself.")
    from nearsure.classifier import NEDClassifier

    with closing(open_gallery(str(model), options)) as engine:
        stored: bytes | None = engine.notes.get(MODEL_NOTE)  # type: ignore[attr-defined]
        if stored is None:
            raise ConfigError(f"{model} holds points, but no fit: nearsure fit {model}")
        yield NEDClassifier.from_bytes(stored, engine)


def save_model(classifier: "NEDClassifier", path: Path, *, replace: bool) -> None:
    """Write a model file, whole or not at all; unless `replace`, there must be none."""
    try:
        with atomic_write(path, replace=replace) as draft, translate_errors("--output", path):
            classifier.save(draft)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} is there already: another command made it meanwhile. It stays, and this fit "
            "was not written: type the command again to replace it."
        ) from error


def store_fit(engine: "Engine", classifier: "NEDClassifier") -> None:
    """Store a fit in the .sqlite gallery that it was made on."""
    engine.notes[MODEL_NOTE] = classifier.to_bytes()  # type: ignore[attr-defined]


def _load(model: Path, engine: "Engine | None") -> "NEDClassifier":
    from nearsure.classifier import NEDClassifier

    try:
        return NEDClassifier.load(model, engine)
    except InvalidInputError as error:
        if engine is not None:
            raise
        raise ConfigError(
            f"The points of {model} are not in the file, but in an engine: say where with "
            f"--gallery. ({error})"
        ) from error
