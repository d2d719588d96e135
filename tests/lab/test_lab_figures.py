"""Figures: drawn from stored numbers, nothing cut off, pyplot left alone."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from experiments import evaluation, found
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import binomtest

from nearsure.comparison import title_of
from nearsure.errors import MissingExtraError
from nearsure.lab.cache import from_plain, to_plain
from nearsure.lab.default_rule import DEFAULT
from nearsure.lab.evaluation import Evaluation, Sweep, temperature_and_k_sweep
from nearsure.lab.figures import (
    draw_neighbor_curve,
    draw_neighbor_panels,
    draw_reliability,
    draw_sweep,
)

DRAWINGS = [draw_reliability, draw_neighbor_curve, draw_sweep]


def numbers(draw: Callable[..., Path]) -> Evaluation | Sweep:
    if draw is draw_sweep:
        return temperature_and_k_sweep(found(), ks=[5, 20])
    stored: Evaluation = from_plain(Evaluation, json.loads(json.dumps(to_plain(evaluation()))))
    return stored


def lines_of(ax: Axes) -> dict[str, tuple[float, ...]]:
    return {
        str(line.get_label()): tuple(np.asarray(line.get_ydata(), float).tolist())
        for line in ax.get_lines()
    }


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def remember(self: Figure, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        saved.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", remember)
    return saved


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_png_is_written_with_nothing_at_its_rim(
    draw: Callable[..., Path], tmp_path: Path, figures: list[Figure]
) -> None:
    open_before = plt.get_fignums()
    path = draw(numbers(draw), tmp_path / "new" / "folder" / "f.png", name="birds")
    with Image.open(path) as image:
        assert image.format == "PNG"
        pixels = np.asarray(image.convert("L"))
    assert min(pixels[0].min(), pixels[-1].min(), pixels[:, 0].min(), pixels[:, -1].min()) == 255
    assert pixels.min() < 50
    assert figures[0].get_suptitle().startswith("birds: ")
    assert plt.get_fignums() == open_before


def test_reliability_shows_rules_in_a_row_with_their_ece_and_intervals(
    tmp_path: Path, figures: list[Figure]
) -> None:
    draw_reliability(evaluation(), tmp_path / "f.png", name="cars")
    panels = [ax for ax in figures[0].axes if ax.get_title()]
    rules = ("knn", "dudani", "gou", "ned", DEFAULT)
    assert [ax.get_title() for ax in panels] == [
        f"{title_of(rule)}\nECE {100 * evaluation().result_of(rule).ece.estimate:.1f}%"
        for rule in rules
    ]
    for ax, rule in zip(panels, rules, strict=True):
        bins = evaluation().reliability[rule]
        ends = [
            np.asarray(path.vertices, float)
            for lines in ax.collections
            for path in lines.get_paths()
        ]
        occupied = np.flatnonzero(bins.counts)
        assert len(ends) == len(occupied)
        for place, (low, high) in zip(occupied, ends, strict=True):
            x, n = bins.mean_confidence[place], bins.counts[place]
            exact = binomtest(round(bins.accuracy[place] * n), n).proportion_ci(0.95)
            np.testing.assert_allclose(low, np.array([x, exact.low]), atol=1e-6)
            np.testing.assert_allclose(high, np.array([x, exact.high]), atol=1e-6)
    assert len(figures[0].legends) == 1


def test_curve_shows_the_stored_numbers(tmp_path: Path, figures: list[Figure]) -> None:
    draw_neighbor_curve(evaluation(), tmp_path / "f.png", name="cars")
    left, right = figures[0].axes
    curve = evaluation().curve
    accuracy = lines_of(left)
    error = lines_of(right)
    assert accuracy["NED"] == curve.accuracy["ned"]
    assert accuracy["1NN"] == curve.accuracy["1nn"]
    assert error["kNN"] == curve.ece["knn"]
    assert "1NN" not in error
    # The default is fitted at few k, and drawn there.
    assert accuracy[DEFAULT] == tuple(v for v in curve.accuracy[DEFAULT] if not np.isnan(v))
    assert len(accuracy[DEFAULT]) == 2


def test_panels_show_the_accuracy_of_each_data_set(tmp_path: Path, figures: list[Figure]) -> None:
    names = ("birds", "cars", "glyphs", "words")
    path = draw_neighbor_panels(dict.fromkeys(names, evaluation()), tmp_path / "f.png")
    assert path.exists()
    assert [ax.get_title() for ax in figures[0].axes] == [f"{name}, 240 queries" for name in names]
    for ax in figures[0].axes:
        assert lines_of(ax)["WkNN (Gou)"] == evaluation().curve.accuracy["gou"]
    assert len(figures[0].legends) == 1


def test_sweep_shows_ned_and_the_best_baseline(tmp_path: Path, figures: list[Figure]) -> None:
    sweep = temperature_and_k_sweep(found(), ks=[5, 20])
    draw_sweep(sweep, tmp_path / "f.png", name="cars")
    left, right = figures[0].axes
    lines = lines_of(left)
    assert lines["NED, k = 20"] == sweep.accuracy[1]
    best = sweep.best_baseline(20)
    level = next(lines[label] for label in lines if label.endswith("), k = 20"))
    assert set(level) == {sweep.baseline_accuracy[best][1]}
    errors = lines_of(right)
    assert errors["NED, k = 5"] == sweep.ece[0]


def test_without_matplotlib_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_nothing(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("nearsure.extras.import_module", import_nothing)
    with pytest.raises(MissingExtraError, match=r"pip install 'nearsure\[plot\]'"):
        draw_reliability(evaluation(), tmp_path / "f.png", name="cars")
