"""Isotonic regression: scikit-learn's curve, kept as its knots."""

import numpy as np
import pytest
from miscalibrated import GRID, scored, votes
from sklearn.isotonic import IsotonicRegression

from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration import Isotonic
from nearsure.errors import InvalidInputError


@pytest.mark.parametrize("drawn", [scored(), votes()])
def test_isotonic_is_sklearns_on_seen_and_unseen_confidences(
    drawn: tuple[FloatArray, BoolArray],
) -> None:
    confidence, correct = drawn
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(confidence, correct)
    fitted = Isotonic.fit(confidence, correct)
    for asked in (confidence, GRID):
        np.testing.assert_allclose(fitted(asked), reference.predict(asked), rtol=0, atol=1e-12)
    assert (np.diff(fitted(GRID)) >= 0).all()


def test_what_it_says_of_its_own_points_is_the_share_that_is_right_at_each_answer() -> None:
    confidence, correct = votes()
    answers = Isotonic.fit(confidence, correct)(confidence)
    for answer in np.unique(answers):
        assert correct[answers == answer].mean() == pytest.approx(answer, abs=1e-12)


def test_a_second_fit_changes_nothing() -> None:
    confidence, correct = scored()
    once = Isotonic.fit(confidence, correct)(confidence)
    np.testing.assert_allclose(Isotonic.fit(once, correct)(once), once, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("confidence", "calibrated"),
    [((), ()), ((0.5,), (0.5, 0.6)), ((0.5, 0.4), (0.1, 0.2)), ((0.4, 0.5), (0.2, 0.1))],
)
def test_knots_that_do_not_ascend_are_refused(
    confidence: tuple[float, ...], calibrated: tuple[float, ...]
) -> None:
    with pytest.raises(InvalidInputError, match="knots of Isotonic must be ascending"):
        Isotonic(confidence, calibrated)
