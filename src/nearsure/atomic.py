"""Files that appear whole or not at all, also where several processes write."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from typing import Self

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

DRAFT_SUFFIX = ".nearsure-draft"
LOCK_END = "-lock"


@dataclass(eq=False)
class Draft:
    """What is written in place of a file, until it is whole.

    Beside it lies a lock file, made before it and removed after it. The system releases the lock
    when the process ends, so that an abandoned draft differs from one that is being written.

    Parameters
    ----------
    path : Path
        Where to write, a file or a folder.
    target : Path
        The file; the same as `path` for devices and pipes, which cannot be renamed over.
    lock : Path, optional
        The lock.
    descriptor : int, optional
        Of the lock, while it is held.
    """

    path: Path
    target: Path
    lock: Path | None = None
    descriptor: int | None = None

    @classmethod
    def of(cls, path: Path, *, keep_suffix: bool = False) -> "Self":
        """The draft of a file, whose folder is made; a link stays a link to what is written."""
        if path.exists() and not path.is_file():
            return cls(path, path)
        target = resolved(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        end = path.suffix if keep_suffix else ""
        while True:
            start = target.with_name(f".{target.name}.{uuid4().hex}{DRAFT_SUFFIX}")
            draft = cls(start.with_name(start.name + end), target)
            if not HAS_LOCKS or draft._take(start.with_name(start.name + LOCK_END)):
                return draft

    @property
    def is_in_place(self) -> bool:
        """Whether what is written is there at once."""
        return self.path == self.target

    def commit(self, *, replace: bool = True) -> None:
        """Give it the name of the file; unless `replace`, there must be none of that name."""
        if self.is_in_place:
            return
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        if replace:
            self.path.replace(self.target)
        else:
            _name_first(self.path, self.target)
        self._release()

    def discard(self) -> None:
        """Remove it, if it is there still."""
        if not self.is_in_place:
            _remove(self.path)
            self._release()

    def _take(self, lock: Path) -> bool:
        """Make the lock and hold it; False if another process removed it as an abandoned one."""
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            error.filename = str(self.target)
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = lock.exists()
        except BlockingIOError:
            is_held = False
        except OSError:
            # On a file system without locks, no other process can take this one either.
            is_held = True
        if is_held:
            self.lock, self.descriptor = lock, descriptor
        else:
            os.close(descriptor)
        return is_held

    def _release(self) -> None:
        if self.lock is not None and self.descriptor is not None:
            _remove(self.lock)
            os.close(self.descriptor)
            self.descriptor = None


@contextmanager
def atomic_write(path: Path, *, keep_suffix: bool = False, replace: bool = True) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends well, and vanishes otherwise.

    Parameters
    ----------
    path : Path
        Where the file shall be; its folder is made. A device or a pipe is written itself.
    keep_suffix : bool, default False
        Whether the draft ends as `path` does, for writers that need the suffix. Otherwise the
        draft does not match patterns for such files.
    replace : bool, default True
        Whether a file that is there at the end is replaced; if not, it is a FileExistsError.
    """
    draft = Draft.of(path, keep_suffix=keep_suffix)
    try:
        yield draft.path
        draft.commit(replace=replace)
    except OSError as error:
        # The draft's name means nothing to the caller, and an error about a full disk has none.
        if error.errno is not None and error.filename in {None, str(draft.path), draft.path}:
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        draft.discard()


def write_text_whole(path: Path, text: str) -> None:
    """Write a file of UTF-8."""
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")


def remove_drafts(folder: Path) -> None:
    """Remove drafts of killed processes; no other run may write into the folder meanwhile."""
    for draft in folder.rglob(f".*{DRAFT_SUFFIX}*"):
        _remove(draft)


def remove_dead_drafts(folder: Path) -> None:
    """Remove drafts of killed processes from a folder; one that is being written stays."""
    if not HAS_LOCKS:
        return
    left: dict[str, list[Path]] = {}
    # A folder that may not be listed can still be written to.
    with suppress(OSError):
        for part in folder.glob(f".*{DRAFT_SUFFIX}*"):
            left.setdefault(part.name.rpartition(DRAFT_SUFFIX)[0], []).append(part)
    for start, parts in left.items():
        lock = folder / f"{start}{DRAFT_SUFFIX}{LOCK_END}"
        with _locked(lock) as is_left:
            if is_left:
                # The lock goes last: without it, the rest would not be found again.
                for part in sorted(parts, key=lambda part: part == lock):
                    _remove(part)


@contextmanager
def _locked(lock: Path) -> Iterator[bool]:
    """Take a lock for the block; False if another process holds it."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError as error:
        yield error.errno == errno.ENOENT
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def _name_first(path: Path, target: Path) -> None:
    """Rename a file, unless another has the name."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        path.replace(target)
    else:
        path.unlink()


def _remove(path: Path) -> None:
    # On a full or lost disk this fails, too, and would hide the first error.
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def resolved(path: Path) -> Path:
    """A path without links; an OSError if they lead in a circle, in every version of Python."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
    return path.resolve()
