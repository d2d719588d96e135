"""Calibrators that are logistic regressions: Platt, beta, shrunk."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import beta as beta_distribution
from sklearn.linear_model import LogisticRegression

from miscalibrated import GRID, halved_logits, scored, votes
from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration import Beta, Platt, ShrunkPlatt
from nearsure.errors import InvalidInputError

# Platt scaling: the likeliest line on the logit, whatever the data.


def test_platt_is_logistic_regression_on_the_logit() -> None:
    confidence, correct = scored()
    x = np.log(confidence / (1 - confidence))
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x[:, None], correct)
    fitted = Platt.fit(confidence, correct)
    assert fitted.slope == pytest.approx(reference.coef_[0, 0], rel=1e-4)
    assert fitted.intercept == pytest.approx(reference.intercept_[0], rel=1e-4)
    assert fitted(confidence).mean() == pytest.approx(correct.mean(), abs=1e-9)  # as ML has it


def test_platt_has_the_greatest_likelihood_with_certain_confidences_among_them() -> None:
    confidence, correct = scored()
    confidence[:50] = 1.0
    fitted = Platt.fit(confidence, correct)
    x = np.log(np.clip(confidence, 1e-6, 1 - 1e-6) / (1 - np.clip(confidence, 1e-6, 1 - 1e-6)))

    def loss(line: FloatArray) -> float:
        signs = np.where(correct, 1.0, -1.0)
        return float(np.logaddexp(0, -signs * (line[0] * x + line[1])).sum())

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    assert loss(np.array([fitted.slope, fitted.intercept])) <= best.fun + 1e-9


def test_what_is_calibrated_is_left_alone() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(200_000)
    fitted = Platt.fit(confidence, rng.random(200_000) < confidence)
    assert fitted.slope == pytest.approx(1, abs=0.02)
    assert fitted.intercept == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("wrong_first", [True, False])
def test_a_threshold_that_parts_right_from_wrong_gives_a_finite_slope(
    wrong_first: bool,  # noqa: FBT001
) -> None:
    confidence = np.array([0.2, 0.3, 0.6, 0.8, 0.9])
    correct = (confidence > 0.5) == wrong_first
    fitted = Platt.fit(confidence, correct)
    assert np.isfinite([fitted.slope, fitted.intercept]).all()
    assert (fitted.slope > 0) == wrong_first
    assert ((fitted(confidence) > 0.5) == correct).all()
    # Platt's targets: the mean of what it says is the mean of them.
    right, wrong = correct.sum(), (~correct).sum()
    targets = np.where(correct, (right + 1) / (right + 2), 1 / (wrong + 2))
    assert fitted(confidence).mean() == pytest.approx(targets.mean(), abs=1e-9)


def test_confidences_that_differ_by_rounding_alone_are_equal() -> None:
    rng = np.random.default_rng(0)
    correct = np.arange(50) % 5 > 0
    for spread in (1e-16, 1e-14, 1e-11, 1e-8):
        confidence = 0.7 + spread * rng.integers(-2, 3, size=50)
        assert Platt.fit(confidence, correct) == Platt(0.0, 0.0, 0.8)


# Beta calibration: the likeliest ascending curve of its family.


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


# Shrunk Platt scaling: Platt's line with many points, nearly no change with few.


def objective(line: FloatArray, x: FloatArray, correct: BoolArray, counts: FloatArray) -> float:
    """Minus the log-posterior: every point's log loss, and a normal prior about (1, 0)."""
    p = expit(line[0] * x + line[1])
    losses = -np.where(correct, np.log(p), np.log1p(-p))
    return float(counts @ losses + 0.5 * (line[0] - 1) ** 2 + 0.5 * line[1] ** 2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [1, 5, 40])
