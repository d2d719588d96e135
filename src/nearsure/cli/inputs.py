"""What a command reads: embeddings, images, galleries and models."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from typer import Exit

from nearsure.cli.outputs import notice, refuse_address, spinner, tell
from nearsure.errors import ConfigError, InvalidInputError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import EmbeddingChunk, EmbeddingStream
    from nearsure.embedding_files.rows import LabelsWanted
    from nearsure.encoders import Encoder
    from nearsure.encoders.rows import EncodedRows
    from nearsure.engines.contract import Engine

SQLITE_SUFFIXES = (".sqlite", ".sqlite3")
# Key of the fit among the notes of an .sqlite gallery; the service reads it, too.
MODEL_NOTE = "model"
NAMES_SHOWN = 3


def open_queries(
    source: str,
    *more: str,
    classifier: "NEDClassifier",
    encoder: str | None = None,
    **columns: Any,  # noqa: ANN401
) -> "EmbeddingStream":
    """Open embeddings, which must have the dimension of a classifier's gallery.

    Images and texts are encoded by the encoder of the gallery, also from several sources.
    """
    from nearsure.embedding_files import open_embeddings
    from nearsure.encoders import check_encoder, find_stored_encoder
    from nearsure.encoders.inputs import input_kind

    kind = "text" if source == "-" and encoder is not None else input_kind(source)
    for other in more:
        if not Path(other).exists():
            raise ConfigError(f"There is no file {other}: check the path.")
        if kind is None or input_kind(other) != kind:
            raise ConfigError(
                "Several QUERIES must all be images and folders of images, or all files of texts. "
                f"Got {other if kind else source} among them: predict it by itself."
            )
    if kind is not None:
        made_by = classifier.encoder_
        if made_by is None and encoder is None:
            raise ConfigError(
                f"{source} holds {kind}s, and the model does not say which encoder made its "
                f"vectors: name it, as --encoder {kind}, or make vectors with nearsure embed."
            )
        name = encoder or find_stored_encoder(str(made_by))
        opened = load_encoder(name)
        check_encoder(made_by, name, opened, int(classifier.n_features_in_))
        return encoded(source, *more, encoder=opened, **columns)
    refuse_encoder(source, encoder)
    stream = open_embeddings(source, **columns)
    expected = int(classifier.n_features_in_)
    if stream.dimension != expected:
        stream.close()
        raise InvalidInputError(
            f"Queries must have the dimension of the gallery, {expected}. "
            f"{source} has {stream.dimension} instead."
        )
    return stream


def load_encoder(name: str, **settings: Any) -> "Encoder":  # noqa: ANN401
    """Open an encoder, and show that it takes a while."""
    from nearsure.encoders import open_encoder

    with spinner(f"loading the {name} encoder"):
        return open_encoder(name, **settings)


def encoded(
    *sources: str,
    encoder: "Encoder",
    groups_from_folder: bool = False,
    groups_key: str | None = None,
    **columns: object,
) -> "EmbeddingStream":
    """Open images or texts as embeddings; an error if columns of a file of vectors are named."""
    from nearsure.encoders.rows import open_encoded

    source, labels = sources[0], cast("LabelsWanted", columns.pop("labels"))
    given = [name for name, value in columns.items() if value is not None]
    if given:
        raise ConfigError(
            f"{given[0]} must be left out: {source} holds {encoder.kind}s, whose names and labels "
            "are folders, or the columns id, label and text."
        )
    return open_encoded(
        *sources,
        encoder=encoder,
        labels=labels,
        groups_from_folder=groups_from_folder,
        groups_key=groups_key,
    )


def refuse_encoder(source: str, encoder: str | None) -> None:
    """Raise an error if an encoder was named for what holds vectors, or is not there."""
    if encoder is not None and (source == "-" or Path(source).exists()):
        raise ConfigError(
            f"--encoder must be left out: {source} holds no images or texts, but vectors."
        )


def end_encoded(stream: "EmbeddingStream | EncodedRows") -> None:
    """List the images that were left out, if there are any, and end with exit code 1."""
    broken: list[str] = getattr(stream, "broken", [])
    for sentence in broken:
        tell(sentence)
    if broken:
        which = "1 image was" if len(broken) == 1 else f"{len(broken):,} images were"
        tell(f"{which} left out.")
        raise Exit(1)


def names_of(chunk: "EmbeddingChunk") -> "AnyArray":
    """Ids of the rows, or else their numbers."""
    import numpy as np

    if chunk.ids is not None:
        return chunk.ids
    return np.arange(chunk.first_row, chunk.first_row + len(chunk.vectors))


def labels_of(chunk: "EmbeddingChunk") -> "AnyArray":
    """Labels of rows that were opened with labels="required"."""
    return cast("AnyArray", chunk.labels)


def match_labels(labels: "AnyArray", classes: "AnyArray") -> "AnyArray":
    """Convert labels to the kind of a gallery's: a csv file has "7" where an npz file has 7.

    Parameters
    ----------
    labels : array of shape (n,)
        Integers or strings.
    classes : array of shape (n_classes,)
        The gallery's.

    Examples
    --------
    >>> import numpy as np
    >>> match_labels(np.array([7, 8]), np.array(["7", "9"]))
    array(['7', '8'], dtype='<U21')
    """
    import numpy as np

    from nearsure.embedding_files.tables import is_written_integer

    if classes.dtype.kind == "U" and labels.dtype.kind != "U":
        return labels.astype(str)
    if classes.dtype.kind in "iu" and labels.dtype.kind == "U":
        texts = [str(label) for label in labels if not is_written_integer(label)]
        if texts:
            raise InvalidInputError(
                "Labels of the queries must be integers, as those of the gallery are. Got "
                f"{texts[0]!r} instead."
            )
        return labels.astype(np.int64)
    return labels


class ImagePaths:
    """Finds image files; those outside their folder are left out.

    Parameters
    ----------
    source : str
        The file that names them, or "-".
    root : path or None
        Folder that they must lie in, and that paths start from; by default that of the file.
    """

    def __init__(self, source: str, root: Path | None) -> None:
        folder = Path() if source == "-" else _absolute(Path(source)).parent
        self._root = _absolute(folder if root is None else root)
        self._starts = (folder,) if root is None else (root, folder)
        self._refused: dict[str, None] = {}

    def of(self, written: str | None) -> Path | None:
        """The path of an image; None if there is none, or it may not be read."""
        if not written:
            return None
        try:
            path = self._find(written)
        except (OSError, RuntimeError):
            # The path is too long, not readable, or a link to itself.
            path = None
        if path is None:
            self._refused[written] = None
        return path

    def tell(self) -> None:
        """Print which images were left out."""
        if not self._refused:
            return
        names = ", ".join(map(repr, list(self._refused)[:NAMES_SHOWN]))
        more = ", ..." if len(self._refused) > NAMES_SHOWN else ""
        notice(
            f"left out {len(self._refused)} images that are not files below {self._root}: {names}"
            f"{more}. --images-root names the folder that images may be in."
        )

    def _find(self, written: str) -> Path | None:
        places = [_absolute(start / written) for start in self._starts]
        allowed = [path for path in places if self._is_below(path)]
        for path in allowed:
            if path.is_file():
                return path
        # Reading a missing file is reported later.
        return next((path for path in allowed if not path.exists()), None)

    def _is_below(self, path: Path) -> bool:
        # Links below the folder are allowed, and the folder may itself be a link.
        return path.is_relative_to(self._root) or path.resolve().is_relative_to(
            self._root.resolve()
        )


def _absolute(path: Path) -> Path:
    """An absolute path without ".."; Path.absolute would keep it."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def is_sqlite(address: str | Path) -> bool:
    """Whether this is a gallery in one file."""
    text = str(address)
    return text.startswith("sqlite:") or text.lower().endswith(SQLITE_SUFFIXES)


