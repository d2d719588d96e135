import math
from collections.abc import Callable
from functools import partial
from inspect import signature

import numpy as np
import pytest
from dense_posterior import posterior_of, random_dense
from scipy.stats import binom

from nearsure import metrics
from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.comparison import compare_rules
from nearsure.errors import InvalidInputError
from nearsure.metrics import (
    Interval,
    accuracy,
    bootstrap_interval,
    brier_score,
    debiased_calibration_error,
    error_detection_auroc,
    expected_calibration_error,
    negative_log_likelihood,
    row_brier_scores,
)
from nearsure.metrics.bootstrap import traits_of
from nearsure.report import gallery_report, query_report


def overconfident(seed: int, n: int) -> tuple[FloatArray, BoolArray]:
    """Draw rows whose true ECE is 0.1."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.4, 1.0, size=n)
    return confidence, rng.random(n) < confidence - 0.1


def coverage(
    metric: Callable[..., float], truth: float, draw: Callable[[int], tuple[AnyArray, ...]]
) -> float:
    """Return how many of 160 intervals hold the truth; the standard error is 0.017 at 0.95."""
    resampling = np.random.default_rng(2**20)  # not the streams that draw the data
    intervals = [
        bootstrap_interval(metric, *draw(seed), seed=resampling, n_resamples=200)
        for seed in range(160)
    ]
    return sum(interval.low <= truth <= interval.high for interval in intervals) / 160


def test_the_interval_of_the_accuracy_is_that_of_the_binomial() -> None:
    # A resampled accuracy is binomial around the observed one: its quantiles are known.
    interval = bootstrap_interval(
        accuracy, np.arange(400) < 300, seed=0, n_resamples=20_000, level=0.9
    )
    assert interval.estimate == 0.75
    assert interval.low == pytest.approx(1.5 - binom.ppf(0.95, 400, 0.75) / 400, abs=0.003)
    assert interval.high == pytest.approx(1.5 - binom.ppf(0.05, 400, 0.75) / 400, abs=0.003)
    assert interval.level == 0.9


def test_accuracy_is_covered_at_its_level() -> None:
    def draw(seed: int) -> tuple[BoolArray]:
        return (np.random.default_rng(seed).random(250) < 0.7,)

    assert 0.92 <= coverage(accuracy, 0.7, draw) <= 0.98


@pytest.mark.parametrize("metric", [expected_calibration_error, debiased_calibration_error])
def test_the_true_calibration_error_is_covered(metric: Callable[..., float]) -> None:
    assert 0.91 <= coverage(metric, 0.1, lambda seed: overconfident(seed, 2000)) <= 0.98


@pytest.mark.parametrize("metric", [expected_calibration_error, debiased_calibration_error])
def test_the_interval_turns_the_resamples_around_the_plug_in(
    metric: Callable[..., float],
) -> None:
    confidence, correct = overconfident(0, 150)
    rng = np.random.default_rng(9)
    resampled = []
    for _ in range(99):
        rows = rng.integers(0, 150, size=150)
        resampled.append(metric(confidence[rows], correct[rows]))
    resampled.sort()
    truth_of_resamples = expected_calibration_error(confidence, correct)
    estimate = metric(confidence, correct)
    interval = bootstrap_interval(
        metric, confidence, correct, seed=9, n_resamples=99, level=0.9, bounds=(-9, 9)
    )
    assert interval.low == pytest.approx(estimate - (resampled[94] - truth_of_resamples))
    assert interval.high == pytest.approx(estimate - (resampled[4] - truth_of_resamples))


def test_the_interval_takes_the_upward_bias_off() -> None:
    # Of a calibrated forecaster all resampled ECEs tend to lie above the observed ECE, which lies
    # above the truth; the interval turns down where a percentile interval would turn up.
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.4, 1.0, size=500)
    correct = rng.random(500) < confidence
    interval = bootstrap_interval(expected_calibration_error, confidence, correct, seed=0)
    middle = (interval.low + interval.high) / 2
    assert 0.0 <= middle < interval.estimate


@pytest.mark.parametrize(
    ("metric", "low", "high"),
    [
        (metrics.accuracy, 0, 1),
        (metrics.expected_calibration_error, 0, 1),
        (metrics.maximum_calibration_error, 0, 1),
        (metrics.debiased_calibration_error, -1, 1),
        (partial(metrics.calibration_floor, seed=0, n_simulations=5), 0, 1),
        (metrics.area_under_risk_coverage, 0, 1),
        (metrics.error_detection_auroc, 0, 1),
        (partial(metrics.classwise_calibration_error, n_bins=5), 0, 1),
        (metrics.brier_score, 0, 2),
        (partial(partial(metrics.negative_log_likelihood, floor=0.01)), 0, math.inf),
    ],
)
def test_every_metric_has_an_interval_in_one_call(
    metric: Callable[..., float], low: float, high: float
) -> None:
    rng = np.random.default_rng(1)
    posterior = posterior_of(random_dense(rng, n=80, n_classes=3, k=10))
    labels = rng.integers(0, 3, size=80)
    correct = posterior.labels == labels
    data = {
        "accuracy": (correct,),
        "calibration_floor": (posterior.confidence,),
        "classwise_calibration_error": (posterior, labels),
        "brier_score": (posterior, labels),
        "negative_log_likelihood": (posterior, labels),
    }
    function = metric
    while isinstance(function, partial):
        function = function.func
    arguments = data.get(function.__name__, (posterior.confidence, correct))
    interval = bootstrap_interval(metric, *arguments, seed=0, n_resamples=60)
    assert interval.estimate == metric(*arguments)
    assert low <= interval.low < interval.high <= high
    assert interval.n_undefined == 0
    assert (traits_of(metric).low, traits_of(metric).high) == (low, high)


def test_a_posterior_metric_and_its_row_scores_have_the_same_interval() -> None:
    rng = np.random.default_rng(2)
    posterior = posterior_of(random_dense(rng, n=70, n_classes=4, k=7))
    labels = rng.integers(0, 4, size=70)
    from_posterior = bootstrap_interval(brier_score, posterior, labels, seed=3, n_resamples=50)
    from_rows = bootstrap_interval(
        np.mean, row_brier_scores(posterior, labels), seed=3, n_resamples=50, bounds=(0, 2)
    )
    assert from_posterior.low == pytest.approx(from_rows.low)
    assert from_posterior.high == pytest.approx(from_rows.high)


def test_rows_of_all_arguments_are_drawn_together() -> None:
    def spread_of_sum(one: AnyArray, other: AnyArray) -> float:
        return float(np.ptp(one + other))

    rising = np.arange(50.0)
    interval = bootstrap_interval(spread_of_sum, rising, rising[::-1], seed=0, n_resamples=50)
    assert (interval.low, interval.high) == (0.0, 0.0)


def test_options_reach_the_metric_and_its_plug_in() -> None:
    confidence, correct = overconfident(0, 200)
    metric = partial(debiased_calibration_error, n_bins=3, binning="mass")
    plug_in = traits_of(metric).plug_in
    assert plug_in(confidence, correct) == expected_calibration_error(
        confidence, correct, n_bins=3, binning="mass"
    )


def test_the_same_seed_gives_the_same_interval() -> None:
    data = overconfident(1, 100)
    one = bootstrap_interval(expected_calibration_error, *data, seed=5, n_resamples=30)
    generator = np.random.default_rng(5)
    assert one == bootstrap_interval(
        expected_calibration_error, *data, seed=generator, n_resamples=30
    )
    assert one != bootstrap_interval(expected_calibration_error, *data, seed=6, n_resamples=30)


def test_the_interval_is_clipped_to_the_range() -> None:
    nearly_all = np.arange(200) > 0
    clipped = bootstrap_interval(accuracy, nearly_all, seed=0)
    free = bootstrap_interval(accuracy, nearly_all, seed=0, bounds=(-math.inf, math.inf))
    assert clipped.high == 1.0
    assert clipped.low == free.low
    tight = bootstrap_interval(accuracy, np.arange(10) > 4, seed=0, bounds=(0.4, 0.6))
    assert (tight.low, tight.high) == (0.4, 0.6)


def test_few_undefined_resamples_are_counted_and_left_out() -> None:
    confidence = np.linspace(0.0, 1.0, 100)
    correct = np.arange(100) >= 5  # a resample is without any error in 0.6 % of the cases
    interval = bootstrap_interval(error_detection_auroc, confidence, correct, seed=0)
    assert 0 < interval.n_undefined < 25
    assert interval.estimate == interval.low == interval.high == 1.0


def test_many_undefined_resamples_leave_no_interval() -> None:
    confidence = np.linspace(0.0, 1.0, 100)
    interval = bootstrap_interval(error_detection_auroc, confidence, confidence > 0.005, seed=0)
    assert interval.estimate == 1.0
    assert interval.n_undefined > 300
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


def test_an_undefined_estimate_has_no_interval() -> None:
    interval = bootstrap_interval(
        error_detection_auroc, [0.5, 0.6], [True, True], seed=0, n_resamples=10
    )
    assert math.isnan(interval.estimate)
    assert math.isnan(interval.low)
    assert interval.n_undefined == 10


def test_an_infinite_estimate_has_an_infinite_interval() -> None:
    posterior = posterior_of(np.array([[1.0, 0.0], [0.5, 0.5]]))
    interval = bootstrap_interval(negative_log_likelihood, posterior, [1, 0], seed=0)
    assert (interval.estimate, interval.low, interval.high) == (math.inf,) * 3


def test_infinite_resamples_of_a_finite_estimate_give_an_open_end() -> None:
    def odds(values: AnyArray) -> float:
        return math.inf if values.all() else float(values.mean() / (1 - values.mean()))

    interval = bootstrap_interval(odds, np.arange(4) > 0, seed=0)
    assert interval.low == -math.inf
    assert math.isfinite(interval.high)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "must have data to resample"),
        (([],), {}, "must have at least one row"),
        ((3,), {}, "bind options with functools.partial"),
        (([1, 0], [1]), {}, r"'data\[0\]' and 'data\[1\]' parameters must have the same number"),
        (([1, 0],), {"level": 95}, "'level' parameter must be a number strictly between 0 and 1"),
        (([1, 0],), {"n_resamples": 0}, "'n_resamples' parameter must be an integer of at least"),
        (([1, 0],), {"seed": None}, "'seed' parameter must be an int"),
        (([1, 0],), {"seed": -1}, "'seed' parameter must be an int"),
        (([1, 0],), {"bounds": (1, 0)}, "'bounds' parameter must be a low and a high end"),
        (([1, 0],), {"bounds": (math.nan, 1)}, "'bounds' parameter must be a low and a high end"),
    ],
)
def test_bad_arguments_are_named(
    arguments: tuple[object, ...], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        bootstrap_interval(accuracy, *arguments, **{"seed": 0, **options})  # type: ignore[arg-type]


def test_an_interval_checks_itself() -> None:
    with pytest.raises(InvalidInputError, match="must not be above its high end"):
        Interval(0.5, 0.6, 0.4, 0.95)


def test_by_default_there_are_1000_resamples_and_19_of_20_are_covered() -> None:
    values = np.random.default_rng(8).random(40)
    interval = bootstrap_interval(np.mean, values, seed=0)
    assert interval.level == 0.95
    assert interval == bootstrap_interval(np.mean, values, seed=0, n_resamples=1000, level=0.95)
    assert interval != bootstrap_interval(np.mean, values, seed=0, n_resamples=900, level=0.95)


@pytest.mark.parametrize(
    "resamples", [bootstrap_interval, compare_rules, query_report, gallery_report]
)
def test_whatever_has_intervals_draws_1000_resamples_by_default(
    resamples: Callable[..., object],
) -> None:
    assert signature(resamples).parameters["n_resamples"].default == 1000
