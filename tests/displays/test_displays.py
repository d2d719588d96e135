"""What holds for every display: where it draws, what it leaves alone, what it needs."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from nearsure.displays import (
    ConfidenceHistogramDisplay,
    NeighborCurveDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
)
from nearsure.errors import InvalidInputError, MissingExtraError

CONFIDENCE = [0.1, 0.3, 0.55, 0.8, 0.95, 0.95, 1.0]
CORRECT = [0, 1, 0, 1, 1, 0, 1]
FROM_PREDICTIONS: list[Any] = [ConfidenceHistogramDisplay, ReliabilityDisplay, RiskCoverageDisplay]


def neighbor_curve() -> NeighborCurveDisplay:
    return NeighborCurveDisplay([1, 5], {"NED": [0.5, 0.6]}, {"NED": [0.1, 0.05]})


DISPLAYS: list[Callable[[], Any]] = [
    *(
        lambda display=display: display.from_predictions(CONFIDENCE, CORRECT)
        for display in FROM_PREDICTIONS
    ),
    neighbor_curve,
]


@pytest.fixture(autouse=True)
def agg() -> Iterator[None]:
    before = mpl.get_backend()
    mpl.use("Agg")
    yield
    plt.close("all")
    mpl.use(before)


@pytest.mark.parametrize("display", FROM_PREDICTIONS)
def test_given_axes_are_used_and_pyplot_is_left_alone(display: Any) -> None:  # noqa: ANN401
    figure = Figure()
    ax = figure.subplots()
    drawn = display.from_predictions(CONFIDENCE, CORRECT)
    assert drawn.plot(ax) is drawn
    assert drawn.ax_ is ax
    assert drawn.figure_ is figure
    assert plt.get_fignums() == []
    figure.draw_without_rendering()


@pytest.mark.parametrize("display", FROM_PREDICTIONS)
def test_without_axes_a_new_figure_is_made(display: Any) -> None:  # noqa: ANN401
    other = plt.figure()
    drawn = display.from_predictions(CONFIDENCE, CORRECT).plot()
    assert drawn.figure_ is not other
    assert len(plt.get_fignums()) == 2
    drawn.figure_.draw_without_rendering()


@pytest.mark.parametrize("display", FROM_PREDICTIONS)
def test_the_name_is_shown_and_that_of_plot_goes_first(display: Any) -> None:  # noqa: ANN401
    drawn = display.from_predictions(CONFIDENCE, CORRECT, name="NED")

    def shown(ax: Any) -> str:  # noqa: ANN401
        texts = [text.get_text() for text in ax.get_legend().get_texts()]
        return " ".join([ax.get_title(), *texts])

    assert "NED" in shown(drawn.plot().ax_)
    again = shown(drawn.plot(name="kNN").ax_)
    assert "kNN" in again
    assert "NED" not in again


@pytest.mark.parametrize("display", FROM_PREDICTIONS)
def test_bad_predictions_are_refused(display: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidInputError, match="same number of rows"):
        display.from_predictions([0.5, 0.5], [1])


@pytest.mark.parametrize("make", DISPLAYS)
def test_the_global_style_is_not_changed(make: Callable[[], Any]) -> None:
    before = dict(mpl.rcParams)
    make().plot()
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("make", DISPLAYS)
def test_no_text_is_cut_off(make: Callable[[], Any]) -> None:
    figure = make().plot().figure_
    figure.draw_without_rendering()
    inked = figure.get_tightbbox()  # in inches
    width, height = figure.get_size_inches()
    assert inked.x0 >= 0
    assert inked.y0 >= 0
    assert inked.x1 <= width
    assert inked.y1 <= height


@pytest.mark.parametrize("make", DISPLAYS)
def test_without_matplotlib_only_plotting_fails_and_says_how_to_install_it(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_without_matplotlib(name: str) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_module(name)

    monkeypatch.setattr("nearsure.extras.import_module", import_without_matplotlib)
    display = make()
    with pytest.raises(
        MissingExtraError,
        match=r"^A .* needs matplotlib, which is not installed: pip install 'nearsure\[plot\]'$",
    ):
        display.plot()


def test_the_package_is_imported_without_matplotlib() -> None:
    code = "import sys, nearsure.displays; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


def test_a_display_repr_holds_numbers_only() -> None:
    display = neighbor_curve()
    assert "axes_" not in repr(display)
    assert np.array_equal(display.ks, [1, 5])
