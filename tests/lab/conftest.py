"""What tests of trained models share: one thread, a cache, a small model, few corruptions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_runs import small_model

from nearsure.lab import report
from nearsure.lab.robust import experiments
from nearsure.lab.robust.model import RobustModel


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other would take most of the time of such small steps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def model(cache: Path) -> RobustModel:
    return small_model(cache)


@pytest.fixture
def few_corruptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "CORRUPTIONS", ("fog", "contrast"))
    monkeypatch.setattr(experiments, "SEVERITIES", (2, 5))


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take their time, and are looked at elsewhere."""
    for name in ("draw_reliability", "draw_neighbor_curve", "draw_sweep"):
        monkeypatch.setattr(report, name, lambda _, path, name: path)  # noqa: ARG005
