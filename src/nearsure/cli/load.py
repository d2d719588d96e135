"""Stream embeddings into an engine, chunk by chunk; a load that fails is undone."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nearsure.atomic import Draft, resolved
from nearsure.cli.console import progress, tell
from nearsure.cli.files import ImagePaths, names_of
from nearsure.cli.models import Kind, create_gallery
from nearsure.errors import ConfigError, NearsureError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray
    from nearsure.embedding_files import EmbeddingChunk, EmbeddingStream
    from nearsure.engines.contract import Engine
    from nearsure.engines.sqlite import SqliteEngine


class PictureLoader:
    """Makes thumbnails and stores them beside their points.

    Parameters
    ----------
    engine : SqliteEngine
        The gallery.
    images : ImagePaths
        Where pictures are.
    """

    def __init__(self, engine: "SqliteEngine", images: ImagePaths) -> None:
        from nearsure.report.thumbnails import Thumbnails

        self._engine, self._images = engine, images
        self._thumbnails = Thumbnails()

    def put(self, names: "AnyArray", chunk: "EmbeddingChunk") -> None:
        """Store the pictures of the points that have one.

        Parameters
        ----------
        names : array of shape (m,)
            Ids of the points, which are in the gallery already.
        chunk : EmbeddingChunk
            Their rows.
        """
        small = {}
        for name, picture in zip(names.tolist(), chunk.pictures or (), strict=False):
            address = self._thumbnails.of(self._images.of(picture))
            if address is not None:
                small[name] = base64.b64decode(address.partition(",")[2])
        if small:
            self._engine.put_pictures(small)

    def tell(self) -> None:
        """Print which pictures could not be read."""
        self._images.tell()
        note = self._thumbnails.note()
        if note is not None:
            tell(note)


MetricName = Literal["euclidean", "cosine"]
# Large enough that an engine's transactions cost little.
ROWS_AT_A_TIME = 8192
# Of every SQLite database; the number of the application follows at byte 68.
SQLITE_HEADER = b"SQLite format 3\0"


@contextmanager
def fill_engine(
    stream: "EmbeddingStream", address: str, options: Mapping[str, Any], *, metric: MetricName
) -> "Iterator[Engine]":
    """A new gallery in an engine; unless the block ends well, its points are removed again.

    Parameters
    ----------
    stream : EmbeddingStream
        With labels.
    address, options : str, mapping
        Of the engine.
    metric : {"euclidean", "cosine"}
        How it compares.
    """
    chunks = stream.chunks(ROWS_AT_A_TIME)
    first = next(chunks)
    engine = create_gallery(
        address,
        stream.dimension,
        metric=metric,
        ids=_kind(names_of(first)),
        labels=_kind(first.labels),
        options=options,
    )
    try:
        added: list[AnyArray] = []
        try:
            with progress("loading", stream.n_rows) as advance:
                for chunk in chain([first], chunks):
                    names = names_of(chunk)
                    added.append(names)
                    engine.add(chunk.vectors, names, chunk.labels)
                    advance(len(chunk))
            yield engine
        except BaseException:
            _remove_added(engine, added)
            raise
    finally:
        engine.close()


@contextmanager
def fill_sqlite(
    stream: "EmbeddingStream",
    path: Path,
    *,
    metric: MetricName,
    index: str,
    images: ImagePaths,
    replace: bool,
) -> "Iterator[SqliteEngine]":
    """A new gallery in one file, which has its name only once the block has ended well.

    Parameters
    ----------
    stream : EmbeddingStream
        With labels; its pictures become thumbnails in the file.
    path : path
        The file.
    metric, index : str
        How it compares, and through which index.
    images : ImagePaths
        Where pictures are.
    replace : bool
        Whether a gallery that is there may go.
    """
    from nearsure.engines.sqlite import SqliteEngine

    if path.exists() and not replace:
        raise ConfigError(
            f"{path} is there already. --replace replaces it; nearsure fit {path} fits on what it "
            "holds."
        )
    path = resolved(path)
    check_replaceable(path)
    draft = Draft.of(path)
    made = draft.path / path.name
    try:
        draft.path.mkdir()
        chunks = stream.chunks(ROWS_AT_A_TIME)
        first = next(chunks)
        engine = SqliteEngine.create(
            made,
            stream.dimension,
            metric=metric,
            ids=_kind(names_of(first)),
            labels=_kind(first.labels),
            index=index,
        )
        try:
            pictures = PictureLoader(engine, images)
            with progress("loading", stream.n_rows) as advance:
                for chunk in chain([first], chunks):
                    names = names_of(chunk)
                    engine.add(chunk.vectors, names, chunk.labels)
                    pictures.put(names, chunk)
                    advance(len(chunk))
            pictures.tell()
        finally:
            engine.close()
        # What index "auto" stands for is decided by the number of points when a gallery is opened.
        engine = SqliteEngine(made)
        try:
            yield engine
        finally:
            engine.close()
        place_gallery(made, path, replace=replace)
    finally:
        draft.discard()


def place_gallery(made: Path, path: Path, *, replace: bool) -> None:
    """Give a finished gallery its name, unless another one has it that may not go.

    Parameters
    ----------
    made : path
        The gallery, closed, perhaps with its index beside it.
    path : path
        Where it shall be.
    replace : bool
        Whether a gallery that is there may go, if no process has it open.
    """
    from nearsure.engines.sqlite.engine import put_in_place
    from nearsure.engines.sqlite.file import FileLock, beside
    from nearsure.engines.sqlite.index import CACHE_SUFFIX

    lock = FileLock(path, str(path))
    try:
        check_free(path, replace=replace)
        put_in_place(made, path)
        index = beside(made, CACHE_SUFFIX)
        if index.is_file():
            index.replace(beside(path, CACHE_SUFFIX))
    finally:
        lock.remove()


def check_free(path: Path, *, replace: bool) -> None:
    """An error if there is something that may not go: any file, or all but a gallery."""
    if path.exists() and not replace:
        raise ConfigError(
            f"{path} is there already, or another command has just made it. --replace replaces it."
        )
    check_replaceable(path)


def check_replaceable(path: Path) -> None:
    """An error if there is something that is no gallery: --replace is no way to lose it."""
    from nearsure.engines.sqlite.schema import APPLICATION_ID

    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER) + 56)
        if header.startswith(SQLITE_HEADER) and header[-4:] == APPLICATION_ID.to_bytes(4):
            return
    raise ConfigError(f"--replace replaces galleries only, and {path} is none: move it away.")


def _remove_added(engine: "Engine", added: "list[AnyArray]") -> None:
    if not added:
        return
    tell("Taking back what was loaded.")
    *whole, last = added
    # The last chunk first: most often none of it was added, and if it was cut off, an engine
    # refuses all else until it is taken back.
    with suppress(NearsureError):
        engine.remove(last)
    try:
        for names in whole:
            engine.remove(names)
    except (NearsureError, OSError) as error:
        tell(f"Some points could not be removed: {error}")


def _kind(values: "AnyArray | None") -> Kind:
    return "integer" if values is not None and values.dtype.kind in "iu" else "text"
