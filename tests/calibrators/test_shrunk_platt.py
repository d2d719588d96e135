"""Shrunk Platt scaling: Platt's line with many points, nearly no change with few."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from miscalibrated import GRID, halved_logits, scored
from scipy.special import expit, logit

from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration import Platt, ShrunkPlatt
from nearsure.errors import InvalidInputError


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
