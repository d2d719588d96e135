"""Platt scaling: the likeliest line on the logit, whatever the data."""

import numpy as np
import pytest
from miscalibrated import scored
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import FloatArray
from nearsure.calibration import Platt


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


def test_confidences_that_differ_by_rounding_alone_are_equal() -> None:
    rng = np.random.default_rng(0)
    correct = np.arange(50) % 5 > 0
    for spread in (1e-16, 1e-14, 1e-11, 1e-8):
        confidence = 0.7 + spread * rng.integers(-2, 3, size=50)
        assert Platt.fit(confidence, correct) == Platt(0.0, 0.0, 0.8)
