"""Thresholds with a promise: exact bounds, the search, and whether the promise is kept."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.decisions import (
    AcceptThreshold,
    ScoreName,
    at_least_p_value,
    choose_threshold,
    fit_conformal,
    lower_bound,
    prediction_sets,
    upper_bound,
)
from nearsure.decisions.thresholds import ranks_and_errors
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score
from nearsure.temperature import fit_temperature

# Thresholds with a promise: exact bounds, the search, and whether the promise is kept.


# What a threshold is, says and refuses; whether it keeps its promise is tested beside this.


def scored(n: int, seed: int, *, decimals: int = 16) -> tuple[FloatArray, BoolArray]:
    rng = np.random.default_rng(seed)
    confidence = (rng.random(n) ** 0.15).round(decimals)
    return confidence, rng.random(n) < confidence


def naive_allowed(m: int, precision: float, level: float) -> int:
    """How many of m may be wrong, -1 if not even none, by summing binomial probabilities."""
    return int((np.cumsum(binom.pmf(np.arange(m + 1), m, 1 - precision)) <= level).sum()) - 1


def naive_threshold(
    confidence: FloatArray, correct: BoolArray, precision: float, certainty: float
) -> float:
    """The sequence of tests, one threshold at a time and without sorting tricks."""
    n, level = len(confidence), 1 - certainty
    allowed = [naive_allowed(m, precision, level) for m in range(n + 1)]
    ranks = [m for m in range(1, n + 1) if allowed[m] > allowed[m - 1]]
    ranks += range(ranks[-1] + 1, n + 1)
    falling = sorted(confidence, reverse=True)
    thresholds = sorted({falling[rank - 1] for rank in ranks}, reverse=True)
    accepted = [int((confidence >= each).sum()) for each in thresholds]
    wrong = [int((~correct[confidence >= each]).sum()) for each in thresholds]
    start = 0
    for place, m in enumerate(accepted):
        laxer = [other for other, count in enumerate(accepted) if count >= 1.25 * m]
        if laxer:
            n_next, wrong_next = accepted[laxer[0]] - m, wrong[laxer[0]] - wrong[place]
            if wrong_next / n_next <= allowed[m] / m:
                start = place
    best = math.inf
    for place in range(start, len(thresholds)):
        if wrong[place] > allowed[accepted[place]]:
            break
        best = thresholds[place]
    return best


@pytest.mark.parametrize("decimals", [16, 2, 1])
@pytest.mark.parametrize("precision", [0.85, 0.9, 0.95])
def test_threshold_is_that_of_the_naive_procedure(precision: float, decimals: int) -> None:
    reached = 0
    for seed in range(5):
        confidence, correct = scored(500, seed, decimals=decimals)
        chosen = choose_threshold(confidence, correct, precision=precision, certainty=0.9)
        assert chosen.threshold == naive_threshold(confidence, correct, precision, 0.9)
        reached += chosen.reached
    assert reached


def test_ranks_are_the_fewest_points_that_allow_another_error() -> None:
    ranks, allowed = ranks_and_errors(1000, 0.99, 0.05)
    # Up to 1000 points, five may be wrong; then every rank is tested.
    assert ranks[:5].tolist() == [299, 473, 628, 773, 913]
    assert ranks[5:].tolist() == list(range(914, 1001))
    assert allowed.tolist() == [0, 1, 2, 3, *[4] * 88]
    assert np.all(binom.cdf(allowed, ranks, 0.01) <= 0.05)
    assert np.all(binom.cdf(allowed[:5], ranks[:5] - 1, 0.01) > 0.05)


@pytest.mark.parametrize(("precision", "level"), [(0.5, 0.05), (0.9, 0.001), (0.999, 0.2)])
def test_of_many_ranks_some_are_taken(precision: float, level: float) -> None:
    ranks, allowed = ranks_and_errors(100_000, precision, level)
    assert len(ranks) < 4000
    assert (np.diff(ranks) > 0).all()
    assert ranks[-1] == 100_000
    assert np.all(binom.cdf(allowed, ranks, 1 - precision) <= level)
    exact = allowed > np.append(-1, allowed[:-1])
    assert np.all(binom.cdf(allowed[exact], ranks[exact] - 1, 1 - precision) > level)
    many = allowed > 200
    assert (ranks[1:] / ranks[:-1])[many[1:]].max(initial=1.0) < 1.02


def test_an_early_error_does_not_end_the_tests() -> None:
    """Of the surest answers one is wrong, and then none among very many."""
    confidence, correct = np.linspace(1.0, 0.5, 3000), np.ones(3000, np.bool_)
    correct[[10, 2000, 2100, 2200, 2300]] = False
    correct[2400:] = False
    chosen = choose_threshold(confidence, correct, precision=0.99)
    assert chosen.n_accepted == 2306  # 15 may be wrong among so many, 5 are
    # The strictest threshold alone would have failed.
    assert naive_allowed(299, 0.99, 0.05) == 0


def test_few_points_are_tested_together_at_the_whole_level() -> None:
    """299 right answers certify 99% at 95%, and 298 do not."""
    for n, reached in ((299, True), (298, False)):
        chosen = choose_threshold(np.linspace(0.5, 1, n), np.ones(n), precision=0.99)
        assert chosen.reached is reached
    assert chosen.promised == 0.989


def test_numbers_are_those_of_the_accepted_points() -> None:
    confidence, correct = scored(2000, seed=1, decimals=2)
    chosen = choose_threshold(confidence, correct, precision=0.93)
    accepted = confidence >= chosen.threshold
    np.testing.assert_array_equal(chosen.accepts(confidence), accepted)
    assert 0.1 < chosen.coverage < 0.9
    assert chosen.coverage == accepted.mean()
    assert chosen.precision == pytest.approx(correct[accepted].mean())
    assert chosen.n_accepted == accepted.sum()
    assert chosen.n_points == 2000
    assert chosen.false_accept_rate == pytest.approx(accepted[~correct].mean())
    assert chosen.promised == chosen.target == 0.93


def test_order_of_the_points_does_not_matter() -> None:
    confidence, correct = scored(800, seed=2, decimals=2)
    shuffled = np.random.default_rng(0).permutation(800)
    for kind, target in (("precision", 0.92), ("false_accept_rate", 0.2)):
        one = choose_threshold(confidence, correct, **{kind: target})  # type: ignore[arg-type]
        assert one == choose_threshold(confidence[shuffled], correct[shuffled], **{kind: target})  # type: ignore[arg-type]
        assert one.reached


def test_error_is_precision_the_other_way_round() -> None:
    confidence, correct = scored(2000, seed=3)
    by_error = choose_threshold(confidence, correct, error=0.08)
    by_precision = choose_threshold(confidence, correct, precision=0.92)
    assert by_error == replace(by_precision, kind="error", target=0.08, promised=0.08)


def test_a_larger_certainty_or_precision_accepts_no_more() -> None:
    confidence, correct = scored(3000, seed=4)
    by_precision = [
        choose_threshold(confidence, correct, precision=p).coverage for p in (0.87, 0.9, 0.93, 0.96)
    ]
    by_certainty = [
        choose_threshold(confidence, correct, precision=0.9, certainty=c).coverage
        for c in (0.5, 0.9, 0.99, 0.9999)
    ]
    for coverages in (by_precision, by_certainty):
        assert coverages == sorted(coverages, reverse=True)
        assert coverages[0] > coverages[-1] > 0


@pytest.mark.parametrize(("decimals", "rate"), [(16, 0.2), (2, 0.2), (1, 0.8)])
def test_false_accepts_are_as_many_as_the_bound_allows(decimals: int, rate: float) -> None:
    """Among all thresholds that accept something, by brute force."""
    confidence, correct = scored(1500, seed=5, decimals=decimals)
    chosen = choose_threshold(confidence, correct, false_accept_rate=rate)
    n_wrong = int((~correct).sum())
    allowed = [
        threshold
        for threshold in np.unique(confidence)
        if upper_bound(((confidence >= threshold) & ~correct).sum(), n_wrong) <= rate
    ]
    assert chosen.threshold == min(allowed)
    assert chosen.n_wrong == n_wrong
    assert chosen.n_wrong_accepted == ((confidence >= min(allowed)) & ~correct).sum() > 0


def test_the_best_promise_is_one_that_is_reached() -> None:
    confidence, correct = scored(400, seed=6)
    for kind, target, step in (
        ("precision", 0.995, 0.001),
        ("error", 0.005, -0.001),
        ("false_accept_rate", 0.005, -0.001),
    ):
        chosen = choose_threshold(confidence, correct, **{kind: target})  # type: ignore[arg-type]
        assert not chosen.reached
        assert chosen.threshold == math.inf
        assert math.isnan(chosen.precision)
        assert not chosen.accepts(confidence).any()
        assert 0 < chosen.promised < 1
        assert choose_threshold(confidence, correct, **{kind: chosen.promised}).reached  # type: ignore[arg-type]
        too_much = round(chosen.promised + step, 3)
        assert not choose_threshold(confidence, correct, **{kind: too_much}).reached  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "target", "promised"),
    [("precision", 0.9876, 0.987), ("error", 0.0124, 0.013), ("false_accept_rate", 0.0124, 0.013)],
)
def test_a_target_between_two_steps_gets_the_step_next_to_it(
    kind: str, target: float, promised: float
) -> None:
    # 230 points without a fault: 0.987^230 = 0.0493 is within the level of 0.05, 0.9876^230 is not.
    confidence, correct = np.linspace(0.5, 1.0, 230), np.ones(230, np.bool_)
    if kind == "false_accept_rate":  # as many wrong answers, all of them below a right one
        confidence, correct = np.append(confidence, 1.1) / 1.1, np.append(~correct, True)
    chosen = choose_threshold(confidence, correct, **{kind: target})  # type: ignore[arg-type]
    assert not chosen.reached
    assert chosen.promised == promised
    assert choose_threshold(confidence, correct, **{kind: promised}).reached  # type: ignore[arg-type]


def test_a_p_value_that_equals_its_level_passes() -> None:
    # Two right answers of two at a share of 1/2: the p-value is 1/4 to the last bit.
    assert choose_threshold([0.8, 0.9], [1, 1], precision=0.5, certainty=0.75).threshold == 0.8
    assert not choose_threshold([0.8, 0.9], [1, 1], precision=0.5, certainty=0.76).reached


def test_a_bound_that_equals_the_rate_is_allowed() -> None:
    confidence, correct = np.array([0.9, 0.7, 0.5, 0.3]), np.array([1, 0, 0, 0])
    rate = float(upper_bound(0, 3))
    assert choose_threshold(confidence, correct, false_accept_rate=rate).threshold == 0.9
    less = float(np.nextafter(rate, 0.0))
    assert not choose_threshold(confidence, correct, false_accept_rate=less).reached


def test_without_wrong_answers_nothing_is_known_of_them() -> None:
    chosen = choose_threshold([0.9, 0.8], [1, 1], false_accept_rate=0.1)
    assert not chosen.reached
    assert math.isnan(chosen.false_accept_rate)
    assert "support no promise: add points that should not be accepted" in str(chosen)


def test_wrong_answers_of_the_largest_confidence_cannot_be_kept_out() -> None:
    chosen = choose_threshold(np.ones(400), np.arange(400) % 2, false_accept_rate=0.5)
    assert not chosen.reached
    assert chosen.promised == 1


def test_it_says_what_it_promises() -> None:
    made = AcceptThreshold(
        threshold=0.87,
        kind="precision",
        target=0.99,
        certainty=0.95,
        n_points=4000,
        n_wrong=100,
        n_accepted=3320,
        n_wrong_accepted=20,
        promised=0.99,
    )
    assert str(made) == (
        "Accept at confidence >= 0.87: 83.0% of queries, at least 99% right, with 95% certainty, "
        "for queries like those given (measured 99.40% of 3,320)."
    )
    assert (
        "at most 1% wrong, with 95% certainty, for queries like those given "
        "(measured 0.60% of 3,320)" in str(replace(made, kind="error", target=0.01))
    )
    assert (
        "at most 25% of those that should not be accepted, with 95% certainty, "
        "for queries like those given (measured 20.00% of 100)"
    ) in str(replace(made, kind="false_accept_rate", target=0.25))
    unreached = replace(made, threshold=math.inf, promised=0.971, n_accepted=0, n_wrong_accepted=0)
    assert str(unreached) == (
        "No threshold on the confidence can promise at least 99% right, with 95% certainty, from "
        "4,000 points of which 100 are wrong. The strictest promise that these points support "
        "is at least 97.1% right, for queries like those given: "
        "add calibration points, or relax the target."
    )
    of_gallery = replace(made, rests_on="points left out alone")
    assert "certainty, for queries like the gallery (measured 99.40% of 3,320)." in str(of_gallery)
    of_groups = replace(made, rests_on="groups left out together")
    assert "like the gallery (measured 99.40% of 3,320; groups left out together)" in str(of_groups)
    reasons = ("their answers are less sure", "they lie farther away")
    adjusted = replace(of_gallery, state="adjusted", reasons=reasons)
    assert "for queries like those given" in str(adjusted)
    assert "adjusted, as their answers are less sure and they lie farther away" in str(adjusted)
    withdrawn = replace(unreached, state="withdrawn", reasons=reasons)
    assert "is withdrawn for queries like those given: their answers are less sure" in str(
        withdrawn
    )


def test_queries_are_checked_and_may_be_none() -> None:
    chosen = choose_threshold([0.9] * 100, [1] * 100, precision=0.9)
    assert chosen.accepts([]).shape == (0,)
    assert chosen.accepts([0.9, 0.89]).tolist() == [True, False]
    with pytest.raises(InvalidInputError, match="not percentages"):
        chosen.accepts([90.0])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({}, "Exactly one of .* must be given. Got none"),
        ({"precision": 0.9, "error": 0.1}, "Exactly one of .* Got precision and error"),
        ({"precision": 1.0}, "cannot show that no error will ever happen.*such as 0.999"),
        ({"error": 0.0}, "cannot show that no error will ever happen.*such as 0.001"),
        ({"false_accept_rate": 0}, "cannot show that no error will ever happen"),
        ({"precision": 0.0}, "nothing to promise"),
        ({"error": 1.0}, "nothing to promise"),
        ({"false_accept_rate": 1}, "nothing to promise"),
        ({"precision": 99.0}, "'precision' parameter must be a number strictly between 0 and 1"),
        ({"error": float("nan")}, "'error' parameter must be a number strictly between 0 and 1"),
        ({"precision": 0.9, "certainty": 1.0}, "'certainty' parameter must be a number strictly"),
        ({"precision": 0.9, "certainty": 95}, "'certainty' parameter must be a number strictly"),
    ],
)
def test_targets_that_cannot_be_promised_are_refused(
    targets: dict[str, float], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        choose_threshold([0.9, 0.8], [1, 0], **targets)  # type: ignore[arg-type]


# Clopper-Pearson bounds against scipy and against the binomial distribution itself.


CASES = [(0, 1), (1, 1), (0, 40), (40, 40), (7, 40), (299, 299), (995, 1000)]


@pytest.mark.parametrize("certainty", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(("successes", "trials"), CASES)
def test_bounds_are_those_of_scipy(successes: int, trials: int, certainty: float) -> None:
    low = binomtest(successes, trials, alternative="greater").proportion_ci(certainty, "exact").low
    high = binomtest(successes, trials, alternative="less").proportion_ci(certainty, "exact").high
    assert lower_bound(successes, trials, certainty=certainty) == pytest.approx(low, abs=1e-12)
    assert upper_bound(successes, trials, certainty=certainty) == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize(("successes", "trials"), CASES)
def test_p_values_are_those_of_scipy(successes: int, trials: int) -> None:
    theirs = binomtest(successes, trials, 0.8, alternative="greater").pvalue
    assert at_least_p_value(successes, trials, share=0.8) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9, 0.99])
def test_a_bound_keeps_its_certainty_for_every_true_share(share: float) -> None:
    """Summed over all outcomes, not simulated."""
    for trials in (1, 10, 60, 300):
        outcomes = np.arange(trials + 1)
        chance = binom.pmf(outcomes, trials, share)
        assert chance[lower_bound(outcomes, trials) <= share].sum() >= 0.95 - 1e-12
        assert chance[upper_bound(outcomes, trials) >= share].sum() >= 0.95 - 1e-12


def test_p_value_and_bound_agree_on_what_is_certified() -> None:
    outcomes = np.arange(301)
    certified = at_least_p_value(outcomes, 300, share=0.9) <= 0.05
    assert 0 < certified.sum() < 40
    np.testing.assert_array_equal(certified, lower_bound(outcomes, 300, certainty=0.95) >= 0.9)


def test_no_trials_say_nothing() -> None:
    assert lower_bound(0, 0) == 0
    assert upper_bound(0, 0) == 1
    assert at_least_p_value(0, 0, share=0.9) == 1


def test_arguments_broadcast() -> None:
    assert lower_bound([[1], [2]], [5, 6, 7]).shape == (2, 3)


@pytest.mark.parametrize(
    ("successes", "trials", "message"),
    [
        (0.9, 10, "'successes' parameter must hold integers.*float64.*not shares"),
        (9, 10.0, "'trials' parameter must hold integers"),
        (11, 10, "between 0 and the number of trials. Got successes from 11"),
        (-1, 10, "between 0 and the number of trials"),
    ],
)
def test_what_is_no_count_is_refused(successes: float, trials: float, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        lower_bound(successes, trials)


@pytest.mark.parametrize("certainty", [0.0, 1.0, 95.0, float("nan")])
def test_certainty_is_an_open_fraction(certainty: float) -> None:
    with pytest.raises(InvalidInputError, match="'certainty' parameter must be a number strictly"):
        lower_bound(9, 10, certainty=certainty)


# Over many draws of calibration points, how often a threshold breaks its promise.
#
# A procedure that breaks it in exactly 5% of the draws is found to break it in more than `ALLOWED`
# of 500 draws with a chance of 1 in 1000.


N_DRAWS = 500
CERTAINTY = 0.95
ALLOWED = binom.ppf(0.999, N_DRAWS, 1 - CERTAINTY) / N_DRAWS  # 0.082

# Right answers by confidence c, uniform on (0, 1): the chance at c and the mean above a threshold.
SLOPE = 0.3


def sloping(confidence: FloatArray) -> FloatArray:
    return 1 - SLOPE * (1 - confidence)


def precision_of_sloping(threshold: float) -> float:
    return 1 - SLOPE * (1 - threshold) / 2


def broken_share(
    n_points: int,
    precision: float,
    draw: Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]],
    true_precision: Callable[[float], float],
) -> tuple[float, float]:
    """Share of draws that break the promise, and the mean coverage."""
    rng = np.random.default_rng(0)
    broken, coverage = [], []
    for _ in range(N_DRAWS):
        confidence, chance = draw(rng, n_points)
        chosen = choose_threshold(
            confidence, rng.random(n_points) < chance, precision=precision, certainty=CERTAINTY
        )
        broken.append(chosen.reached and true_precision(chosen.threshold) < precision)
        coverage.append(chosen.coverage)
    return float(np.mean(broken)), float(np.mean(coverage))


@pytest.mark.parametrize(
    ("n_points", "precision", "smallest_coverage"),
    [(300, 0.9, 0.1), (2000, 0.9, 0.53), (2000, 0.95, 0.12)],
)
def test_precision_is_kept_and_coverage_is_not_wasted(
    n_points: int, precision: float, smallest_coverage: float
) -> None:
    """The true precision allows a coverage of (1 - precision) / 0.15: 0.67 and 0.33."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        confidence = rng.random(n)
        return confidence, sloping(confidence)

    broken, coverage = broken_share(n_points, precision, draw, precision_of_sloping)
    assert broken <= ALLOWED
    assert coverage >= smallest_coverage


