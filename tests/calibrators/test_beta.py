"""Beta calibration: the likeliest ascending curve of its family."""

import numpy as np
import pytest
from miscalibrated import GRID, scored, votes
from scipy.optimize import minimize
from scipy.stats import beta as beta_distribution
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration import Beta, Platt
from nearsure.errors import InvalidInputError


def columns_of(confidence: FloatArray) -> FloatArray:
    p = np.clip(confidence, 1e-6, 1 - 1e-6)
    return np.column_stack([np.log(p), -np.log(1 - p)])


def loss_of(curve: FloatArray, confidence: FloatArray, correct: BoolArray) -> float:
    logits = columns_of(confidence) @ curve[:2] + curve[2]
    return float(np.logaddexp(0, np.where(correct, -logits, logits)).sum())


def bounded_best(confidence: FloatArray, correct: BoolArray) -> float:
    """The least loss with a, b >= 0, by a search that knows nothing of columns to drop."""
    starts = ([1.0, 1.0, 0.0], [0.1, 3.0, 1.0], [3.0, 0.1, -1.0])
    return min(
        float(
            minimize(
                loss_of,
                start,
                args=(confidence, correct),
                method="L-BFGS-B",
                bounds=[(0, None), (0, None), (None, None)],
                options={"ftol": 1e-14, "gtol": 1e-8},
            ).fun
        )
        for start in starts
    )


def test_beta_is_logistic_regression_on_two_logarithms() -> None:
    rng = np.random.default_rng(3)
    confidence = rng.beta(2, 2, size=3000)
    truth = Beta(0.6, 1.7, 0.4)
    correct = rng.random(3000) < truth(confidence)
    reference = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cg")
    reference.fit(columns_of(confidence), correct)
    fitted = Beta.fit(confidence, correct)
    np.testing.assert_allclose([fitted.a, fitted.b], reference.coef_[0], rtol=1e-4)
    assert fitted.c == pytest.approx(reference.intercept_[0], rel=1e-4)
    # Not far from the truth either: standard errors are about 0.1.
    np.testing.assert_allclose([fitted.a, fitted.b, fitted.c], [0.6, 1.7, 0.4], atol=0.4)


def test_confidences_of_beta_distributions_give_the_curve_of_the_paper() -> None:
    """With Beta(a1, b1) of right and Beta(a0, b0) of wrong, a = a1 - a0 and b = b0 - b1."""
    rng = np.random.default_rng(0)
    n = 100_000
    right, wrong = beta_distribution(5, 1.5), beta_distribution(3, 2.5)
    confidence = np.concatenate(
        [right.rvs(size=2 * n, random_state=rng), wrong.rvs(size=n, random_state=rng)]
    )
    fitted = Beta.fit(confidence, np.arange(3 * n) < 2 * n)
    np.testing.assert_allclose([fitted.a, fitted.b], [2, 1], atol=0.1)
    odds = 2 * right.pdf(GRID[1:-1]) / wrong.pdf(GRID[1:-1])
    np.testing.assert_allclose(fitted(GRID[1:-1]), odds / (1 + odds), atol=0.01)


@pytest.mark.parametrize("power", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_ascending_curve_is_likelier(
    power: float,
    flipped: bool,  # noqa: FBT001
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    confidence = np.where(rng.random(200) < 0.1, 1.0, rng.beta(3, 2, size=200))
    chance = confidence**power
    correct = rng.random(200) < (1 - chance if flipped else chance)
    fitted = Beta.fit(confidence, correct)
    answers = fitted(confidence)
    loss = -float(np.log(np.where(correct, answers, 1 - answers)).sum())
    assert loss <= bounded_best(confidence, correct) + 1e-6
    assert fitted.constant is not None or max(fitted.a, fitted.b) > 0


@pytest.mark.parametrize(("kept", "dropped"), [("a", "b"), ("b", "a")])
def test_the_column_that_would_descend_is_dropped_and_the_other_fitted_alone(
    kept: str, dropped: str
) -> None:
    rng = np.random.default_rng(0)
    confidence = rng.beta(2, 2, size=4000)
    column = columns_of(confidence)[:, 0 if kept == "a" else 1]
    other = columns_of(confidence)[:, 1 if kept == "a" else 0]
    correct = rng.random(4000) < 1 / (1 + np.exp(-(2 * column - 0.4 * other)))
    both = LogisticRegression(C=np.inf, max_iter=10_000).fit(np.stack([column, other], 1), correct)
    assert both.coef_[0, 1] < 0 < both.coef_[0, 0]
    alone = LogisticRegression(C=np.inf, tol=1e-10).fit(column[:, None], correct)
    fitted = Beta.fit(confidence, correct)
    assert getattr(fitted, dropped) == 0
    assert getattr(fitted, kept) == pytest.approx(alone.coef_[0, 0], rel=1e-4)
    assert fitted.c == pytest.approx(alone.intercept_[0], rel=1e-3, abs=1e-4)


def test_two_distinct_confidences_give_platts_line() -> None:
    confidence = np.repeat([0.6, 0.9], 10)
    correct = np.array([1] * 5 + [0] * 5 + [1] * 8 + [0] * 2, bool)
    fitted, line = Beta.fit(confidence, correct), Platt.fit(confidence, correct)
    assert fitted.a == fitted.b == line.slope
    np.testing.assert_allclose(fitted(GRID), line(GRID), rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted([0.6, 0.9]), [0.5, 0.8], rtol=0, atol=1e-9)


@pytest.mark.parametrize("confidence", [[0.6, 0.9], [0.6, 0.7, 0.8, 0.9]])
def test_a_rule_that_is_the_more_wrong_the_surer_it_is_gets_the_share_that_is_right(
    confidence: list[float],
) -> None:
    correct = np.array(confidence) < 0.75
    assert Beta.fit(confidence, correct) == Beta(0.0, 0.0, 0.0, 0.5)


def test_right_labels_in_the_middle_alone_give_a_finite_ascending_curve() -> None:
    """Without a, b >= 0 a hump would fit them perfectly, with infinite coefficients."""
    confidence = np.array([0.2, 0.3, 0.5, 0.6, 0.7, 0.95])
    correct = np.array([False, False, True, True, True, False])
    fitted = Beta.fit(confidence, correct)
    assert np.isfinite([fitted.a, fitted.b, fitted.c]).all()
    assert (np.diff(fitted(GRID)) >= 0).all()


def test_a_threshold_between_wrong_and_right_gives_finite_numbers() -> None:
    confidence = np.array([0.2, 0.3, 0.6, 0.8, 0.9])
    correct = confidence > 0.5
    fitted = Beta.fit(confidence, correct)
    assert ((fitted(confidence) > 0.5) == correct).all()
    assert fitted(confidence).mean() == pytest.approx((3 * 4 / 5 + 2 * 1 / 4) / 5, abs=1e-9)


@pytest.mark.parametrize("drawn", [scored(), votes()])
def test_the_curve_ascends_and_its_mean_is_the_share_that_is_right(
    drawn: tuple[FloatArray, BoolArray],
) -> None:
    confidence, correct = drawn
    fitted = Beta.fit(confidence, correct)
    assert (np.diff(fitted(GRID)) >= 0).all()
    assert fitted(confidence).mean() == pytest.approx(correct.mean(), abs=1e-9)


def test_descending_coefficients_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'a' and 'b' of Beta must be at least 0.* -0.1"):
        Beta(-0.1, 1.0, 0.0)
