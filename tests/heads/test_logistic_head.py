"""Logistic regression against scikit-learn's, and where it is stopped."""

import numpy as np
import pytest
from head_data import draw_normal, log_softmax
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import FloatArray
from nearsure.heads import logistic
from nearsure.heads.class_means import find_factor
from nearsure.heads.logistic import fit_logistic_head

POINTS, CODES, _ = draw_normal(300, seed=0)
QUERIES, QUERY_CODES, _ = draw_normal(500, seed=1)


def shares(weights: FloatArray) -> FloatArray:
    return np.exp(log_softmax(QUERIES @ weights[:, :-1].T + weights[:, -1]))


def expected_shares(strength: float) -> FloatArray:
    theirs = LogisticRegression(C=1.0 / strength, tol=1e-10, max_iter=10_000).fit(POINTS, CODES)
    found: FloatArray = theirs.predict_proba(QUERIES)
    return found


@pytest.mark.parametrize("strength", [0.1, 3.0, 100.0])
def test_the_same_as_scikit_learn(strength: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the optimum, whatever the start; single precision leaves the fifth digit."""
    monkeypatch.setattr(logistic, "MOST_STEPS", 2000)
    monkeypatch.setattr(logistic, "SMALLEST_GAIN", 1e-12)
    weights = fit_logistic_head(POINTS, CODES, 4, strength)
    again = fit_logistic_head(POINTS, CODES, 4, strength, -weights)
    for found in (weights, again):
        np.testing.assert_allclose(shares(found), expected_shares(strength), atol=2e-4)


@pytest.mark.parametrize("strength", [3.0, 100.0])
def test_what_an_early_stop_costs_is_less_than_chance(strength: float) -> None:
    """The loss of held-out points against that of the optimum, in standard errors of that loss."""
    rows = np.arange(len(QUERIES))
    early = -np.log(shares(fit_logistic_head(POINTS, CODES, 4, strength))[rows, QUERY_CODES])
    optimal = -np.log(expected_shares(strength)[rows, QUERY_CODES])
    assert (early - optimal).mean() < 0.25 * optimal.std() / len(rows) ** 0.5


def test_classes_without_points_are_impossible() -> None:
    codes = 2 * CODES + 1
    start = fit_logistic_head(POINTS, codes, 9, 30.0)
    weights = fit_logistic_head(POINTS, codes, 9, 10.0, start)
    assert np.isneginf(weights[::2, -1]).all()
    assert not weights[::2, :-1].any()
    plain = fit_logistic_head(POINTS, CODES, 4, 10.0, fit_logistic_head(POINTS, CODES, 4, 30.0))
    np.testing.assert_allclose(weights[1::2], plain, rtol=1e-9)


def test_a_widened_metric_is_that_of_a_sum_of_two_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Points twice over, once in either metric, each with a penalty of its own."""
    monkeypatch.setattr(logistic, "MOST_STEPS", 2000)
    monkeypatch.setattr(logistic, "SMALLEST_GAIN", 1e-12)
    covariance = np.cov(POINTS.T)
    own, plain, widened = (
        find_factor(covariance, 0.1),
        find_factor(covariance, 1.0),
        find_factor(covariance, 0.1, is_widened=True),
    )
    twice = np.hstack([own, plain])
    weights = [fit_logistic_head(POINTS @ each, CODES, 4, 30.0) for each in (widened, twice)]
    one, other = (
        np.exp(log_softmax(QUERIES @ each @ w[:, :-1].T + w[:, -1]))
        for each, w in zip((widened, twice), weights, strict=True)
    )
    np.testing.assert_allclose(one, other, atol=1e-4)
    alone = fit_logistic_head(POINTS @ own, CODES, 4, 30.0)
    only = np.exp(log_softmax(QUERIES @ own @ alone[:, :-1].T + alone[:, -1]))
    assert np.abs(one - only).max() > 0.01