def test_precision_is_kept_with_ties() -> None:
    """Half of the confidences are 1, as with neighbours of one class; the rest are rounded."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        confidence = np.where(rng.random(n) < 0.5, 1.0, rng.integers(0, 10, n) / 10)
        return confidence, np.where(confidence == 1, 0.97, 0.5 + 0.4 * confidence)

    def true_precision(threshold: float) -> float:
        lower = np.arange(10) / 10
        lower = lower[lower >= threshold]
        share = 0.05 * len(lower)
        return float((0.5 * 0.97 + (0.05 * (0.5 + 0.4 * lower)).sum()) / (0.5 + share))

    # The target lies just above the precision at 0.4, so that accepting from there on is wrong.
    target = true_precision(0.4) + 1e-6
    broken, coverage = broken_share(1500, target, draw, true_precision)
    assert 0 < broken <= ALLOWED
    assert 0.7 < coverage < 0.76  # 0.75 is the most that keeps the target


@pytest.mark.parametrize(("n_points", "precision"), [(1000, 0.9), (3000, 0.99)])
def test_where_every_threshold_is_just_too_bad_hardly_any_is_chosen(
    n_points: int, precision: float
) -> None:
    """The hardest case: any threshold at all breaks the promise."""
    chance = precision - 1e-9

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        return rng.random(n), np.full(n, chance)

    broken, _ = broken_share(n_points, precision, draw, lambda _: chance)
    assert 0 < broken <= ALLOWED


@pytest.mark.parametrize(
    ("floor", "height", "power", "smallest_coverage"),
    [
        (0.004, 0.1, 4.0, 0.3),  # the true precision allows 0.74
        # A confidence that says nothing of good answers: all may be accepted. A sequence of tests
        # that starts at the strictest threshold, or at two fixed ones, accepts 0.35 or less.
        (0.005, 0.0, 1.0, 0.72),
    ],
)
def test_a_few_wrong_labels_leave_room_for_99_percent(
    floor: float, height: float, power: float, smallest_coverage: float
) -> None:
    """The error at a confidence c is floor + height (1 - c)^power."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        confidence = rng.random(n)
        return confidence, 1 - floor - height * (1 - confidence) ** power

    def true_precision(threshold: float) -> float:
        return float(1 - floor - height * (1 - threshold) ** power / (power + 1))

    broken, coverage = broken_share(3000, 0.99, draw, true_precision)
    assert broken <= ALLOWED
    assert coverage >= smallest_coverage


