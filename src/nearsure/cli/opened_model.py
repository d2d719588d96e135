"""A fitted classifier from what `nearsure fit` wrote."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nearsure.classifier import NEDClassifier
from nearsure.cli.checked_files import refuse_address, writing
from nearsure.cli.engine_addresses import check_is_there, is_sqlite, opened
from nearsure.engines.contract import Engine
from nearsure.errors import ConfigError, InvalidInputError
from nearsure.whole_files import written_whole

# Under which an .sqlite gallery keeps the fit; the service reads it, too.
MODEL_NOTE = "model"


@contextmanager
def opened_model(
    model: Path, gallery: str | None = None, options: Mapping[str, Any] | None = None
) -> Iterator[NEDClassifier]:
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
        engine = None if gallery is None else opened(gallery, options)
        with _closing(engine):
            yield _loaded(model, engine)
        return
    if gallery is not None:
        raise ConfigError(f"--gallery must be left out: {model} holds its points itself.")
    check_is_there(model)
    engine = opened(str(model), options)
    with _closing(engine):
        yield classifier_in(engine, str(model))


def classifier_in(engine: Engine, name: str) -> NEDClassifier:
    """The classifier whose fit an .sqlite gallery keeps."""
    stored: bytes | None = engine.notes.get(MODEL_NOTE)  # type: ignore[attr-defined]
    if stored is None:
        raise ConfigError(f"{name} holds points, but no fit: nearsure fit {name}")
    return NEDClassifier.from_bytes(stored, engine)


def save_model(classifier: NEDClassifier, path: Path, *, replace: bool) -> None:
    """Write a model file, whole or not at all; unless `replace`, there must be none."""
    try:
        with written_whole(path, replace=replace) as draft, writing("--output", path):
            classifier.save(draft)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} is there already: another command made it meanwhile. It stays, and this fit "
            "was not written: type the command again to replace it."
        ) from error


def keep_in(engine: Engine, classifier: NEDClassifier) -> None:
    """Let an .sqlite gallery keep what was fitted on it."""
    engine.notes[MODEL_NOTE] = classifier.to_bytes()  # type: ignore[attr-defined]


def _loaded(model: Path, engine: Engine | None) -> NEDClassifier:
    try:
        return NEDClassifier.load(model, engine)
    except InvalidInputError as error:
        if engine is not None:
            raise
        raise ConfigError(
            f"The points of {model} are not in the file, but in an engine: say where with "
            f"--gallery. ({error})"
        ) from error


@contextmanager
def _closing(engine: Engine | None) -> Iterator[None]:
    try:
        yield
    finally:
        if engine is not None:
            engine.close()
