"""Logistic regressions: against scikit-learn, and against the conditions of a bounded minimum."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import BoolArray, FloatArray
from nearsure.logistic import fit_bounded_logistic, fit_logistic


def drawn(n: int, slopes: list[float], seed: int) -> tuple[FloatArray, BoolArray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, len(slopes)))
    return features, rng.random(n) < expit(0.3 + features @ slopes)


@pytest.mark.parametrize("seed", range(5))
def test_newton_finds_the_fit_of_scikit_learn(seed: int) -> None:
    features, outcomes = drawn(200, [1.0, -0.5], seed)
    design = np.column_stack([features, np.ones(200)])
    found = fit_logistic(design, outcomes.astype(np.float64))
    theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(features, outcomes)
    np.testing.assert_allclose(found, [*theirs.coef_[0], theirs.intercept_[0]], atol=1e-6)


def test_targets_between_0_and_1_are_met_on_average() -> None:
    targets = np.array([0.2, 0.7, 0.6])
    assert expit(fit_logistic(np.ones((3, 1)), targets)) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(5))
def test_without_a_bound_that_binds_it_is_the_ridge_of_scikit_learn(seed: int) -> None:
    features, outcomes = drawn(300, [1.0, 0.5], seed)
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, 300)
    intercept, slopes = fit_bounded_logistic(
        features, outcomes, weights, lowest=-50.0, usual=0.0, pull=2.0, tolerance=1e-12
    )
    theirs = LogisticRegression(C=0.5, tol=1e-10).fit(features, outcomes, sample_weight=weights)
    np.testing.assert_allclose(slopes, theirs.coef_[0], atol=1e-4)
    assert intercept == pytest.approx(theirs.intercept_[0], abs=1e-4)


@pytest.mark.parametrize("pull_intercept", [False, True])
def test_no_weight_is_below_the_bound_and_nothing_is_left_to_gain(*, pull_intercept: bool) -> None:
    features, outcomes = drawn(400, [1.0, -1.0, 0.0], seed=9)
    intercept, slopes = fit_bounded_logistic(
        features,
        outcomes,
        np.ones(400),
        lowest=0.05,
        usual=1.0,
        pull=3.0,
        pull_intercept=pull_intercept,
        divisor=400.0,
        tolerance=1e-12,
    )
    residuals = expit(intercept + features @ slopes) - outcomes
    gradient = features.T @ residuals + 3.0 * (slopes - 1.0)
    assert slopes.min() == 0.05
    bound = slopes == 0.05
    assert (gradient[bound] > 0).all()
    np.testing.assert_allclose(gradient[~bound], 0.0, atol=1e-2)
    of_intercept = residuals.sum() + (3.0 * intercept if pull_intercept else 0.0)
    assert of_intercept == pytest.approx(0.0, abs=1e-2)


def test_outcomes_that_do_not_overlap_have_finite_weights() -> None:
    features = np.linspace(-1.0, 1.0, 20)[:, None]
    _, slopes = fit_bounded_logistic(
        features, features[:, 0] > 0, np.ones(20), lowest=0.0, usual=0.0, pull=1.0
    )
    assert 1.0 < slopes[0] < 10.0