@pytest.mark.parametrize(
    ("poor", "good", "slope", "smallest_coverage"),
    [
        # The precision is near the target everywhere, now above it and now below.
        (0.79, 0.99, 0.0, 0.0),
        # It falls in the long run, and the true precision allows a coverage of 0.72.
        (0.9, 1.0, 0.15, 0.28),
    ],
)
def test_precision_is_kept_where_confidence_misleads(
    poor: float, good: float, slope: float, smallest_coverage: float
) -> None:
    """Bands of right and of poor answers: the precision falls and rises with the threshold."""
    edges = np.linspace(0, 1, 11)
    chances = np.tile([poor, good], 5) - slope * (1 - (edges[1:] + edges[:-1]) / 2)

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        confidence = rng.random(n)
        return confidence, chances[np.searchsorted(edges, confidence, side="right") - 1]

    def true_precision(threshold: float) -> float:
        widths = np.clip(edges[1:] - np.maximum(edges[:-1], threshold), 0, None)
        return float(widths @ chances / widths.sum())

    assert true_precision(0.9) > true_precision(0.7) > true_precision(0.8)
    broken, coverage = broken_share(1000, 0.9, draw, true_precision)
    assert 0 < broken <= ALLOWED
    assert coverage > smallest_coverage


def test_false_accept_rate_is_kept_and_used_up() -> None:
    """Wrong answers have the confidence c with P(C >= c) = (1 - c)^2; the right ones 1 - c^3."""
    rng = np.random.default_rng(1)
    broken, rates = [], []
    for _ in range(N_DRAWS):
        correct = rng.random(600) < 0.5
        confidence = np.where(correct, rng.random(600) ** (1 / 3), 1 - np.sqrt(rng.random(600)))
        chosen = choose_threshold(confidence, correct, false_accept_rate=0.05, certainty=CERTAINTY)
        rates.append((1 - chosen.threshold) ** 2)
        broken.append(rates[-1] > 0.05)
    # An order statistic's bound is nearly tight: it fails about as often as it may.
    assert 0.01 <= np.mean(broken) <= ALLOWED
    assert np.mean(rates) > 0.02


