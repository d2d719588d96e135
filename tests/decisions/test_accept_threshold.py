"""What a threshold is, says and refuses; whether it keeps its promise is tested beside this."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from nearsure.arrays import BoolArray, FloatArray
from nearsure.decisions import AcceptThreshold, choose_threshold, upper_bound
from nearsure.decisions.thresholds import ranks_and_levels
from nearsure.errors import InvalidInputError


def scored(n: int, seed: int, *, decimals: int = 16) -> tuple[FloatArray, BoolArray]:
    rng = np.random.default_rng(seed)
    confidence = (rng.random(n) ** 0.15).round(decimals)
    return confidence, rng.random(n) < confidence


def naive_threshold(
    confidence: FloatArray, correct: BoolArray, precision: float, certainty: float
) -> float:
    """The fallback procedure, one rank at a time and without sorting tricks."""
    ranks, levels = ranks_and_levels(len(confidence), precision, 1 - certainty)
    level_of: dict[float, float] = {}
    for rank, level in zip(ranks, levels, strict=True):
        threshold = sorted(confidence, reverse=True)[rank - 1]
        level_of[threshold] = level_of.get(threshold, 0.0) + level
    best, carried = math.inf, 0.0
    for threshold, level in level_of.items():
        accepted = confidence >= threshold
        right = int(correct[accepted].sum())
        p_value = binom.pmf(np.arange(right, accepted.sum() + 1), accepted.sum(), precision).sum()
        if p_value <= carried + level:
            best, carried = threshold, carried + level
        else:
            carried = 0.0
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


def test_ranks_are_fixed_by_number_target_and_certainty() -> None:
    ranks, levels = ranks_and_levels(1000, 0.99, 0.05)
    assert ranks[0] == math.ceil(math.log(0.025) / math.log(0.99))  # 368, all right, are enough
    assert ranks[-1] == 1000
    assert (np.diff(ranks) > 0).all()
    assert levels.sum() == pytest.approx(0.05)
    assert np.flatnonzero(levels).tolist() == [0, np.searchsorted(ranks, np.sqrt(368 * 1000))]


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
        one = choose_threshold(confidence, correct, **{kind: target})
        assert one == choose_threshold(confidence[shuffled], correct[shuffled], **{kind: target})
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
        chosen = choose_threshold(confidence, correct, **{kind: target})
        assert not chosen.reached
        assert chosen.threshold == math.inf
        assert math.isnan(chosen.precision)
        assert not chosen.accepts(confidence).any()
        assert 0 < chosen.promised < 1
        assert choose_threshold(confidence, correct, **{kind: chosen.promised}).reached
        too_much = round(chosen.promised + step, 3)
        assert not choose_threshold(confidence, correct, **{kind: too_much}).reached


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
    chosen = choose_threshold(confidence, correct, **{kind: target})
    assert not chosen.reached
    assert chosen.promised == promised
    assert choose_threshold(confidence, correct, **{kind: promised}).reached


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
    assert "can promise nothing: give more points that should not be accepted" in str(chosen)


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
        "Accept at confidence >= 0.87: 83.0% of queries, at least 99% right, with 95% certainty "
        "(measured 99.40% of 3,320)."
    )
    assert "at most 1% wrong, with 95% certainty (measured 0.60% of 3,320)" in str(
        replace(made, kind="error", target=0.01)
    )
    assert (
        "at most 25% of those that should not be accepted, with 95% certainty "
        "(measured 20.00% of 100)"
    ) in str(replace(made, kind="false_accept_rate", target=0.25))
    unreached = replace(made, threshold=math.inf, promised=0.971, n_accepted=0, n_wrong_accepted=0)
    assert str(unreached) == (
        "No threshold on the confidence can promise at least 99% right, with 95% certainty, from "
        "4,000 points of which 100 are wrong. The best that these points can promise is at least "
        "97.1% right: give more calibration points, or ask for less."
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
        choose_threshold([0.9, 0.8], [1, 0], **targets)
