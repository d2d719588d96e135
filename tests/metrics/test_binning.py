import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from nearsure.arrays import BoolArray, FloatArray
from nearsure.errors import InvalidInputError
from nearsure.metrics import Binning, Bins, bin_by_confidence

BINNINGS: tuple[Binning, ...] = ("width", "mass")


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