# Draws of a small gallery of Gaussian classes, with the truth about every query known.


N_CLASSES = 6
N_SUPPORT = 300
N_QUERIES = 1000
K = 40
SPREAD = 0.5
MEANS = np.random.default_rng(99).normal(size=(N_CLASSES, 4)) * 1.2


@dataclass(frozen=True, eq=False)
class Draw:
    """Posteriors of the support points, each leaving itself out, and of queries."""

    points: Posterior
    codes: IntArray
    queries: Posterior
    truth: FloatArray
    """p(class | query), of shape (N_QUERIES, N_CLASSES), in closed form."""


def draw(seed: int) -> Draw:
    rng = np.random.default_rng(seed)
    support, codes = _points(rng, N_SUPPORT)
    queries, _ = _points(rng, N_QUERIES)
    index = ExactIndex(support)
    left_out = search_leaving_one_out(index, support, np.arange(N_SUPPORT), codes, k=K)
    temperature = fit_temperature(left_out, codes).temperature
    sq_distances, ids = index.search(queries, K)
    found = Neighbors(sq_distances, codes[ids])
    log_density = -np.square(queries[:, None] - MEANS).sum(axis=2) / (2 * SPREAD**2)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return Draw(
        score(left_out, temperature=temperature, n_classes=N_CLASSES),
        codes,
        score(found, temperature=temperature, n_classes=N_CLASSES),
        density / density.sum(axis=1, keepdims=True),
    )


