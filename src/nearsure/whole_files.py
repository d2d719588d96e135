"""Files that appear whole or not at all, also where many write beside each other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

DRAFT_SUFFIX = ".nearsure-draft"


@dataclass(frozen=True)
class Draft:
    """What is written in place of a file, until it is whole.

    Parameters
    ----------
    path : Path
        Where to write.
    target : Path
        The file; the same as `path` for devices and pipes, which cannot be renamed over.
    """

    path: Path
    target: Path

    @classmethod
    def of(cls, path: Path, *, keep_suffix: bool = False) -> Self:
        """The draft of a file, whose folder is made; a link stays a link to what is written."""
        if path.exists() and not path.is_file():
            return cls(path, path)
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        end = f"{DRAFT_SUFFIX}{path.suffix}" if keep_suffix else DRAFT_SUFFIX
        return cls(target.with_name(f".{target.name}.{uuid4().hex}{end}"), target)

    @property
    def is_in_place(self) -> bool:
        """Whether what is written is there at once."""
        return self.path == self.target

    def keep(self) -> None:
        """Give it the name of the file."""
        if self.is_in_place:
            return
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        self.path.replace(self.target)

    def drop(self) -> None:
        """Remove it, if it is there still."""
        if self.is_in_place:
            return
        # On a full or lost disk this fails, too, and would hide why.
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@contextmanager
def written_whole(path: Path, *, keep_suffix: bool = False) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends well, and vanishes otherwise.

    Parameters
    ----------
    path : Path
        Where the file shall be; its folder is made. A device or a pipe is written itself.
    keep_suffix : bool, default False
        Whether the draft ends as `path` does, for writers that go by that. Otherwise nobody who
        lists the folder takes a draft for such a file.
    """
    draft = Draft.of(path, keep_suffix=keep_suffix)
    try:
        yield draft.path
        draft.keep()
    except OSError as error:
        # Nobody knows the name of a draft, and a full disk has no name at all.
        if error.errno is not None and error.filename in {None, str(draft.path), draft.path}:
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        draft.drop()


def write_text_whole(path: Path, text: str) -> None:
    """Write a file of UTF-8."""
    with written_whole(path) as draft:
        draft.write_text(text, encoding="utf-8")


def remove_drafts(folder: Path) -> None:
    """Remove what killed processes left; no other run may write into the folder meanwhile."""
    for draft in folder.rglob(f".*{DRAFT_SUFFIX}*"):
        draft.unlink(missing_ok=True)
