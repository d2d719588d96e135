import numpy as np
import pytest
from dense_posterior import posterior_of, random_dense

from nearsure.errors import InvalidInputError
from nearsure.metrics import Binning, classwise_calibration_error, expected_calibration_error
from nearsure.posterior import Posterior


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
