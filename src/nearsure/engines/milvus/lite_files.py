"""Files of milvus-lite: one server for each path in this process, stopped when the last leaves."""

import threading
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    MissingExtraError,
    NearsureError,
)

# A forgotten engine may be cleared away in the middle of what holds the lock.
_registry_lock = threading.RLock()


@dataclass
class LiteFile:
    """A path that engines of this process have open.

    Parameters
    ----------
    path : Path
        Absolute.
    foreign : bool
        Whether it was open before nearsure came, so that it is not nearsure's to close.
    lock : lock
        Held while something is written: milvus-lite takes one writer at a time.
    """

    path: Path
    foreign: bool
    lock: threading.RLock = field(default_factory=threading.RLock)
    n_users: int = 0


_open_files: dict[Path, LiteFile] = {}


def enter(uri: str) -> LiteFile:
    """Register one more user of a path."""
    path = Path(uri).absolute()
    if not path.parent.is_dir():
        raise GalleryNotFoundError(f"There is no folder {path.parent} to keep {path.name} in.")
    manager = _manager()
    with _registry_lock:
        file = _open_files.get(path)
        if file is None:
            foreign = str(path) in getattr(manager, "_servers", {})
            file = LiteFile(path, foreign)
        file.n_users += 1
        _open_files[path] = file
    return file


def leave(file: LiteFile) -> None:
    """Take one user off, and close the file after the last."""
    with _registry_lock:
        file.n_users -= 1
        if file.n_users:
            return
        del _open_files[file.path]
        if not file.foreign:
            _manager().release_server(str(file.path))


def opening_error(path: Path, causes: list[BaseException]) -> NearsureError:
    """Why milvus-lite could not open a path, which it says in its log alone."""
    cause = causes[0] if causes else None
    name = type(cause).__name__
    if name == "DataDirLockedError":
        return EngineUnavailableError(
            f"{path} is open in another process; milvus-lite takes one at a time. Close it there, "
            "or run a Milvus server for several."
        )
    if isinstance(cause, FileExistsError | NotADirectoryError):
        return GalleryMismatchError(f"{path} is not what this version of milvus-lite keeps.")
    if isinstance(cause, OSError):
        return EngineAccessError(f"{path} cannot be opened: {cause.strerror}.")
    return EngineError(f"milvus-lite could not open {path}: {name}.")


def _manager() -> Any:  # noqa: ANN401
    try:
        return import_module("milvus_lite.server_manager").server_manager_instance
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "A Milvus gallery in a file needs milvus-lite, which is not installed: "
            "pip install milvus-lite"
        ) from error
