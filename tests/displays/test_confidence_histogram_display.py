import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nearsure.displays import ConfidenceHistogramDisplay

CONFIDENCE = np.array([0.1, 0.3, 0.3, 0.8, 0.8, 1.0])
CORRECT = np.array([False, True, False, True, True, False])


def test_rows_are_counted_by_bin_and_outcome() -> None:
    display = ConfidenceHistogramDisplay.from_predictions(CONFIDENCE, CORRECT, n_bins=4)
    assert display.right.tolist() == [0, 1, 0, 2]
    assert display.wrong.tolist() == [1, 1, 0, 1]
    assert display.edges.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert display.mean_confidence == pytest.approx(CONFIDENCE.mean())
    assert display.accuracy == 0.5


def test_counts_are_exact_for_many_rows() -> None:
    rng = np.random.default_rng(0)
    confidence, correct = rng.random(100_000), rng.random(100_000) < 0.37
    display = ConfidenceHistogramDisplay.from_predictions(confidence, correct, n_bins=7)
    expected, _ = np.histogram(confidence[correct], bins=7, range=(0, 1))
    np.testing.assert_array_equal(display.right, expected)
    assert display.right.sum() + display.wrong.sum() == 100_000


def test_the_ink_is_the_numbers() -> None:
    display = ConfidenceHistogramDisplay.from_predictions(CONFIDENCE, CORRECT, n_bins=4)
    ax = display.plot(Figure().subplots()).ax_
    right, wrong = ax.containers
    tops = [bar.get_y() + bar.get_height() for bar in wrong if isinstance(bar, Rectangle)]
    assert [bar.get_height() for bar in right if isinstance(bar, Rectangle)] == [0, 1, 0, 2]
    assert tops == [1, 2, 0, 3]
    lines = [np.asarray(line.get_xdata()).tolist() for line in ax.lines]
    assert lines == [[display.mean_confidence] * 2, [display.accuracy] * 2]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "Mean confidence 0.550",
        "Accuracy 0.500",
        "Right",
        "Wrong",
    ]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Confidence", "Rows")
