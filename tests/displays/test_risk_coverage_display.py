import numpy as np
from matplotlib.figure import Figure

from nearsure.displays import RiskCoverageDisplay
from nearsure.metrics import area_under_risk_coverage, risk_coverage_curve

CONFIDENCE = [0.9, 0.8, 0.8, 0.4, 0.1]
CORRECT = [1, 1, 0, 1, 0]


def test_numbers_and_ink_are_those_of_the_metrics() -> None:
    display = RiskCoverageDisplay.from_predictions(CONFIDENCE, CORRECT)
    curve = risk_coverage_curve(CONFIDENCE, CORRECT)
    assert display.area_under_risk_coverage == area_under_risk_coverage(CONFIDENCE, CORRECT)
    np.testing.assert_array_equal(display.curve.risk, curve.risk)
    display.plot(Figure().subplots())
    np.testing.assert_array_equal(
        display.line_.get_xydata(), np.column_stack([curve.coverage, curve.risk])
    )
    assert display.ax_.get_xlabel().startswith("Coverage")
    assert display.ax_.get_ylabel().startswith("Risk")


def test_several_methods_share_the_axes_and_look_different() -> None:
    ax = Figure().subplots()
    names = ["NED", "kNN", "Dudani", "Gou"]
    displays = [
        RiskCoverageDisplay.from_predictions(CONFIDENCE, CORRECT, name=name).plot(ax)
        for name in names
    ]
    assert [display.line_ for display in displays] == list(ax.lines)
    legend = ax.get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    area = area_under_risk_coverage(CONFIDENCE, CORRECT)
    assert texts == [f"{name} (AURC {area:.3f})" for name in names]
    assert len({line.get_color() for line in ax.lines}) == 4
    assert len({line.get_linestyle() for line in ax.lines}) == 4


def test_the_scale_shows_every_curve_but_not_the_noise_of_a_few_rows() -> None:
    rng = np.random.default_rng(0)
    confidence = np.linspace(1.0, 0.0, 1000)
    good = rng.random(1000) < 0.95
    good[0] = False  # the risk of the first row alone is 1
    ax = RiskCoverageDisplay.from_predictions(confidence, good).plot(Figure().subplots()).ax_
    assert 0.05 < ax.get_ylim()[1] < 0.2
    RiskCoverageDisplay.from_predictions(confidence, rng.random(1000) < 0.5).plot(ax)
    assert 0.5 < ax.get_ylim()[1] < 0.8
    RiskCoverageDisplay.from_predictions(confidence, good).plot(ax)
    assert 0.5 < ax.get_ylim()[1] < 0.8  # a lower curve does not cut off a higher one


def test_a_curve_of_one_point_can_be_seen() -> None:
    display = RiskCoverageDisplay.from_predictions([0.5, 0.5], [1, 0]).plot(Figure().subplots())
    assert display.line_.get_marker() == "o"
