"""Folders for galleries in files."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it have names of their own


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory, if there is one: on a disk, every change of a gallery is waited for."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="nearsure-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
