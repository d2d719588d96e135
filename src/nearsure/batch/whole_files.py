"""Files that appear whole or not at all, also where many write beside each other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

DRAFT_SUFFIX = ".nearsure-draft"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends well, and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}{DRAFT_SUFFIX}")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        # On a full or lost disk this fails, too, and would hide why.
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def remove_drafts(folder: Path) -> None:
    """Remove what killed processes left; no other run may write into the folder meanwhile."""
    for draft in folder.rglob(f".*{DRAFT_SUFFIX}"):
        draft.unlink(missing_ok=True)
