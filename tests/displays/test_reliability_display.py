from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nearsure.arrays import BoolArray, FloatArray
from nearsure.displays import ReliabilityDisplay
from nearsure.metrics import Binning, bin_by_confidence, expected_calibration_error


@pytest.fixture
def scored() -> Iterator[tuple[FloatArray, BoolArray]]:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, size=300)
    yield confidence, rng.random(300) < confidence**2
    plt.close("all")


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_the_numbers_are_those_of_the_metrics(
    scored: tuple[FloatArray, BoolArray], binning: Binning
) -> None:
    display = ReliabilityDisplay.from_predictions(*scored, n_bins=8, binning=binning)
    bins = bin_by_confidence(*scored, n_bins=8, binning=binning)
    np.testing.assert_array_equal(display.bins.counts, bins.counts)
    np.testing.assert_array_equal(display.bins.gap, bins.gap)
    assert display.expected_calibration_error == expected_calibration_error(
        *scored, n_bins=8, binning=binning
    )


def test_the_ink_is_the_numbers(scored: tuple[FloatArray, BoolArray]) -> None:
    display = ReliabilityDisplay.from_predictions(*scored, n_bins=5).plot(Figure().subplots())
    bins = display.bins
    assert bins.counts[0] == 0  # an empty bin has no bar
    accuracies, gaps = display.ax_.containers
    heights = [bar.get_height() for bar in accuracies if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(heights, bins.accuracy[1:])
    tops = [bar.get_y() + bar.get_height() for bar in gaps if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(tops, bins.mean_confidence[1:])
    diagonal, points = display.ax_.lines
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_allclose(np.asarray(points.get_xdata()), bins.mean_confidence[1:])
    np.testing.assert_allclose(np.asarray(points.get_ydata()), bins.accuracy[1:])
    assert display.counts_ax_ is not None
    heights = [bar.get_height() for bar in display.counts_ax_.patches if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(heights, bins.counts)


@pytest.mark.parametrize("layout", [None, "constrained", "tight"])
def test_axes_and_title_are_labelled_in_every_layout(
    scored: tuple[FloatArray, BoolArray], layout: str | None
) -> None:
    figure = Figure(layout=layout)  # type: ignore[arg-type]
    display = ReliabilityDisplay.from_predictions(*scored).plot(figure.subplots(), name="kNN")
    figure.draw_without_rendering()
    assert display.ax_.get_title() == f"kNN: ECE {display.expected_calibration_error:.3f}"
    assert display.ax_.get_ylabel() == "Accuracy"
    assert display.counts_ax_ is not None
    assert display.counts_ax_.get_xlabel() == "Confidence"
    diagram = display.ax_.get_window_extent()
    strip = display.counts_ax_.get_window_extent()
    assert 0 < strip.y0 < strip.y1 < diagram.y0  # below the diagram, within the figure
    assert strip.x0 == pytest.approx(diagram.x0)
    assert strip.x1 == pytest.approx(diagram.x1)


def test_the_strip_of_counts_can_be_left_out(scored: tuple[FloatArray, BoolArray]) -> None:
    figure = Figure()
    display = ReliabilityDisplay.from_predictions(*scored).plot(
        figure.subplots(), show_counts=False
    )
    assert display.counts_ax_ is None
    assert figure.axes == [display.ax_]
    assert display.ax_.get_xlabel() == "Confidence"
    assert display.ax_.get_title().startswith("ECE ")
