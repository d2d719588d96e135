"""The classifier of a worker: opened once in each process, by names that any process understands.

What is sent to a worker is the path of a model file and the name of a function, never an object:
no pickle, and no secret, as an engine's address comes from the worker's own environment.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from threading import Lock

from nearsure.classifier import NEDClassifier
from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError, ModelFileError


@dataclass
class _Opened:
    classifier: NEDClassifier
    engine: Engine | None
    n_users: int = 0


_lock = Lock()
_opened: dict[tuple[str, str, str | None], _Opened] = {}


@contextmanager
def lent_classifier(path: str, sha256: str, open_engine: str | None) -> Iterator[NEDClassifier]:
    """The classifier in a model file; it stays open until another is asked for.

    Parameters
    ----------
    path : str
        The model file.
    sha256 : str
        Its digest, so that no worker scores with another model of the same name.
    open_engine : str or None
        "module:function", which takes nothing and opens the engine that holds the points; None if
        the model file holds them.
    """
    key = (path, sha256, open_engine)
    with _lock:
        if key not in _opened:
            _close_unused()
            _opened[key] = _open(path, sha256, open_engine)
        entry = _opened[key]
        entry.n_users += 1
    try:
        yield entry.classifier
    finally:
        with _lock:
            entry.n_users -= 1


def forget_classifiers() -> None:
    """Give back memory and connections of this process, but for what is in use."""
    with _lock:
        _close_unused()


def file_sha256(path: str | PathLike[str]) -> str:
    """The digest of a file."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no model file at {path}.") from None


def check_open_engine(open_engine: str | None) -> None:
    """Raise an error unless this could name a function; only a worker can tell if there is one."""
    if open_engine is not None and not all(part.strip() for part in _halves(open_engine)):
        raise InvalidInputError(
            "open_engine must name a function that workers can import, as "
            f"'package.module:function'. Got {open_engine!r} instead."
        )


def _open(path: str, sha256: str, open_engine: str | None) -> _Opened:
    if file_sha256(path) != sha256:
        raise ModelFileError(
            f"{path} is not the model that scoring was started with: it has changed, or this "
            "machine has another. Start again."
        )
    engine = None if open_engine is None else _open_engine(open_engine)
    try:
        return _Opened(NEDClassifier.load(path, engine), engine)
    except BaseException:
        if engine is not None:
            engine.close()
        raise


def _open_engine(open_engine: str) -> Engine:
    module, function = _halves(open_engine)
    try:
        opening = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            "open_engine must name a function that workers can import. "
            f"{open_engine!r} cannot be: {error}."
        ) from error
    engine: Engine = opening()
    return engine


def _halves(open_engine: str) -> tuple[str, str]:
    module, _, function = open_engine.partition(":")
    return module, function


def _close_unused() -> None:
    for key, entry in list(_opened.items()):
        if not entry.n_users:
            del _opened[key]
            if entry.engine is not None:
                entry.engine.close()
