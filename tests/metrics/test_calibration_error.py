"""Calibration errors and the bins beneath them."""

import math
import tracemalloc

import calibration
import numpy as np
import pytest
from calibration.utils import get_equal_bins, get_equal_prob_bins
from dense_posterior import posterior_of, random_dense
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from nearsure.arrays import BoolArray, FloatArray
from nearsure.errors import InvalidInputError
from nearsure.metrics import (
    Binning,
    Bins,
    accuracy,
    bin_by_confidence,
    calibration_error,
    calibration_floor,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from nearsure.posterior import Posterior

# Expected, maximum and debiased calibration error, and the floor under them.


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


@pytest.fixture
def scored() -> tuple[FloatArray, BoolArray]:
    rng = np.random.default_rng(3)
    confidence = rng.beta(3, 1, size=777)
    return confidence, rng.random(777) < confidence**2


def test_equal_width_is_the_loop_over_the_bins(scored: tuple[FloatArray, BoolArray]) -> None:
    confidence, correct = scored
    bins = bin_by_confidence(confidence, correct, n_bins=15)
    assert len(bins) == 15
    assert bins.edges.tolist() == [i / 15 for i in range(16)]
    for i in range(15):
        members = [
            j
            for j, value in enumerate(confidence)
            if i / 15 <= value < (i + 1) / 15 or (i == 14 and value == 1.0)
        ]
        assert bins.counts[i] == len(members)
        if members:
            assert bins.mean_confidence[i] == pytest.approx(np.mean(confidence[members]))
            assert bins.accuracy[i] == pytest.approx(np.mean(correct[members]))
            assert bins.gap[i] == pytest.approx(
                np.mean(confidence[members]) - np.mean(correct[members])
            )
        else:
            assert np.isnan(bins.mean_confidence[i])
            assert np.isnan(bins.accuracy[i])
    assert bins.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_off_the_edges_the_bins_are_those_of_scikit_learn(
    scored: tuple[FloatArray, BoolArray], strategy: str
) -> None:
    confidence, correct = scored[0][:760], scored[1][:760]  # 19 rows in each of 40 quantiles
    share, mean = calibration_curve(correct, confidence, n_bins=40, strategy=strategy)
    binning: Binning = "width" if strategy == "uniform" else "mass"
    bins = bin_by_confidence(confidence, correct, n_bins=40, binning=binning)
    occupied = bins.counts > 0
    np.testing.assert_allclose(bins.accuracy[occupied], share)
    np.testing.assert_allclose(bins.mean_confidence[occupied], mean)


@given(st.integers(1, 60), st.data())
def test_a_share_of_votes_on_an_edge_opens_the_upper_bin(n_bins: int, data: st.DataObject) -> None:
    edge = data.draw(st.integers(0, n_bins))
    neighbours = n_bins * data.draw(st.integers(1, 7))
    votes = edge * (neighbours // n_bins)
    as_share = votes / neighbours
    as_sum = min(float(np.sum(np.full(votes, 1.0 / neighbours))), 1.0)
    as_float32 = float(np.float32(as_share))
    for confidence in (as_share, as_sum, as_float32):
        counts = bin_by_confidence([confidence], [1], n_bins=n_bins).counts
        assert int(counts.argmax()) == min(edge, n_bins - 1), confidence


def test_values_clearly_beside_an_edge_stay_on_their_side() -> None:
    for i in range(1, 15):
        below, above = i / 15 - 1e-6, i / 15 + 1e-6
        assert bin_by_confidence([below], [1]).counts.argmax() == i - 1
        assert bin_by_confidence([above], [1]).counts.argmax() == i


def test_zero_and_one_are_in_the_first_and_the_last_bin() -> None:
    bins = bin_by_confidence([0.0, 1.0], [0, 1], n_bins=15)
    assert bins.counts.tolist() == [1] + [0] * 13 + [1]
    assert bins.edges[0] == 0.0
    assert bins.edges[-1] == 1.0


def test_equal_mass_is_array_split_of_the_sorted_rows(
    scored: tuple[FloatArray, BoolArray],
) -> None:
    confidence, correct = scored
    order = np.argsort(confidence)
    bins = bin_by_confidence(confidence, correct, n_bins=10, binning="mass")
    parts = np.array_split(order, 10)
    assert bins.counts.tolist() == [len(part) for part in parts]
    np.testing.assert_allclose(bins.accuracy, [correct[part].mean() for part in parts])
    np.testing.assert_allclose(bins.mean_confidence, [confidence[part].mean() for part in parts])


def test_equal_mass_keeps_ties_in_the_bin_of_the_first_of_them() -> None:
    confidence = [0.2, 0.5, 0.5, 0.5, 0.5, 0.9]  # thirds would cut the ties twice
    bins = bin_by_confidence(confidence, [0, 1, 0, 1, 0, 1], n_bins=3, binning="mass")
    assert bins.counts.tolist() == [5, 1]
    assert bins.edges.tolist() == [0.0, 0.9, 1.0]


def test_equal_mass_of_fewer_rows_than_bins_has_one_row_in_each() -> None:
    bins = bin_by_confidence([0.3, 0.1, 0.2], [1, 0, 1], n_bins=15, binning="mass")
    assert bins.counts.tolist() == [1, 1, 1]
    assert bins.mean_confidence.tolist() == [0.1, 0.2, 0.3]


@given(
    st.lists(
        st.tuples(st.sampled_from([i / 20 for i in range(21)]), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(BINNINGS),
    st.integers(1, 17),
    st.randoms(use_true_random=False),
)
def test_the_order_of_rows_does_not_matter_and_every_row_is_binned_once(
    rows: list[tuple[float, bool]], binning: Binning, n_bins: int, random: object
) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one = bin_by_confidence(*zip(*rows, strict=True), n_bins=n_bins, binning=binning)
    other = bin_by_confidence(*zip(*shuffled, strict=True), n_bins=n_bins, binning=binning)
    np.testing.assert_array_equal(one.edges, other.edges)
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_allclose(one.gap, other.gap, atol=1e-15)
    assert one.counts.sum() == len(rows)
    if binning == "mass":
        assert one.counts.min() > 0


def test_bins_check_themselves() -> None:
    with pytest.raises(InvalidInputError, match=r"n_bins \+ 1 ascending edges"):
        Bins(np.array([0.0, 1.0]), np.array([1, 2]), np.array([0.5]), np.array([0.5]))
    with pytest.raises(InvalidInputError, match="ascending"):
        Bins(np.array([1.0, 0.0]), np.array([1]), np.array([0.5]), np.array([0.5]))


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("n_bins", [1, 4, 15, 500])
@pytest.mark.parametrize("k", [3, 15, 1000])
def test_it_is_the_mean_over_the_dense_columns(binning: Binning, n_bins: int, k: int) -> None:
    rng = np.random.default_rng(k)
    dense = random_dense(rng, n=83, n_classes=6, k=k)
    labels = rng.integers(-1, 8, size=83)  # -1, 6 and 7 are classes never seen
    naive = np.mean(
        [
            expected_calibration_error(dense[:, c], labels == c, n_bins=n_bins, binning=binning)
            for c in range(6)
        ]
    )
    ours = classwise_calibration_error(posterior_of(dense), labels, n_bins=n_bins, binning=binning)
    assert ours == pytest.approx(naive, abs=1e-13)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_a_stored_zero_is_no_entry(binning: Binning) -> None:
    sparse = posterior_of(np.array([[0.0, 1.0]] * 4 + [[0.5, 0.5]]))
    stored = Posterior(  # the zero of row 3 is stored, those of rows 0 to 2 are not
        np.array([0, 1, 2, 3, 5, 7]),
        np.array([1, 1, 1, 1, 0, 0, 1]),
        np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.5, 0.5]),
        n_classes=2,
    )
    for labels in ([1, 1, 1, 0, 1], [0, 0, 0, 1, 0], [1, 5, 0, 0, 0]):
        assert classwise_calibration_error(
            stored, labels, n_bins=2, binning=binning
        ) == classwise_calibration_error(sparse, labels, n_bins=2, binning=binning)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_relabelling_the_classes_changes_nothing(binning: Binning) -> None:
    rng = np.random.default_rng(0)
    dense = random_dense(rng, n=60, n_classes=5, k=20)
    labels = rng.integers(0, 5, size=60)
    names = rng.permutation(5)
    relabelled = np.empty_like(dense)
    relabelled[:, names] = dense
    before = classwise_calibration_error(posterior_of(dense), labels, binning=binning)
    after = classwise_calibration_error(posterior_of(relabelled), names[labels], binning=binning)
    assert before == pytest.approx(after, abs=1e-14)
    assert before > 0.01


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_a_hundred_thousand_classes_fit(binning: Binning) -> None:
    # A dense matrix would take 16 GB. Every row gives 1/2 to its true class and 1/2 to the next,
    # so each class has two rows at 1/2, and is the true class of one of them: no error.
    n = n_classes = 100_000
    rows = np.arange(n)
    posterior = Posterior(
        2 * np.arange(n + 1),
        np.column_stack([rows, (rows + 1) % n_classes]).ravel(),
        np.full(2 * n, 0.5),
        n_classes,
    )
    assert classwise_calibration_error(posterior, rows, binning=binning) == 0.0
    # With every label wrong, each class has 1 too much at 1/2 and 1 too few at 0.
    wrong = classwise_calibration_error(posterior, (rows + 2) % n_classes, binning=binning)
    assert wrong == pytest.approx(2 / n)


def test_without_classes_there_is_no_mean() -> None:
    empty = Posterior(np.array([0, 0]), np.array([], np.int64), np.array([]), 0)
    with pytest.raises(InvalidInputError, match="at least one class"):
        classwise_calibration_error(empty, [0])
