"""Stream embeddings into a new gallery, chunk by chunk; a load that fails is undone."""

import base64
import inspect
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from nearsure.atomic import resolved
from nearsure.cli.backup import check_replaceable, gallery_draft
from nearsure.cli.inputs import ImagePaths, names_of
from nearsure.cli.outputs import notice, progress, tell
from nearsure.errors import ConfigError, GalleryNotFoundError, NearsureError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray
    from nearsure.embedding_files import EmbeddingChunk, EmbeddingStream
    from nearsure.engines.contract import Engine
    from nearsure.engines.sqlite import SqliteEngine

MetricName = Literal["euclidean", "cosine"]
Kind = Literal["integer", "text"]
# Large enough that an engine's transactions cost little.
ROWS_AT_A_TIME = 8192


@contextmanager
def fill_engine(
    stream: "EmbeddingStream",
    address: str,
    options: Mapping[str, Any],
    *,
    metric: MetricName,
    groups: "list[tuple[AnyArray, AnyArray]]",
) -> "Iterator[Engine]":
    """A new gallery in an engine; if the block fails, its points are removed again.

    Parameters
    ----------
    stream : EmbeddingStream
        With labels.
    address, options : str, mapping
        Of the engine.
    metric : {"euclidean", "cosine"}
        How it compares.
    groups : list
        Takes ids and groups of the points, where there are groups.
    """
    chunks = stream.chunks(ROWS_AT_A_TIME)
    with progress("loading", stream.n_rows):
        first = next(chunks)
    settings = {"metric": metric, **options}
    with closing(create_gallery(address, stream.dimension, _kinds(first), settings)) as engine:
        added: list[AnyArray] = []
        try:
            with progress("loading", stream.n_rows) as advance:
                for chunk in chain([first], chunks):
                    names = names_of(chunk)
                    added.append(names)
                    engine.add(chunk.vectors, names, chunk.labels)
                    if chunk.groups is not None:
                        groups.append((names, chunk.groups))
                    advance(len(chunk))
            yield engine
        except BaseException:
            _remove_added(engine, added)
            raise


@contextmanager
def fill_sqlite(
    stream: "EmbeddingStream",
    path: Path,
    *,
    metric: MetricName,
    index: str,
    images: ImagePaths,
    replace: bool,
    groups: "list[tuple[AnyArray, AnyArray]]",
) -> "Iterator[SqliteEngine]":
    """A new gallery in one file, which appears only if the block ends without an error.

    Parameters
    ----------
    stream : EmbeddingStream
        With labels; its pictures become thumbnails in the file, and its texts stay with them.
    path : path
        The file.
    metric, index : str
        How it compares, and through which index.
    images : ImagePaths
        Where pictures are.
    replace : bool
        Whether to replace a gallery that is there.
    groups : list
        As of `fill_engine`.
    """
    from nearsure.engines.sqlite import SqliteEngine
    from nearsure.report.thumbnails import KEPT_SIDE, Thumbnails

    if path.exists() and not replace:
        raise ConfigError(
            f"{path} already exists. --replace replaces it; nearsure fit {path} fits on what it "
            "holds."
        )
    path = resolved(path)
    check_replaceable(path)
    with gallery_draft(path, replace=replace) as made:
        chunks = stream.chunks(ROWS_AT_A_TIME)
        with progress("loading", stream.n_rows):
            first = next(chunks)
        settings: dict[str, Any] = {"metric": metric, "index": index, **_kinds(first)}
        thumbnails = Thumbnails(KEPT_SIDE)
        with (
            closing(SqliteEngine.create(made, stream.dimension, **settings)) as engine,
            progress("loading", stream.n_rows) as advance,
        ):
            for chunk in chain([first], chunks):
                names = names_of(chunk)
                engine.add(chunk.vectors, names, chunk.labels)
                if chunk.groups is not None:
                    groups.append((names, chunk.groups))
                small = {}
                for name, picture in zip(names.tolist(), chunk.pictures or (), strict=False):
                    address = thumbnails.of(images.of(picture))
                    if address is not None:
                        small[name] = base64.b64decode(address.partition(",")[2])
                if small:
                    engine.put_pictures(small)
                written = zip(names.tolist(), chunk.texts or (), strict=False)
                texts = {name: text for name, text in written if text is not None}
                if texts:
                    engine.put_texts(texts)
                advance(len(chunk))
        images.tell()
        note = thumbnails.note()
        if note is not None:
            notice(note)
        # Opened again, as index "auto" is chosen by the number of points at opening.
        with closing(SqliteEngine(made)) as engine:
            yield engine


def create_gallery(
    address: str, dimension: int, kinds: Mapping[str, Kind], settings: Mapping[str, Any]
) -> "Engine":
    """Open an engine without points for a new gallery: an empty one, or else a new one.

    Parameters
    ----------
    address, dimension : str, int
        Of the engine, and of its vectors.
    kinds : mapping
        Whether "ids" and "labels" are integers or texts.
    settings : mapping
        The metric, and options that were typed.
    """
    from nearsure.engines.registry import split_address

    kind, uri = _class_at(address), split_address(address)[1]
    known = inspect.signature(kind).parameters
    allowed = sorted({*known, *inspect.signature(kind.create).parameters} - {"uri", "dimension"})
    for name in settings:
        if name not in allowed:
            raise ConfigError(
                f"--engine-option {name}: there is no such option; allowed are "
                f"{', '.join(allowed)}."
            )
    with suppress(GalleryNotFoundError):
        engine = kind(uri, **{name: value for name, value in settings.items() if name in known})
        return _require_empty(engine)
    if "id_kind" in allowed:
        kinds = {"id_kind": kinds["ids"], "label_kind": kinds["labels"]}
    return cast("Engine", kind.create(uri=uri, dimension=dimension, **kinds, **settings))


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
    from nearsure.engines.registry import ENGINES, engine_class, split_address

    name, _ = split_address(address)
    if name not in ENGINES:
        raise ConfigError(
            "--into must be postgresql://..., http(s)://..., qdrant:URL, qdrant:FOLDER, "
            "chroma:FOLDER, lance:FOLDER, the path of a .db file, or one of "
            f"{', '.join(ENGINES)}, whose address is in the environment. Got something else, which "
            "is not repeated here, as it may hold a password. To make a gallery in one file: "
            "-o gallery.sqlite"
        )
    return engine_class(name)


def _remove_added(engine: "Engine", added: "list[AnyArray]") -> None:
    if not added:
        return
    tell("Taking back what was loaded.")
    *whole, last = added
    # The last chunk first: usually none of it was added, and if a part was, the engine refuses
    # other changes until it is removed.
    with suppress(NearsureError):
        engine.remove(last)
    try:
        for names in whole:
            engine.remove(names)
    except (NearsureError, OSError) as error:
        tell(f"Some points could not be removed: {error}")


def _kinds(chunk: "EmbeddingChunk") -> dict[str, Kind]:
    values = {"ids": names_of(chunk), "labels": chunk.labels}
    return {
        name: "integer" if array is not None and array.dtype.kind in "iu" else "text"
        for name, array in values.items()
    }