def _points(rng: np.random.Generator, n: int) -> tuple[FloatArray, IntArray]:
    codes = rng.integers(0, N_CLASSES, n)
    points: FloatArray = MEANS[codes] + SPREAD * rng.normal(size=(n, MEANS.shape[1]))
    return points, codes


# Promises that rest on support points which left themselves out, on Gaussian classes.
#
# Neither promise is proven for such points. Over 200 draws of a gallery of 300 points the promise
# of a threshold was broken in 3% to 4% of the draws, where 5% are allowed, and the sets held the
# true class of 94.8% and 90.0% of the queries, where 95% and 90% were asked for.


N_GALLERIES = 120
# What fails with a chance of 5% each time fails more often than this with a chance of 1 in 1000.
ALLOWED_OF_GALLERIES = binom.ppf(0.999, N_GALLERIES, 0.05) / N_GALLERIES  # 0.117


@pytest.fixture(scope="module")
def draws() -> list[Draw]:
    return [draw(seed) for seed in range(N_GALLERIES)]


@pytest.mark.parametrize(("precision", "smallest_coverage"), [(0.9, 0.8), (0.95, 0.6)])
def test_precision_is_kept(draws: list[Draw], precision: float, smallest_coverage: float) -> None:
    broken, coverage = [], []
    for one in draws:
        chosen = choose_threshold(
            one.points.confidence, one.points.labels == one.codes, precision=precision
        )
        accepted = chosen.accepts(one.queries.confidence)
        chance_right = one.truth[np.arange(N_QUERIES), one.queries.labels]
        broken.append(chosen.reached and chance_right[accepted].mean() < precision)
        coverage.append(accepted.mean())
    assert np.mean(broken) <= ALLOWED_OF_GALLERIES
    assert np.mean(coverage) >= smallest_coverage


