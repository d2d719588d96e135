"""Temperature scaling of posteriors: one exponent by likelihood, and no ranking changed."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from nearsure.arrays import FloatArray, IntArray
from nearsure.calibration import PosteriorTemperature
from nearsure.errors import InvalidInputError
from nearsure.metrics import negative_log_likelihood
from nearsure.posterior import Posterior


def posterior_of(rows: list[dict[int, float]]) -> Posterior:
    """Rows as class code -> probability, best first as they stand."""
    return Posterior(
        np.cumsum([0, *map(len, rows)]),
        np.array([code for row in rows for code in row], np.int64),
        np.array([p for row in rows for p in row.values()], np.float64),
        10,
    )


def drawn(n: int, exponent: float, seed: int = 0) -> tuple[Posterior, IntArray]:
    """Posteriors that are the truth to a power 1 / exponent, and classes drawn from the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(5, 0.5), size=n)
    codes = np.array([rng.choice(5, p=row) for row in truth])
    said = truth ** (1 / exponent)
    said /= said.sum(axis=1, keepdims=True)
    return posterior_of([dict(_best_first(row)) for row in said]), codes


def _best_first(row: FloatArray) -> list[tuple[int, float]]:
    return sorted(enumerate(row.tolist()), key=lambda pair: -pair[1])


def test_probabilities_are_powers_normalized_in_each_row() -> None:
    posterior = posterior_of([{1: 0.5, 0: 0.3, 4: 0.2}, {}, {3: 1.0}, {2: 0.5, 5: 0.5}])
    scaled = PosteriorTemperature(3.0)(posterior)
    powers = np.array([0.5, 0.3, 0.2]) ** 3
    np.testing.assert_allclose(scaled.probabilities[:3], powers / powers.sum(), rtol=1e-14)
    assert scaled.probabilities[3:].tolist() == [1.0, 0.5, 0.5]
    np.testing.assert_array_equal(scaled.codes, posterior.codes)
    np.testing.assert_array_equal(scaled.indptr, posterior.indptr)
    assert PosteriorTemperature(4.0).temperature == 0.25


def test_unassigned_mass_and_zeros_stay() -> None:
    posterior = posterior_of([{0: 0.4, 1: 0.2, 2: 0.0}, {3: 0.0}])
    scaled = PosteriorTemperature(2.0)(posterior)
    np.testing.assert_allclose(scaled.probabilities, [0.48, 0.12, 0, 0], rtol=1e-14)
    half = PosteriorTemperature(0.5)(posterior)
    assert half.probabilities[:3].sum() == pytest.approx(0.6, abs=1e-15)
    assert half.probabilities[2:].tolist() == [0, 0]


@pytest.mark.parametrize("exponent", [1e-3, 0.4, 1.0, 2.5, 1e3])
def test_no_ranking_changes_and_rows_stay_probabilities(exponent: float) -> None:
    posterior, _ = drawn(300, 1.0)
    scaled = PosteriorTemperature(exponent)(posterior)
    np.testing.assert_array_equal(scaled.labels, posterior.labels)
    assert (np.diff(scaled.probabilities.reshape(300, 5)) <= 0).all()
    np.testing.assert_allclose(scaled.probabilities.reshape(300, 5).sum(axis=1), 1, atol=1e-12)
    if exponent == 1.0:
        np.testing.assert_allclose(scaled.probabilities, posterior.probabilities, rtol=1e-13)
    else:
        grew = scaled.confidence >= posterior.confidence
        assert (grew if exponent > 1 else ~grew).all()


def test_tiny_probabilities_do_not_lose_a_row() -> None:
    scaled = PosteriorTemperature(900.0)(posterior_of([{0: 1e-300, 1: 1e-301}]))
    assert scaled.probabilities[0] == pytest.approx(1.1e-300)


@pytest.mark.parametrize("exponent", [0.4, 1.0, 2.5])
def test_a_known_exponent_is_recovered_and_no_other_has_a_greater_likelihood(
    exponent: float,
) -> None:
    posterior, codes = drawn(4000, exponent)
    fitted = PosteriorTemperature.fit(posterior, codes)
    assert fitted.exponent == pytest.approx(exponent, rel=0.1)  # its standard error is about 3%

    def loss(log_exponent: float) -> float:
        scaled = PosteriorTemperature(float(np.exp(log_exponent)))(posterior)
        return negative_log_likelihood(scaled, codes)

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-8})
    assert loss(np.log(fitted.exponent)) <= best.fun + 1e-12
    assert np.log(fitted.exponent) == pytest.approx(best.x, abs=1e-5)
    again = PosteriorTemperature.fit(fitted(posterior), codes)
    assert again.exponent == pytest.approx(1, abs=1e-6)


