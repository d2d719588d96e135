"""What the metrics refuse, and that they leave their arguments alone."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from dense_posterior import posterior_of

from nearsure.errors import InvalidInputError
from nearsure.metrics import (
    accuracy,
    area_under_risk_coverage,
    bin_by_confidence,
    brier_score,
    calibration_floor,
    classwise_calibration_error,
    debiased_calibration_error,
    error_detection_auroc,
    expected_calibration_error,
    maximum_calibration_error,
    negative_log_likelihood,
    risk_coverage_curve,
)

SCORED: list[Callable[..., object]] = [
    bin_by_confidence,
    expected_calibration_error,
    maximum_calibration_error,
    debiased_calibration_error,
    risk_coverage_curve,
    area_under_risk_coverage,
    error_detection_auroc,
]
BINNED: list[Callable[..., object]] = [
    partial(bin_by_confidence, [0.5], [1]),
    partial(expected_calibration_error, [0.5], [1]),
    partial(maximum_calibration_error, [0.5], [1]),
    partial(debiased_calibration_error, [0.5], [1]),
    partial(calibration_floor, [0.5], seed=0),
    partial(classwise_calibration_error, posterior_of(np.array([[0.5, 0.5]])), [0]),
]
OF_POSTERIOR: list[Callable[..., object]] = [
    brier_score,
    negative_log_likelihood,
    classwise_calibration_error,
]


@pytest.mark.parametrize("metric", SCORED)
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 0.6], [1], "'confidence' and 'correct' parameters must have the same .* 2 and 1"),
        ([], [], r"'confidence' parameter must be an array of shape \(n,\) .* shape \(0,\)"),
        ([0.5], [], r"'correct' parameter must be an array of shape \(n,\) .* shape \(0,\)"),
        ([[0.5]], [1], r"'confidence' parameter must be .* Got shape \(1, 1\)"),
        (0.5, [1], r"'confidence' parameter must be .* Got shape \(\)"),
        ([0.5], [[1]], r"'correct' parameter must be .* Got shape \(1, 1\)"),
        ([0.1, math.nan], [1, 0], "numbers in .* Got nan at row 1"),
        ([0.1, 1.0000001], [1, 0], "numbers in .* Got 1.0000001 at row 1"),
        ([-0.1, 1.0], [1, 0], "numbers in .* Got -0.1 at row 0 .* not percentages"),
        (["high"], [1], "must hold numbers in .* type <U4"),
        ([0.5, 0.5], [1, 2], r"'correct' parameter must be boolean, .* Got \[2\]"),
        ([0.5], [math.nan], r"'correct' parameter must be boolean, .* Got \[nan\]"),
        ([0.5], ["yes"], r"'correct' parameter must be boolean, .* Got \['yes'\]"),
    ],
)
def test_bad_scores_are_refused(
    metric: Callable[..., object], confidence: object, correct: object, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        metric(confidence, correct)


@pytest.mark.parametrize("metric", BINNED)
@pytest.mark.parametrize("n_bins", [0, -3, 2.0, "15", True])
def test_bad_numbers_of_bins_are_refused(metric: Callable[..., object], n_bins: object) -> None:
    with pytest.raises(InvalidInputError, match="'n_bins' parameter must be an integer of at"):
        metric(n_bins=n_bins)


@pytest.mark.parametrize("metric", BINNED)
def test_unknown_binnings_are_refused(metric: Callable[..., object]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be 'width' or 'mass'\. Got 'quantile'"):
        metric(binning="quantile")


@pytest.mark.parametrize("metric", OF_POSTERIOR)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0], "'posterior' and 'labels' parameters must have the same number of rows. Got 2 and 1"),
        ([0.0, 1.0], "'labels' parameter must hold integer class codes. .* float64"),
        (["a", "b"], "'labels' parameter must hold integer class codes"),
        ([True, False], "'labels' parameter must hold integer class codes"),
        ([[0], [1]], r"'labels' parameter must be an array of shape \(n,\)"),
    ],
)
def test_bad_labels_are_refused(
    metric: Callable[..., object], labels: object, message: str
) -> None:
    posterior = posterior_of(np.array([[0.5, 0.5], [1.0, 0.0]]))
    with pytest.raises(InvalidInputError, match=message):
        metric(posterior, labels)


def test_bad_accuracy_and_floor_arguments_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'correct' parameter must be boolean"):
        accuracy([0.5])
    with pytest.raises(InvalidInputError, match="'n_simulations' parameter must be an integer"):
        calibration_floor([0.5], seed=0, n_simulations=0)
    with pytest.raises(InvalidInputError, match="'seed' parameter must be an int of at least 0"):
        calibration_floor([0.5], seed="now")  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", SCORED)
def test_arguments_may_be_read_only_and_are_not_changed(metric: Callable[..., object]) -> None:
    confidence = np.array([0.9, 0.1, 0.5])
    correct = np.array([1, 0, 1])
    for array in (confidence, correct):
        array.flags.writeable = False
    metric(confidence, correct)
    assert confidence.tolist() == [0.9, 0.1, 0.5]


@pytest.mark.parametrize("metric", SCORED[1:4])
def test_kinds_of_numbers_do_not_matter(metric: Callable[..., object]) -> None:
    expected = metric([1.0, 0.0, 1.0], [True, False, False])
    assert metric(np.array([1, 0, 1]), np.array([1.0, 0.0, 0.0])) == expected
    assert metric(np.array([1, 0, 1], dtype=np.float32), (1, 0, 0)) == expected
