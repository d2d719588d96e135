"""Files that appear whole or not at all, also where many write beside each other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

DRAFT_SUFFIX = ".nearsure-draft"


@contextmanager
def written_whole(path: Path, *, keep_suffix: bool = False) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends well, and vanishes otherwise.

    Parameters
    ----------
    path : Path
        Where the file shall be; its folder is made.
    keep_suffix : bool, default False
        Whether the draft ends as `path` does, for writers that go by that. Otherwise nobody who
        lists the folder takes a draft for such a file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    end = f"{DRAFT_SUFFIX}{path.suffix}" if keep_suffix else DRAFT_SUFFIX
    draft = path.with_name(f".{path.name}.{uuid4().hex}{end}")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        # On a full or lost disk this fails, too, and would hide why.
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def write_text_whole(path: Path, text: str) -> None:
    """Write a file of UTF-8."""
    with written_whole(path) as draft:
        draft.write_text(text, encoding="utf-8")


def remove_drafts(folder: Path) -> None:
    """Remove what killed processes left; no other run may write into the folder meanwhile."""
    for draft in folder.rglob(f".*{DRAFT_SUFFIX}*"):
        draft.unlink(missing_ok=True)
