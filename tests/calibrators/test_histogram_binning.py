"""Histogram binning: shares of bins, counted naively."""

import numpy as np
import pytest
from miscalibrated import GRID, scored, votes

from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration import Histogram, find_bin_starts, find_runs
from nearsure.errors import InvalidInputError
from nearsure.metrics import bin_by_confidence


@pytest.mark.parametrize("drawn", [scored(103), votes(103), votes(103, k=3), votes(4)])
@pytest.mark.parametrize("n_bins", [1, 2, 7, 10, 103, 500])
def test_shares_are_those_of_the_equal_mass_bins_of_the_metrics(
    drawn: tuple[FloatArray, BoolArray], n_bins: int
) -> None:
    confidence, correct = drawn
    bins = bin_by_confidence(confidence, correct, n_bins=n_bins, binning="mass")
    fitted = Histogram.fit(confidence, correct, n_bins=n_bins)
    assert fitted.calibrated == tuple(bins.accuracy.tolist())
    starts = find_bin_starts(find_runs(np.sort(confidence)), len(confidence), n_bins)
    np.testing.assert_array_equal(np.diff(starts, append=len(confidence)), bins.counts)
    ends = [*bins.edges[1:-1], np.inf]  # the last bin is closed
    for low, end, share in zip(bins.edges[:-1], ends, fitted.calibrated, strict=True):
        rows = (confidence >= low) & (confidence < end)
        assert rows.any()
        np.testing.assert_array_equal(fitted(confidence[rows]), share)


def test_without_ties_bins_are_slices_of_the_sorted_rows() -> None:
    confidence, correct = scored(60)
    by_confidence = correct[np.argsort(confidence)]
    shares = [float(by_confidence[start : start + 6].mean()) for start in range(0, 60, 6)]
    assert Histogram.fit(confidence, correct).calibrated == pytest.approx(shares, abs=1e-15)


def test_an_edge_is_halfway_so_that_rounding_does_not_change_the_bin() -> None:
    fitted = Histogram.fit([0.2, 0.2, 0.4, 0.4], [0, 0, 1, 1], n_bins=2)
    assert fitted.edges == pytest.approx((0.3,))
    assert fitted([0.0, 0.29, 0.31, np.nextafter(0.4, 0), 1.0]).tolist() == [0, 0, 1, 1, 1]


def test_neighbouring_floats_are_told_apart() -> None:
    low = 0.7
    high = np.nextafter(low, 1)
    fitted = Histogram.fit([low, high], [False, True], n_bins=2)
    assert fitted([low, high]).tolist() == [0, 1]


def test_what_it_says_of_its_own_points_is_calibrated_and_a_second_fit_changes_nothing() -> None:
    confidence, correct = scored()
    fitted = Histogram.fit(confidence, correct, n_bins=5)
    once = fitted(confidence)
    for answer in np.unique(once):
        assert correct[once == answer].mean() == pytest.approx(answer, abs=1e-12)
    np.testing.assert_array_equal(Histogram.fit(once, correct, n_bins=5)(once), once)


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, True])
def test_bad_numbers_of_bins_are_refused(n_bins: int) -> None:
    with pytest.raises(InvalidInputError, match="'n_bins' parameter must be an integer of at"):
        Histogram.fit([0.5], [True], n_bins=n_bins)


def test_edges_that_do_not_ascend_and_missing_answers_are_refused() -> None:
    for edges, answers in (((0.5, 0.4), (0.1, 0.2, 0.3)), ((0.5,), (0.1,)), ((), ())):
        with pytest.raises(InvalidInputError, match="Histogram must have ascending edges and one"):
            Histogram(edges, answers)
    assert Histogram((), (0.25,))(GRID).tolist() == [0.25] * len(GRID)