def test_it_is_the_most_probable_line(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, correct = rng.uniform(0.05, 0.95, n), rng.random(n) < 0.7
    counts = rng.integers(0, 4, n).astype(float)
    x = logit(confidence)
    fitted = ShrunkPlatt.fit(confidence, correct, weights=counts)
    line = np.array([fitted.slope, fitted.intercept])
    slopes = [
        (objective(line + step, x, correct, counts) - objective(line - step, x, correct, counts))
        / 2e-5
        for step in 1e-5 * np.eye(2)
    ]
    # The loss is convex: a point without slope is the minimum, and at the end of the range one
    # that falls outwards is.
    assert abs(slopes[1]) < 1e-4
    assert abs(slopes[0]) < 1e-4 or (fitted.slope == 0.01 and slopes[0] > 0)


def test_with_many_points_it_is_platt() -> None:
    drawn = halved_logits(20_000, seed=0)
    shrunk, platt = ShrunkPlatt.fit(*drawn), Platt.fit(*drawn)
    assert shrunk.slope == pytest.approx(platt.slope, abs=0.002)
    assert shrunk.intercept == pytest.approx(platt.intercept, abs=0.002)
    np.testing.assert_allclose(shrunk(GRID), platt(GRID), atol=0.001)
    apart = [
        np.abs(ShrunkPlatt.fit(*halved_logits(n, seed=1))(GRID) - Platt.fit(*few)(GRID)).max()
        for n in (100, 1000, 10_000)
        for few in [halved_logits(n, seed=1)]
    ]
    assert apart[0] > apart[1] > apart[2]


@pytest.mark.parametrize("n", [1, 3, 10])
@pytest.mark.parametrize("right", [True, False])
def test_few_points_that_are_all_alike_do_not_make_it_certain(
    n: int,
    right: bool,  # noqa: FBT001
) -> None:
    confidence = np.full(n, 0.8)
    answers = ShrunkPlatt.fit(confidence, np.full(n, right))(np.array([0.5, 0.8]))
    assert ((answers > 0.02) & (answers < 0.995)).all()
    moved = answers - [0.5, 0.8]
    assert (moved > 0).all() if right else (moved < 0).all()
    if n == 1:
        assert np.abs(moved).max() < (0.1 if right else 0.35)


def test_no_weight_is_no_change() -> None:
    confidence, correct = scored()
    assert ShrunkPlatt.fit(confidence, correct, weights=np.zeros(len(confidence))) == ShrunkPlatt(
        1.0, 0.0
    )
    np.testing.assert_allclose(ShrunkPlatt(1.0, 0.0)(GRID)[1:-1], GRID[1:-1], rtol=1e-12)


def test_a_weight_is_a_repetition() -> None:
    rng = np.random.default_rng(0)
    confidence, correct = rng.random(30), rng.random(30) < 0.6
    counts = rng.integers(0, 5, 30)
    weighed = ShrunkPlatt.fit(confidence, correct, weights=counts.astype(float))
    repeated = ShrunkPlatt.fit(np.repeat(confidence, counts), np.repeat(correct, counts))
    assert weighed.slope == pytest.approx(repeated.slope, abs=1e-5)
    assert weighed.intercept == pytest.approx(repeated.intercept, abs=1e-5)


def test_the_larger_weights_are_believed() -> None:
    """Points of a class that is rare in the gallery and frequent among queries."""
    confidence = np.full(400, 0.7)
    correct = np.arange(400) < 200
    weights = np.where(correct, 1.8, 0.2)
    assert ShrunkPlatt.fit(confidence, correct, weights=weights)([0.7])[0] == pytest.approx(
        0.9, abs=0.01
    )


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), inverted=st.booleans())
def test_the_order_of_confidences_is_kept(seed: int, n: int, *, inverted: bool) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.random(n).round(2)
    chance = 1 - confidence if inverted else confidence
    fitted = ShrunkPlatt.fit(confidence, rng.random(n) < chance)
    answers = fitted(np.linspace(0.001, 0.999, 300))
    assert (np.diff(answers) > 0).all()
    assert ((fitted([0.0, 1.0]) >= 0) & (fitted([0.0, 1.0]) <= 1)).all()


def test_certain_confidences_can_be_fitted_and_asked() -> None:
    """1NN is always sure: the line goes through the share that is right, as far as it may."""
    correct = np.arange(2000) % 5 > 0
    fitted = ShrunkPlatt.fit(np.ones(2000), correct)
    assert fitted([1.0])[0] == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("weights", [np.ones(2), np.full(3, -1.0), np.full(3, np.nan)])
def test_bad_weights_are_refused(weights: FloatArray) -> None:
    with pytest.raises(InvalidInputError, match="weights must be one number >= 0 for each of the"):
        ShrunkPlatt.fit([0.5, 0.6, 0.7], [True, True, False], weights=weights)


@pytest.mark.parametrize(
    ("slope", "intercept"), [(0.0, 0.0), (-1.0, 0.0), (np.nan, 0), (1, np.inf)]
)
def test_bad_lines_are_refused(slope: float, intercept: float) -> None:
    with pytest.raises(InvalidInputError, match=r"slope must be above 0|must be a finite number"):
        ShrunkPlatt(slope, intercept)
