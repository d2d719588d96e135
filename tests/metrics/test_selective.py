"""Risk and coverage, and the detection of errors."""

import math
from itertools import pairwise, permutations

import calibration
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from nearsure.errors import InvalidInputError
from nearsure.metrics import (
    RiskCoverageCurve,
    area_under_risk_coverage,
    error_detection_auroc,
    risk_coverage_curve,
)

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
