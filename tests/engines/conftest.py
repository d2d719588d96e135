"""Folders for galleries in files."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from quick_folders import quick_place


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that goes with its test."""
    place = quick_place()
    with TemporaryDirectory(prefix="nearsure-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
