from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from nearsure.displays import NeighborCurveDisplay
from nearsure.errors import InvalidInputError

KS = [10, 20, 50]
ACCURACY = {"1NN": [0.56, 0.56, 0.56], "kNN": [0.62, 0.63, 0.61], "NED": [0.63, 0.64, 0.64]}
ERROR = {"kNN": [0.08, 0.16, 0.25], "NED": [0.04, 0.07, 0.08]}


def test_both_plots_hold_the_lines_and_one_legend_names_them_all() -> None:
    axes = Figure().subplots(1, 2)
    display = NeighborCurveDisplay(KS, ACCURACY, ERROR)
    assert display.plot(list(axes), name="CUB-200") is display
    left, right = display.axes_
    assert (left, right) == tuple(axes)
    assert display.figure_ is left.figure
    for ax, values in ((left, ACCURACY), (right, ERROR)):
        assert [line.get_label() for line in ax.lines] == list(values)
        for line, expected in zip(ax.lines, values.values(), strict=True):
            np.testing.assert_array_equal(line.get_xdata(), KS)
            np.testing.assert_array_equal(line.get_ydata(), expected)
        assert ax.get_xlabel() == "Neighbours k"
        assert ax.get_title() == "CUB-200"
    assert (left.get_ylabel(), right.get_ylabel()) == ("Accuracy", "Expected calibration error")
    legend = right.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["1NN", "kNN", "NED"]


def test_a_rule_has_one_style_in_both_plots_and_shares_it_with_none() -> None:
    display = NeighborCurveDisplay(KS, ACCURACY, ERROR).plot(list(Figure().subplots(1, 2)))
    looks = [
        {
            line.get_label(): (line.get_color(), line.get_linestyle(), line.get_marker())
            for line in ax.lines
        }
        for ax in display.axes_
    ]
    assert looks[0]["NED"] == looks[1]["NED"]
    assert looks[0]["kNN"] == looks[1]["kNN"]
    for aspect in range(3):
        assert len({look[aspect] for look in looks[0].values()}) == 3


def test_intervals_are_bands() -> None:
    low_high = np.array([[0.60, 0.66], [0.61, 0.67], [0.62, 0.66]])
    display = NeighborCurveDisplay(KS, ACCURACY, ERROR, accuracy_intervals={"NED": low_high})
    left, right = display.plot(list(Figure().subplots(1, 2))).axes_
    (band,) = left.collections
    assert isinstance(band, PolyCollection)
    corners = {(x, round(y, 6)) for x, y in np.asarray(band.get_paths()[0].vertices).tolist()}
    assert corners == {(k, end) for k, ends in zip(KS, low_high, strict=True) for end in ends}
    assert len(right.collections) == 0


def test_a_new_figure_has_two_axes() -> None:
    display = NeighborCurveDisplay(KS, ACCURACY, ERROR).plot()
    assert display.figure_.axes == list(display.axes_)
    plt.close("all")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ks": []}, r"'ks' parameter must be an array of shape \(m,\)"),
        ({"ks": [[1]]}, r"'ks' parameter must be an array of shape \(m,\) .* \(1, 1\)"),
        (
            {"accuracy": {"NED": [0.5]}},
            r"'accuracy' .* shape \(3,\), .* Got shape \(1,\) for 'NED'",
        ),
        ({"calibration_error": {"NED": [0.5]}}, r"'calibration_error' .* Got shape \(1,\)"),
        ({"accuracy_intervals": {"NED": [0.1] * 3}}, r"'accuracy_intervals' .* shape \(3, 2\)"),
        (
            {"calibration_error_intervals": {"1NN": [[0.1, 0.2]] * 3}},
            r"must belong to rules that have a line in the same plot\. Got intervals for \['1NN'\]",
        ),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    arguments = {"ks": KS, "accuracy": ACCURACY, "calibration_error": ERROR}
    with pytest.raises(InvalidInputError, match=message):
        NeighborCurveDisplay(**{**arguments, **options})


def test_a_wrong_number_of_axes_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'ax' parameter must be two axes, .* Got 1"):
        NeighborCurveDisplay(KS, ACCURACY, ERROR).plot([Figure().subplots()])
