"""Expected, maximum and debiased calibration error, and the floor under them."""

import math
import tracemalloc

import calibration
import numpy as np
import pytest
from calibration.utils import get_equal_bins, get_equal_prob_bins

from nearsure.arrays import BoolArray, FloatArray
from nearsure.metrics import (
    Binning,
    accuracy,
    calibration_error,
    calibration_floor,
    debiased_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)

BINNINGS: tuple[Binning, ...] = ("width", "mass")
SCHEMES = {"width": get_equal_prob_bins, "mass": get_equal_bins}


def forecaster(seed: int, n: int, *, overconfidence: float = 0.0) -> tuple[FloatArray, BoolArray]:
    """Draw confidences in [0.4, 1) whose chance of being right is less by a constant."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.4, 1.0, size=n)
    return confidence, rng.random(n) < confidence - overconfidence


def mean_errors(*, overconfidence: float, n: int) -> tuple[float, float]:
    """Return the mean plug-in and debiased error of 300 draws."""
    draws = [forecaster(seed, n, overconfidence=overconfidence) for seed in range(300)]
    plain = np.mean([expected_calibration_error(*draw) for draw in draws])
    debiased = np.mean([debiased_calibration_error(*draw) for draw in draws])
    return float(plain), float(debiased)


def test_accuracy_is_the_share_of_right_rows() -> None:
    assert accuracy([1, 0, 0, 1, 1]) == pytest.approx(3 / 5)
    assert accuracy(np.array([False, False])) == 0.0


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("n_bins", [1, 7, 15])
def test_expected_error_is_that_of_the_calibration_package(binning: Binning, n_bins: int) -> None:
    confidence, correct = forecaster(0, 911, overconfidence=0.07)
    theirs = calibration.lower_bound_scaling_ce(
        confidence,
        correct.astype(int),
        p=1,
        debias=False,
        num_bins=n_bins,
        binning_scheme=SCHEMES[binning],
    )
    ours = expected_calibration_error(confidence, correct, n_bins=n_bins, binning=binning)
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_equal_mass_with_ties_is_that_of_the_calibration_package() -> None:
    rng = np.random.default_rng(5)
    confidence = rng.integers(0, 21, size=500) / 20
    correct = rng.random(500) < 0.6
    theirs = calibration.get_ece_em(confidence, correct.astype(int), num_bins=15)
    ours = expected_calibration_error(confidence, correct, binning="mass")
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_errors_by_hand() -> None:
    # Bins [0, 1/2) and [1/2, 1]: gaps 0.2 - 0 of one row, and 0.8 - 2/3 of three.
    confidence, correct = [0.2, 0.7, 0.8, 0.9], [0, 1, 0, 1]
    expected = expected_calibration_error(confidence, correct, n_bins=2)
    assert expected == pytest.approx(0.25 * 0.2 + 0.75 * (0.8 - 2 / 3))
    assert maximum_calibration_error(confidence, correct, n_bins=2) == pytest.approx(0.2)
    # Too little confidence counts as much as too much.
    assert expected_calibration_error([0.6, 0.6], [1, 1]) == pytest.approx(0.4)
    assert maximum_calibration_error([0.6, 0.6], [1, 1]) == pytest.approx(0.4)


@pytest.mark.parametrize("binning", BINNINGS)
def test_constant_overconfidence_is_the_error(binning: Binning) -> None:
    confidence, correct = forecaster(1, 200_000, overconfidence=0.1)
    assert expected_calibration_error(confidence, correct, binning=binning) == pytest.approx(
        0.1, abs=0.004
    )
    assert maximum_calibration_error(confidence, correct, binning=binning) == pytest.approx(
        0.1, abs=0.03
    )


@pytest.mark.parametrize("binning", BINNINGS)
def test_debiased_error_is_the_mean_of_the_calibration_package(binning: Binning) -> None:
    confidence, correct = forecaster(2, 400, overconfidence=0.03)
    confidence = confidence / 0.6 - 0.4 / 0.6  # over all of [0, 1]: theirs refuses empty bins
    np.random.seed(0)  # noqa: NPY002  theirs draws from the global state
    theirs = [
        calibration.lower_bound_scaling_ce(
            confidence,
            correct.astype(int),
            p=1,
            debias=True,
            num_bins=10,
            binning_scheme=SCHEMES[binning],
        )
        for _ in range(30)
    ]
    ours = debiased_calibration_error(confidence, correct, n_bins=10, binning=binning)
    monte_carlo_error = np.std(theirs) / math.sqrt(len(theirs))
    assert monte_carlo_error < 2e-4
    assert ours == pytest.approx(np.mean(theirs), abs=4 * monte_carlo_error)


def test_debiased_error_of_one_bin_by_numerical_integration() -> None:
    confidence, correct = [0.55] * 40, [1] * 20 + [0] * 20
    mu, sigma = 0.05, math.sqrt(0.25 / 40)
    grid = np.linspace(mu - 10 * sigma, mu + 10 * sigma, 400_001)
    density = np.exp(-(((grid - mu) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
    expected_gap = np.trapezoid(np.abs(grid) * density, grid)
    assert debiased_calibration_error(confidence, correct) == pytest.approx(
        2 * mu - expected_gap, abs=1e-9
    )


def test_debiased_error_leaves_bins_without_scatter_alone() -> None:
    confidence, correct = [0.9, 0.9, 0.1], [1, 1, 0]
    assert debiased_calibration_error(confidence, correct) == pytest.approx(0.1)


def test_debiasing_takes_off_most_of_the_bias_of_a_small_error() -> None:
    plain, debiased = mean_errors(overconfidence=0.02, n=1500)
    assert plain - 0.02 > 0.01
    assert abs(debiased - 0.02) < 0.4 * (plain - 0.02)


def test_debiasing_takes_off_a_known_share_of_the_bias_of_a_calibrated_one() -> None:
    # E|N(0, s^2)| grows with s, and debiasing doubles the variance once: 2 - sqrt(2) is left.
    plain, debiased = mean_errors(overconfidence=0.0, n=1500)
    assert plain > 0.02
    assert debiased / plain == pytest.approx(2 - math.sqrt(2), abs=0.03)


def test_debiased_error_of_many_calibrated_rows_vanishes() -> None:
    assert abs(debiased_calibration_error(*forecaster(9, 200_000))) < 0.002


@pytest.mark.parametrize("binning", BINNINGS)
def test_floor_is_the_mean_error_of_a_calibrated_forecaster(binning: Binning) -> None:
    confidence, _ = forecaster(3, 600)
    rng = np.random.default_rng(4)
    errors = [
        expected_calibration_error(confidence, rng.random(600) < confidence, binning=binning)
        for _ in range(400)
    ]
    expected_floor = calibration_floor(confidence, seed=0, n_simulations=2000, binning=binning)
    assert expected_floor > 0.03
    assert expected_floor == pytest.approx(np.mean(errors), abs=float(4 * np.std(errors) / 20))


def test_floor_of_one_bin_is_the_mean_deviation_of_a_binomial() -> None:
    n, p = 12, 0.3
    exact = sum(
        math.comb(n, hits) * p**hits * (1 - p) ** (n - hits) * abs(hits / n - p)
        for hits in range(n + 1)
    )
    simulated = calibration_floor([p] * n, seed=1, n_simulations=40_000)
    assert simulated == pytest.approx(exact, abs=0.002)


def test_floor_of_certain_forecasts_is_zero() -> None:
    assert calibration_floor([0.0, 1.0, 1.0], seed=0) == 0.0


def test_floor_depends_on_the_seed_but_not_on_row_order_or_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confidence, _ = forecaster(6, 101)
    value = calibration_floor(confidence, seed=7, n_simulations=50)
    assert value == calibration_floor(confidence[::-1], seed=7, n_simulations=50)
    assert value != calibration_floor(confidence, seed=8, n_simulations=50)
    monkeypatch.setattr(calibration_error, "MAX_DRAWS", 303)
    assert value == pytest.approx(calibration_floor(confidence, seed=7, n_simulations=50))


def test_floor_of_many_rows_takes_little_memory() -> None:
    confidence, _ = forecaster(6, 20_000)
    tracemalloc.start()
    try:
        calibration_floor(confidence, seed=0, n_simulations=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50e6  # all draws at once would be 160 MB