def test_false_accept_rate_is_kept(draws: list[Draw]) -> None:
    broken = []
    for one in draws:
        chosen = choose_threshold(
            one.points.confidence, one.points.labels == one.codes, false_accept_rate=0.2
        )
        chance_wrong = 1 - one.truth[np.arange(N_QUERIES), one.queries.labels]
        accepted = chosen.accepts(one.queries.confidence)
        broken.append(chance_wrong[accepted].sum() > 0.2 * chance_wrong.sum())
    assert np.mean(broken) <= ALLOWED_OF_GALLERIES


@pytest.mark.parametrize("score", ["aps", "lac"])
@pytest.mark.parametrize(("alpha", "largest_mean_size"), [(0.1, 1.1), (0.05, 1.3)])
def test_sets_hold_the_true_class(
    draws: list[Draw], score: ScoreName, alpha: float, largest_mean_size: float
) -> None:
    """Within 0.01 of what was asked for; the mean over the draws scatters by 0.002."""
    coverage, sizes = [], []
    for one in draws:
        fit = fit_conformal(one.points, one.codes, alpha=alpha, score=score)
        sets = prediction_sets(one.queries, fit)
        coverage.append(one.truth[sets.to_csr().toarray()].sum() / N_QUERIES)
        sizes.append(sets.sizes.mean())
    assert np.std(coverage) / np.sqrt(N_GALLERIES) < 0.002
    assert np.mean(coverage) == pytest.approx(1 - alpha, abs=0.01)
    assert np.mean(sizes) < largest_mean_size
