"""Scores of single predictions."""

import math
from inspect import signature
from itertools import pairwise, permutations

import calibration
import numpy as np
import pytest
from dense_posterior import posterior_of, random_dense
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from nearsure.errors import InvalidInputError
from nearsure.metrics import (
    RiskCoverageCurve,
    area_under_risk_coverage,
    brier_score,
    error_detection_auroc,
    negative_log_likelihood,
    risk_coverage_curve,
    row_brier_scores,
    row_negative_log_likelihoods,
)
from nearsure.posterior import Posterior

# Brier score and negative log-likelihood.


CLASSES = list(range(4))


def test_brier_score_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    dense = random_dense(rng, n=90, n_classes=4, k=10)
    labels = rng.integers(0, 4, size=90)
    if "labels" not in signature(brier_score_loss).parameters:
        pytest.skip("before its version 1.7 scikit-learn has it for two classes only")
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


# Risk and coverage, and the detection of errors.


TIED_ROWS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=6
)


def test_each_point_is_the_risk_of_the_rows_above_the_threshold() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 11, size=200) / 10
    correct = rng.random(200) < confidence
    curve = risk_coverage_curve(confidence, correct)
    assert curve.threshold.tolist() == sorted(set(confidence.tolist()), reverse=True)
    assert len(curve) == 11
    for coverage, risk, threshold in zip(curve.coverage, curve.risk, curve.threshold, strict=True):
        accepted = confidence >= threshold
        assert coverage == pytest.approx(accepted.mean())
        assert risk == pytest.approx((~correct[accepted]).mean())


def test_area_without_ties_is_that_of_the_calibration_package() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.random(300)
    correct = rng.random(300) < confidence
    accuracy_area, _ = calibration.utils.get_selective_stats(confidence, correct)
    assert area_under_risk_coverage(confidence, correct) == pytest.approx(1 - accuracy_area)


@given(TIED_ROWS)
def test_area_is_the_mean_over_all_orders_of_the_ties(rows: list[tuple[float, bool]]) -> None:
    areas = []
    for order in permutations(rows):
        if any(a[0] < b[0] for a, b in pairwise(order)):
            continue
        wrong = np.cumsum([not right for _, right in order])
        areas.append(np.mean(wrong / np.arange(1, len(order) + 1)))
    assert area_under_risk_coverage(*zip(*rows, strict=True)) == pytest.approx(np.mean(areas))


def test_a_constant_confidence_has_the_error_rate_as_area() -> None:
    assert area_under_risk_coverage([0.4] * 10, [1] * 7 + [0] * 3) == pytest.approx(0.3)


def test_a_curve_checks_itself() -> None:
    with pytest.raises(InvalidInputError, match="one coverage, risk and threshold per point"):
        RiskCoverageCurve(np.ones(2), np.ones(2), np.ones(3))


@given(TIED_ROWS)
def test_auroc_is_the_share_of_pairs_in_order(rows: list[tuple[float, bool]]) -> None:
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, right in rows
        for b, other_right in rows
        if right and not other_right
    ]
    area = error_detection_auroc(*zip(*rows, strict=True))
    assert area == pytest.approx(np.mean(pairs)) if pairs else math.isnan(area)


def test_auroc_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    confidence = rng.integers(0, 21, size=5000) / 20
    correct = rng.random(5000) < confidence
    theirs = roc_auc_score(correct, confidence)
    assert error_detection_auroc(confidence, correct) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("outcome", [True, False])
def test_auroc_of_one_outcome_is_nan(outcome: bool) -> None:  # noqa: FBT001
    assert math.isnan(error_detection_auroc([0.2, 0.9], [outcome, outcome]))
