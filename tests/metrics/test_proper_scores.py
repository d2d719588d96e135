"""Brier score and negative log-likelihood."""

import math

import numpy as np
import pytest
from dense_posterior import posterior_of, random_dense
from sklearn.metrics import brier_score_loss, log_loss

from nearsure.errors import InvalidInputError
from nearsure.metrics import (
    brier_score,
    negative_log_likelihood,
    row_brier_scores,
    row_negative_log_likelihoods,
)
from nearsure.posterior import Posterior

CLASSES = list(range(4))


def test_brier_score_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    dense = random_dense(rng, n=90, n_classes=4, k=10)
    labels = rng.integers(0, 4, size=90)
    theirs = brier_score_loss(labels, dense, labels=CLASSES, scale_by_half=False)
    assert brier_score(posterior_of(dense), labels) == pytest.approx(theirs, abs=1e-14)


def test_likelihood_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    dense = rng.dirichlet(np.ones(4), size=90)
    labels = rng.integers(0, 4, size=90)
    theirs = log_loss(labels, dense, labels=CLASSES)
    assert negative_log_likelihood(posterior_of(dense), labels) == pytest.approx(theirs)


def test_row_scores_are_the_loop_over_the_classes() -> None:
    rng = np.random.default_rng(2)
    dense = random_dense(rng, n=40, n_classes=4, k=5)
    labels = rng.integers(-2, 7, size=40)  # also classes never seen
    brier, surprise = [], []
    for row, label in zip(dense, labels, strict=True):
        seen = 0 <= label < 4
        unseen_term = 0.0 if seen else 1.0
        brier.append(sum((p - (c == label)) ** 2 for c, p in enumerate(row)) + unseen_term)
        surprise.append(-math.log(row[label]) if seen and row[label] > 0 else math.inf)
    posterior = posterior_of(dense)
    np.testing.assert_allclose(row_brier_scores(posterior, labels), brier, atol=1e-15)
    np.testing.assert_allclose(row_negative_log_likelihoods(posterior, labels), surprise)
    assert math.inf in surprise


def test_sure_and_right_scores_zero_and_sure_and_wrong_the_worst() -> None:
    posterior = Posterior(np.array([0, 1]), np.array([1]), np.array([1.0]), n_classes=2)
    assert brier_score(posterior, [1]) == 0.0
    assert negative_log_likelihood(posterior, [1]) == 0.0
    assert str(row_negative_log_likelihoods(posterior, [1])[0]) == "0.0"  # not -0.0
    for wrong in (0, 2, 99, -1):
        assert brier_score(posterior, [wrong]) == 2.0
        assert negative_log_likelihood(posterior, [wrong]) == math.inf


def test_a_query_without_neighbours_has_probability_zero_everywhere() -> None:
    posterior = Posterior(np.array([0, 0]), np.array([], np.int64), np.array([]), n_classes=2)
    assert brier_score(posterior, [0]) == 1.0
    assert negative_log_likelihood(posterior, [0]) == math.inf


def test_the_floor_replaces_only_what_lies_below_it() -> None:
    dense = np.array([[0.7, 0.3, 0.0], [0.995, 0.005, 0.0], [1.0, 0.0, 0.0]])
    rows = row_negative_log_likelihoods(posterior_of(dense), [1, 1, 2], floor=0.01)
    np.testing.assert_allclose(rows, [-math.log(0.3), -math.log(0.01), -math.log(0.01)])
    mean = negative_log_likelihood(posterior_of(dense), [1, 1, 2], floor=0.01)
    assert mean == pytest.approx(rows.mean())


@pytest.mark.parametrize("floor", [0.0, 1.0, -0.1, math.nan, "0.1", True])
def test_a_floor_outside_the_open_interval_is_refused(floor: float) -> None:
    posterior = Posterior(np.array([0, 1]), np.array([1]), np.array([1.0]), n_classes=2)
    with pytest.raises(InvalidInputError, match="'floor' parameter must be a number strictly"):
        negative_log_likelihood(posterior, [1], floor=floor)
