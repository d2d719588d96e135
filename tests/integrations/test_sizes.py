"""Integrations stay short."""

from pathlib import Path

import pytest

import nearsure.integrations

MOST_LINES = 150
MODULES = sorted(Path(nearsure.integrations.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_an_integration_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
