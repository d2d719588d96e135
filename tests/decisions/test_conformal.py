"""Conformal fits and prediction sets."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nearsure.arrays import FloatArray, IntArray
from nearsure.decisions import (
    ConformalFit,
    PredictionSets,
    ScoreName,
    fit_conformal,
    prediction_sets,
)
from nearsure.errors import InvalidInputError
from nearsure.posterior import Posterior

# Prediction sets: what is in them, and how often the true class is.


SCORES: list[ScoreName] = ["aps", "lac"]
N_CLASSES = 8


def sparse_posterior(dense: FloatArray, *, n_kept: int) -> Posterior:
    """Keep the `n_kept` best classes of each row and scale them to sum to 1."""
    best = np.argsort(-dense, axis=1, kind="stable")[:, :n_kept]
    kept = np.take_along_axis(dense, best, axis=1)
    return Posterior(
        np.arange(len(dense) + 1) * n_kept,
        best.ravel(),
        np.minimum((kept / kept.sum(axis=1, keepdims=True)).ravel(), 1.0),
        n_classes=dense.shape[1],
    )


def drawn(
    rng: np.random.Generator, n: int, *, n_kept: int, concentration: float = 0.5
) -> tuple[Posterior, IntArray]:
    """Posteriors that are too sure of themselves, with labels drawn from the truth."""
    truth = rng.dirichlet(np.full(N_CLASSES, concentration), size=n)
    codes = (truth.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
    claimed = truth**1.5
    return sparse_posterior(claimed, n_kept=n_kept), np.minimum(codes, N_CLASSES - 1)


def naive_scores(posterior: Posterior, row: int, score: ScoreName) -> dict[int, float]:
    entries = range(posterior.indptr[row], posterior.indptr[row + 1])
    mass, scores = 0.0, {}
    for entry in entries:
        probability = posterior.probabilities[entry]
        scores[int(posterior.codes[entry])] = mass if score == "aps" else 1 - probability
        mass += probability
    return scores


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.6])
def test_sets_are_those_of_the_naive_procedure(score: ScoreName, alpha: float) -> None:
    rng = np.random.default_rng(0)
    points, codes = drawn(rng, 137, n_kept=7)
    queries, _ = drawn(rng, 50, n_kept=5)
    fit = fit_conformal(points, codes, alpha=alpha, score=score)
    true_scores = sorted(
        naive_scores(points, row, score).get(code, math.inf) for row, code in enumerate(codes)
    )
    assert fit.quantile == pytest.approx(true_scores[math.ceil(138 * (1 - alpha)) - 1], abs=1e-15)
    assert fit.n_missed == sum(math.isinf(value) for value in true_scores)
    sets = prediction_sets(queries, fit)
    assert len(sets) == 50
    for row in range(50):
        expected = [
            code
            for rank, (code, value) in enumerate(naive_scores(queries, row, score).items())
            if rank == 0 or value <= fit.quantile
        ]
        assert sets[row].tolist() == expected


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("n_points", "alpha"), [(99, 0.1), (40, 0.2)])
def test_held_out_points_give_the_coverage_asked_for(
    score: ScoreName, n_points: int, alpha: float
) -> None:
    """Between 1 - alpha and 1 - alpha + 1 / (n + 1), on average over 400 draws.

    The mean over a draw's 500 queries scatters by at most 0.07 (beta and binomial, n = 40), that
    over 400 draws by 0.0035: four of these are allowed. The top label is right in less than
    1 - alpha of the queries, and its score never lies above the quantile.
    """
    rng = np.random.default_rng(1)
    coverages = []
    for _ in range(400):
        points, codes = drawn(rng, n_points, n_kept=7)
        queries, true_codes = drawn(rng, 500, n_kept=7)
        sets = prediction_sets(queries, fit_conformal(points, codes, alpha=alpha, score=score))
        coverages.append(sets.contains(true_codes).mean())
        assert (queries.labels == true_codes).mean() < 1 - alpha
    error = np.std(coverages) / np.sqrt(400)
    assert error < 0.0035
    assert 1 - alpha - 4 * error <= np.mean(coverages) <= 1 - alpha + 1 / (n_points + 1) + 4 * error


@pytest.mark.parametrize("score", SCORES)
def test_ties_only_widen_the_sets(score: ScoreName) -> None:
    """Shares of ten votes, of which many sums are equal on paper and not in floating point."""
    rng = np.random.default_rng(2)

    def votes(n: int) -> tuple[Posterior, IntArray]:
        truth = rng.dirichlet(np.full(4, 1.0), size=n)
        codes = (truth.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
        shares = (rng.multinomial(10, truth) + 0.0) / 10
        return sparse_posterior(shares, n_kept=4), np.minimum(codes, 3)

    coverages = []
    for _ in range(300):
        fit = fit_conformal(*votes(60), alpha=0.2, score=score)
        queries, codes = votes(300)
        coverages.append(prediction_sets(queries, fit).contains(codes).mean())
    assert np.mean(coverages) >= 0.8 - 4 * np.std(coverages) / np.sqrt(300)


def test_rounding_of_equal_sums_drops_no_class() -> None:
    assert 0.1 + 0.2 > 0.3
    posterior = Posterior(
        np.array([0, 3]), np.array([0, 1, 2]), np.array([0.1, 0.2, 0.7]), n_classes=3
    )
    fit = ConformalFit(quantile=0.3, alpha=0.1, score="aps", n_points=99, n_missed=0)
    assert prediction_sets(posterior, fit)[0].tolist() == [0, 1, 2]


def test_an_alpha_that_is_no_binary_number_loses_no_rank() -> None:
    """0.29 * 100 is below 29 in floating point."""
    points = Posterior(np.arange(100), np.zeros(99, np.int64), np.linspace(1, 0.02, 99), 1)
    fit = fit_conformal(points, np.zeros(99, np.int64), alpha=0.29, score="lac")
    assert fit.quantile == 1 - np.linspace(1, 0.02, 99)[70]


def test_lac_never_gives_an_empty_set() -> None:
    rng = np.random.default_rng(3)
    points, codes = drawn(rng, 300, n_kept=5, concentration=0.05)
    fit = fit_conformal(points, codes, alpha=0.4, score="lac")
    queries, _ = drawn(rng, 300, n_kept=5, concentration=0.5)
    sets = prediction_sets(queries, fit)
    unsure = queries.confidence < 1 - fit.quantile
    assert unsure.mean() > 0.2
    assert (sets.sizes >= 1).all()
    np.testing.assert_array_equal(
        [sets[int(row)].tolist() for row in np.flatnonzero(unsure)], queries.labels[unsure, None]
    )


def uniform_points(n: int) -> tuple[Posterior, IntArray]:
    """Points with one class each, their own."""
    return Posterior(np.arange(n + 1), np.zeros(n, np.int64), np.ones(n), 5), np.zeros(n, np.int64)


@pytest.mark.parametrize("score", SCORES)
def test_with_many_missed_the_only_set_is_every_class(score: ScoreName) -> None:
    points, codes = uniform_points(99)
    codes[:10] = 3
    fit = fit_conformal(points, codes, alpha=0.1, score=score)
    assert fit.everything
    assert fit.n_missed == 10
    sets = prediction_sets(points, fit)
    assert sets.everything.all()
    assert sets.contains(codes).all()
    assert (sets.sizes == 5).all()
    assert str(fit) == (
        "Sets that hold the true class of 90% of the queries must hold every class: 10 of 99 "
        "calibration points have a class that is not among their neighbours. Use an alpha of at "
        "least 0.11, a larger k, or more calibration points."
    )
    assert fit.smallest_alpha == 0.11
    assert not fit_conformal(points, codes, alpha=0.11, score=score).everything
    codes[0] = 0
    assert not fit_conformal(points, codes, alpha=0.1, score=score).everything


def test_too_few_points_rule_nothing_out() -> None:
    """8 points leave the next one a rank of 9 in 9: beyond all of theirs."""
    for n, everything in ((8, True), (9, False)):
        assert fit_conformal(*uniform_points(n), alpha=0.1).everything is everything


def test_a_query_without_neighbours_has_every_class() -> None:
    fit = fit_conformal(*uniform_points(50), alpha=0.1)
    queries = Posterior(np.array([0, 0, 1]), np.array([2]), np.array([1.0]), 5)
    sets = prediction_sets(queries, fit)
    assert sets.everything.tolist() == [True, False]
    assert sets.sizes.tolist() == [5, 1]


def test_classes_by_any_other_name_give_the_same_sets() -> None:
    rng = np.random.default_rng(4)
    points, codes = drawn(rng, 200, n_kept=6)
    renamed = rng.permutation(N_CLASSES)
    other = Posterior(points.indptr, renamed[points.codes], points.probabilities, N_CLASSES)
    for score in SCORES:
        fit = fit_conformal(points, codes, alpha=0.15, score=score)
        assert fit == fit_conformal(other, renamed[codes], alpha=0.15, score=score)
        sets, other_sets = prediction_sets(points, fit), prediction_sets(other, fit)
        np.testing.assert_array_equal(renamed[sets.codes], other_sets.codes)


def test_it_says_what_was_fitted() -> None:
    fit = ConformalFit(quantile=0.25, alpha=0.1, score="lac", n_points=1200, n_missed=3)
    assert str(fit) == (
        "Sets that hold the true class of 90% of the queries: classes of score 'lac' up to 0.25, "
        "from 1,200 points."
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda p, c: fit_conformal(p, c, alpha=0.0), "'alpha' parameter must be a number strict"),
        (lambda p, c: fit_conformal(p, c, alpha=1.0), "'alpha' parameter must be a number strict"),
        (lambda p, c: fit_conformal(p, c, alpha=10), "'alpha' parameter must be a number strict"),
        (lambda p, c: fit_conformal(p, c, alpha=math.nan), "Got nan instead"),
        (lambda p, c: fit_conformal(p, c[1:], alpha=0.1), "same number of rows. Got 20 and 19"),
        (lambda p, c: fit_conformal(p, c + 0.0, alpha=0.1), "integer class codes"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    broken: Callable[[Posterior, IntArray], object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        broken(*uniform_points(20))


def test_an_unknown_score_is_refused() -> None:
    unknown: Any = "raps"
    with pytest.raises(InvalidInputError, match=r"must be one of .*aps.*lac.* Got 'raps' instead"):
        fit_conformal(*uniform_points(20), alpha=0.1, score=unknown)


# Ragged sets of classes as a container.


SETS = PredictionSets(
    indptr=np.array([0, 2, 2, 2, 3]),
    codes=np.array([3, 0, 1]),
    n_classes=4,
    everything=np.array([False, True, False, False]),
)
DENSE = np.array([[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], np.bool_)


def test_every_view_shows_the_same_sets() -> None:
    assert len(SETS) == 4
    assert SETS.sizes.tolist() == DENSE.sum(axis=1).tolist()
    assert [sorted(codes.tolist()) for codes in map(SETS.__getitem__, range(4))] == [
        np.flatnonzero(row).tolist() for row in DENSE
    ]
    matrix = SETS.to_csr()
    assert matrix.dtype == np.bool_
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    for code in range(4):
        np.testing.assert_array_equal(SETS.contains([code] * 4), DENSE[:, code])


def test_classes_of_a_query_are_best_first() -> None:
    assert SETS[0].tolist() == [3, 0]
    assert SETS[-4].tolist() == [3, 0]
    assert SETS[-3].tolist() == [0, 1, 2, 3]
    with pytest.raises(IndexError, match="out of bounds"):
        SETS[4]


def test_a_class_that_does_not_exist_is_in_no_set() -> None:
    assert not SETS.contains([4, 4, 4, 4]).any()
    assert not SETS.contains([-1, -1, -1, -1]).any()


def test_contains_asks_for_one_code_per_query() -> None:
    with pytest.raises(InvalidInputError, match="Got 4 and 2 instead"):
        SETS.contains([0, 1])


@pytest.mark.parametrize(
    ("indptr", "codes", "everything", "message"),
    [
        ([1, 2], [0], [False], "indptr must ascend from 0"),
        ([0, 2, 1], [0], [False, False], "indptr must ascend from 0"),
        ([0, 2], [0], [False], "codes must have indptr"),
        ([0, 1], [4], [False], r"Class codes must lie in \[0, 4\). Got 4 to 4"),
        ([0, 1], [0], [False, False], "one bool for each of the 1 queries"),
        ([0, 1], [0], [True], "must hold no entries"),
    ],
)
def test_sets_check_themselves(
    indptr: list[int], codes: list[int], everything: list[bool], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        PredictionSets(np.array(indptr), np.array(codes), 4, np.array(everything))
