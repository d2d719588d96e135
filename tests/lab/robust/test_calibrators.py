"""Calibrators: the likeliest line and the nearest ascending curve, whatever the data."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import BoolArray, FloatArray
from nearsure.lab.robust.calibrators import Calibrator, Isotonic, Platt, Unchanged

Fit = Callable[[FloatArray, BoolArray], Calibrator]
GRID = np.linspace(0, 1, 41)


def scored(n: int = 400, seed: int = 0) -> tuple[FloatArray, BoolArray]:
    """Confidences that claim too much: right with the square of what they say."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(4, 2, size=n)
    return confidence, rng.random(n) < confidence**2


def test_isotonic_is_sklearns_on_seen_and_unseen_confidences() -> None:
    confidence, correct = scored()
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(confidence, correct)
    fitted = Isotonic.fit(confidence, correct)
    for asked in (confidence, GRID):
        np.testing.assert_allclose(fitted(asked), reference.predict(asked), rtol=0, atol=1e-12)
    assert (np.diff(fitted(GRID)) >= 0).all()


def test_platt_is_logistic_regression_on_the_logit() -> None:
    confidence, correct = scored()
    x = np.log(confidence / (1 - confidence))
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x[:, None], correct)
    fitted = Platt.fit(confidence, correct)
    assert fitted.slope == pytest.approx(reference.coef_[0, 0], rel=1e-4)
    assert fitted.intercept == pytest.approx(reference.intercept_[0], rel=1e-4)
    assert fitted(confidence).mean() == pytest.approx(correct.mean(), abs=1e-9)  # as ML has it


def test_platt_has_the_greatest_likelihood_with_certain_confidences_among_them() -> None:
    confidence, correct = scored()
    confidence[:50] = 1.0
    fitted = Platt.fit(confidence, correct)
    x = np.log(np.clip(confidence, 1e-6, 1 - 1e-6) / (1 - np.clip(confidence, 1e-6, 1 - 1e-6)))

    def loss(line: FloatArray) -> float:
        signs = np.where(correct, 1.0, -1.0)
        return float(np.logaddexp(0, -signs * (line[0] * x + line[1])).sum())

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    assert loss(np.array([fitted.slope, fitted.intercept])) <= best.fun + 1e-9


def test_what_is_calibrated_is_left_alone() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(200_000)
    fitted = Platt.fit(confidence, rng.random(200_000) < confidence)
    assert fitted.slope == pytest.approx(1, abs=0.02)
    assert fitted.intercept == pytest.approx(0, abs=0.02)
    np.testing.assert_array_equal(Unchanged()(confidence), confidence)


@pytest.mark.parametrize("fit", [Isotonic.fit, Platt.fit])
@pytest.mark.parametrize(
    ("confidence", "correct"),
    [
        ([1.0] * 5, [True, True, True, True, False]),  # 1NN: always sure
        ([0.4, 0.6, 0.9], [True, True, True]),
        ([0.4, 0.6, 0.9], [False, False, False]),
        ([0.7], [True]),
    ],
)
def test_data_without_a_line_give_the_share_that_is_right(
    fit: Fit, confidence: list[float], correct: list[bool]
) -> None:
    calibrator: Calibrator = fit(np.array(confidence), np.array(correct))
    np.testing.assert_allclose(calibrator(GRID), np.mean(correct), rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrong_first", [True, False])
def test_a_threshold_that_parts_right_from_wrong_gives_a_finite_slope(
    wrong_first: bool,  # noqa: FBT001
) -> None:
    confidence = np.array([0.2, 0.3, 0.6, 0.8, 0.9])
    correct = (confidence > 0.5) == wrong_first
    fitted = Platt.fit(confidence, correct)
    assert np.isfinite([fitted.slope, fitted.intercept]).all()
    assert (fitted.slope > 0) == wrong_first
    assert ((fitted(confidence) > 0.5) == correct).all()
    # Platt's targets: the mean of what it says is the mean of them.
    right, wrong = correct.sum(), (~correct).sum()
    targets = np.where(correct, (right + 1) / (right + 2), 1 / (wrong + 2))
    assert fitted(confidence).mean() == pytest.approx(targets.mean(), abs=1e-9)


@pytest.mark.parametrize("fit", [Isotonic.fit, Platt.fit])
def test_every_answer_is_a_confidence(fit: Fit) -> None:
    answers = fit(*scored(seed=5))(GRID)
    assert answers.shape == GRID.shape
    assert 0 <= answers.min() <= answers.max() <= 1
