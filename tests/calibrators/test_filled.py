"""Dense rows of probabilities: the right sum, the right top, nothing invented."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsure.arrays import FloatArray
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score, to_dense, with_confidence


def one_row(codes: list[int], probabilities: list[float], n_classes: int) -> Posterior:
    return Posterior(np.array([0, len(codes)]), np.array(codes), np.array(probabilities), n_classes)


def filled_row(
    codes: list[int], probabilities: list[float], n_classes: int, total: float = 1.0
) -> list[float]:
    posterior = one_row(codes, probabilities, n_classes)
    row: list[float] = to_dense(posterior, np.array([total]))[0].tolist()
    return row


def test_absent_classes_share_the_rest_evenly() -> None:
    np.testing.assert_allclose(
        filled_row([3, 0], [0.6, 0.2], 6), [0.2, 0.05, 0.05, 0.6, 0.05, 0.05]
    )
    np.testing.assert_allclose(filled_row([1], [0.3], 3, total=0.5), [0.1, 0.3, 0.1])


def test_what_absent_classes_cannot_take_goes_to_those_below_the_top() -> None:
    """The absent class ends just below 0.4; the 0.1 that is left goes where there is room."""
    row = filled_row([2, 1], [0.4, 0.1], 3)
    np.testing.assert_allclose(row, [0.4, 0.2, 0.4], atol=1e-9)
    assert row[2] > row[0]


def test_without_an_absent_class_the_others_take_the_rest() -> None:
    np.testing.assert_allclose(
        filled_row([0, 1, 2], [0.5, 0.2, 0.1], 3), [0.5, 0.285714, 0.214286], atol=1e-6
    )


def test_one_class_of_one() -> None:
    assert filled_row([0], [1.0], 1) == [1.0]
    assert filled_row([0], [0.25], 1, total=0.25) == [0.25]


@pytest.mark.parametrize("total", [1.0, 0.3])
def test_even_chances_stay_even(total: float) -> None:
    """The lowest top that there can be: every class has the same."""
    row = filled_row([2], [total / 4], 4, total)
    np.testing.assert_allclose(row, [total / 4] * 4, rtol=1e-9)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(1, 6), k=st.integers(1, 9))
def test_a_row_that_lacks_nothing_is_left_alone(seed: int, n_classes: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    neighbors = Neighbors(np.sort(rng.random((8, k)), axis=1), rng.integers(0, n_classes, (8, k)))
    posterior = score(neighbors, temperature=0.3, n_classes=n_classes)
    dense = posterior.to_csr().toarray()
    np.testing.assert_allclose(to_dense(posterior, np.ones(8)), dense, rtol=0, atol=1e-15)
    scaled = Posterior(posterior.indptr, posterior.codes, posterior.probabilities * 0.25, n_classes)
    np.testing.assert_allclose(to_dense(scaled, np.full(8, 0.25)), 0.25 * dense, rtol=0, atol=1e-15)


def random_rows(seed: int, n_classes: int) -> tuple[Posterior, FloatArray]:
    """Rows of any sum, whose top has at least its total / n_classes."""
    rng = np.random.default_rng(seed)
    codes, probabilities, lengths = [], [], []
    totals = np.where(rng.random(12) < 0.5, 1.0, rng.random(12))
    for total in totals.tolist():
        n_present = int(rng.integers(1, n_classes + 1))
        shares = np.sort(rng.dirichlet(np.full(n_present, 0.5)))[::-1] * rng.random() ** 0.5
        least = 1.0 / n_classes
        top = max(float(shares[0]), least * (1.0 + (rng.random() < 0.8) * 1e-9))
        others = np.minimum(shares[1:], top)
        if others.sum() > 0:
            others *= min(1.0, max(0.0, 1.0 - top) / others.sum())
        codes.append(rng.permutation(n_classes)[:n_present])
        probabilities.append(total * np.append(min(top, 1.0), others))
        lengths.append(n_present)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return (
        Posterior(indptr, np.concatenate(codes), np.concatenate(probabilities), n_classes),
        totals,
    )


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(1, 7))
def test_rows_sum_to_their_totals_and_no_class_rises_above_the_top(
    seed: int, n_classes: int
) -> None:
    posterior, totals = random_rows(seed, n_classes)
    dense = to_dense(posterior, totals)
    assert (dense >= 0).all()
    np.testing.assert_allclose(dense.sum(axis=1), totals, rtol=1e-9)
    np.testing.assert_array_equal(dense.max(axis=1), posterior.confidence)
    np.testing.assert_array_equal(
        dense[np.arange(len(totals)), posterior.labels], posterior.confidence
    )
    # Nobody loses anything.
    assert (dense >= posterior.to_csr().toarray()).all()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n_classes=st.integers(2, 7),
    rule=st.sampled_from(["ned", "knn"]),
    known=st.floats(0.0, 1.0),
)
def test_the_most_probable_class_is_the_label_after_any_calibration(
    seed: int, n_classes: int, rule: str, known: float
) -> None:
    """With votes that tie and confidences that a calibrator lowers to the least there can be."""
    rng = np.random.default_rng(seed)
    neighbors = Neighbors(
        np.sort(rng.random((10, 6)).round(1), axis=1), rng.integers(0, n_classes, (10, 6))
    )
    posterior = (
        score(neighbors, temperature=0.2, n_classes=n_classes)
        if rule == "ned"
        else score(neighbors, rule="knn", n_classes=n_classes)
    )
    lowered = np.maximum(posterior.confidence * rng.random(10), (1.0 + 1e-9) / n_classes)
    calibrated = with_confidence(posterior, np.minimum(lowered, 1.0))
    scaled = Posterior(
        calibrated.indptr, calibrated.codes, calibrated.probabilities * known, n_classes
    )
    dense = to_dense(scaled, np.full(10, known))
    np.testing.assert_allclose(dense.sum(axis=1), known, rtol=1e-8, atol=1e-300)
    if known > 1e-9:
        np.testing.assert_array_equal(dense.argmax(axis=1), posterior.labels)