def test_two_classes_have_a_closed_form() -> None:
    """Three in four right at 0.6: the odds 1.5^a must be 3."""
    posterior = posterior_of([{0: 0.6, 1: 0.4}] * 4)
    fitted = PosteriorTemperature.fit(posterior, [0, 0, 0, 1])
    assert fitted.exponent == pytest.approx(np.log(3) / np.log(1.5), rel=1e-8)
    assert fitted(posterior).confidence == pytest.approx(0.75, abs=1e-8)


def test_points_whose_class_has_probability_0_are_left_out() -> None:
    rows: list[dict[int, float]] = [{0: 0.6, 1: 0.4}] * 4
    missed: list[dict[int, float]] = [{0: 0.9, 1: 0.1}, {0: 1.0, 7: 0.0}, {}]
    fitted = PosteriorTemperature.fit(posterior_of(rows + missed), [0, 0, 0, 1, 5, 7, 2])
    assert fitted == PosteriorTemperature.fit(posterior_of(rows), [0, 0, 0, 1])
    with pytest.raises(InvalidInputError, match="No point's class has a probability above 0"):
        PosteriorTemperature.fit(posterior_of(missed), [5, 7, 2])


def test_other_classes_of_probability_0_change_nothing() -> None:
    posterior, codes = drawn(400, 1.7)
    rows = [
        {int(code): float(p) for code, p in zip(own.codes, own.probabilities, strict=True)}
        for own in (posterior.take(np.array([row])) for row in range(400))
    ]
    with_zeros = posterior_of([row | {7: 0.0, 9: 0.0} for row in rows])
    fitted = PosteriorTemperature.fit(with_zeros, codes)
    assert fitted.exponent == pytest.approx(PosteriorTemperature.fit(posterior, codes).exponent)
    scaled = fitted(with_zeros).probabilities.reshape(400, 7)
    np.testing.assert_array_equal(scaled[:, 5:], 0.0)
    np.testing.assert_allclose(scaled[:, :5].ravel(), fitted(posterior).probabilities, rtol=1e-14)


def test_all_right_takes_the_exponent_nearest_to_1_that_the_data_allow() -> None:
    """Half a unit of log-likelihood from certainty: n log(1 + 1.5^-a) = 1/2."""
    fitted = PosteriorTemperature.fit(posterior_of([{0: 0.6, 1: 0.4}] * 20), np.zeros(20, int))
    assert fitted.exponent == pytest.approx(-np.log(np.expm1(0.5 / 20)) / np.log(1.5), rel=1e-8)
    sure = posterior_of([{0: 0.99, 1: 0.01}] * 20)
    assert PosteriorTemperature.fit(sure, np.zeros(20, int)).exponent == 1  # costs 0.2 only


def test_all_wrong_takes_the_exponent_nearest_to_1_that_the_data_allow() -> None:
    """The limit is an even share, n log 2, but for an exponent of 1e-3 in place of 0."""
    n = 20
    fitted = PosteriorTemperature.fit(posterior_of([{0: 0.9, 1: 0.1}] * n), np.ones(n, int))
    loss = n * np.log1p(9**fitted.exponent)
    assert loss == pytest.approx(n * np.log1p(9**1e-3) + 0.5, abs=1e-8)
    assert 1e-3 < fitted.exponent < 0.1


@pytest.mark.parametrize(
    ("rows", "codes"),
    [
        ([{3: 1.0}, {2: 1.0}], [3, 2]),  # one class only
        ([{0: 0.5, 1: 0.5}], [1]),  # an even share
        ([{0: 0.8, 1: 0.2}], [0]),  # one point: 0.22 from certainty
        ([{}, {3: 0.6}], [1, 3]),
    ],
)
def test_where_the_data_say_nothing_the_posterior_is_left_alone(
    rows: list[dict[int, float]], codes: list[int]
) -> None:
    assert PosteriorTemperature.fit(posterior_of(rows), codes).exponent == 1


def test_it_is_plain_numbers_and_refuses_bad_ones() -> None:
    fitted = PosteriorTemperature(1.5)
    assert fitted.to_dict() == {"name": "posterior_temperature", "exponent": 1.5}
    assert PosteriorTemperature.from_dict(fitted.to_dict()) == fitted
    for exponent in (0.0, -1.0, np.nan, np.inf, "1"):
        with pytest.raises(InvalidInputError, match="'exponent' of PosteriorTemperature must be"):
            PosteriorTemperature(exponent)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"same number of rows\. Got 1 and 2"):
        PosteriorTemperature.fit(posterior_of([{0: 1.0}]), [0, 1])