def is_engine(address: str) -> bool:
    """Whether this names an engine, not a file of embeddings."""
    from nearsure.engines.registry import split_address

    return split_address(address)[0] is not None or "://" in address or is_sqlite(address)


def check_exists(address: str | Path) -> None:
    """Raise an error if there is no such .sqlite file, as opening it would create one."""
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
    named = {"table": table, "collection": collection}
    return options | {name: value for name, value in named.items() if value is not None}


def _parse(value: str) -> object:
    """Numbers, true, false and null as JSON has them; everything else is text."""
    try:
        plain = json.loads(value)
    except ValueError:
        return value
    return plain if plain is None or isinstance(plain, bool | int | float) else value


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


@contextmanager
def open_model(
    model: Path, gallery: str | None, options: Mapping[str, Any], *, read_only: bool = True
) -> "Iterator[NEDClassifier]":
    """The classifier, until the block ends.

    Parameters
    ----------
    model : path
        A model file, or an .sqlite gallery that keeps its fit.
    gallery : str or None
        Address of the engine that holds the points, if the model does not.
    options : mapping
        Of this engine.
    read_only : bool
        Whether an .sqlite gallery is only read, so that others may have it open, too.
    """
    from nearsure.classifier import NEDClassifier

    refuse_address("--model", model)
    if is_sqlite(model):
        if gallery is not None:
            raise ConfigError(f"--gallery must be left out: {model} holds its points itself.")
        with closing(open_gallery(str(model), {"read_only": read_only, **options})) as engine:
            stored: bytes | None = engine.notes.get(MODEL_NOTE)  # type: ignore[attr-defined]
            if stored is None:
                raise ConfigError(f"{model} holds points, but no fit: nearsure fit {model}")
            yield NEDClassifier.from_bytes(stored, engine)
    elif gallery is not None:
        with closing(open_gallery(gallery, options)) as engine:
            yield NEDClassifier.load(model, engine)
    elif options:
        raise ConfigError("Options of an engine were given without --gallery, which names it.")
    else:
        try:
            classifier = NEDClassifier.load(model)
        except InvalidInputError as error:
            raise ConfigError(
                f"The points of {model} are not in the file, but in an engine: say where with "
                f"--gallery. ({error})"
            ) from error
        yield classifier
