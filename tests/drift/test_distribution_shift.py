import numpy as np
import pytest
from numpy.typing import ArrayLike

from nearsure.drift import compare_samples
from nearsure.errors import InvalidInputError


def test_gap_and_direction_are_what_loops_over_pairs_and_thresholds_give() -> None:
    rng = np.random.default_rng(0)
    own, queries = rng.integers(0, 12, 40) / 12, rng.integers(3, 15, 35) / 12
    shift = compare_samples(own, queries)
    gap = max(
        abs(np.mean(own <= t) - np.mean(queries <= t)) for t in np.concatenate([own, queries])
    )
    delta = np.mean([np.sign(query - point) for query in queries for point in own])
    assert shift.gap == pytest.approx(gap)
    assert shift.direction == pytest.approx(delta)


@pytest.mark.parametrize("n_queries", [40, 300, 3000])
def test_false_alarms_are_no_more_than_the_level(n_queries: int) -> None:
    rng = np.random.default_rng(n_queries)
    n_draws, level = 400, 0.1
    alarms = [
        compare_samples(
            rng.normal(size=800), rng.normal(size=n_queries), level=level, smallest_gap=0.001
        ).alarm
        for _ in range(n_draws)
    ]
    # Three standard errors above the level.
    assert np.mean(alarms) <= level + 3 * np.sqrt(level * (1 - level) / n_draws)


def test_ties_make_false_alarms_rarer() -> None:
    rng = np.random.default_rng(1)
    alarms = [
        compare_samples(
            rng.integers(0, 4, 800), rng.integers(0, 4, 300), level=0.1, smallest_gap=0.001
        ).alarm
        for _ in range(400)
    ]
    assert np.mean(alarms) <= 0.1


def test_a_tiny_shift_of_a_huge_batch_is_beyond_chance_but_no_alarm() -> None:
    rng = np.random.default_rng(2)
    shift = compare_samples(rng.normal(size=100_000), rng.normal(0.05, size=100_000))
    assert shift.p_value < 1e-6
    assert not shift.alarm


def test_a_gap_that_chance_explains_is_no_alarm() -> None:
    shift = compare_samples(np.arange(30.0), np.arange(30.0) + 5)
    assert shift.gap > shift.smallest_gap
    assert not shift.alarm


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_shift_of_place_or_of_spread_alarms(scale: float) -> None:
    rng = np.random.default_rng(3)
    moved = rng.normal(0.0 if scale > 1 else 1.0, scale, size=200)
    assert compare_samples(rng.normal(size=1000), moved).alarm


def test_the_gap_needed_parts_alarms_from_silence() -> None:
    own = np.arange(1000.0)

    def shifted(gap: float) -> bool:
        # One in a thousand values moved past the end is a gap of 0.001.
        queries = np.arange(0.0, 1000.0, 4)
        queries[: round(gap * len(queries))] = 2000.0
        return compare_samples(own, queries).alarm

    needed = compare_samples(own, np.arange(0.0, 1000.0, 4)).gap_needed
    assert needed > 0.1
    assert not shifted(needed - 0.02)
    assert shifted(needed + 0.02)


def test_the_gap_needed_falls_with_the_batch_to_the_gap_that_matters() -> None:
    own = np.arange(2000.0)
    needed = [compare_samples(own, np.arange(float(n))).gap_needed for n in (30, 100, 300, 2000)]
    assert needed == sorted(needed, reverse=True)
    assert needed[-1] == 0.1


def test_only_the_order_of_values_counts() -> None:
    rng = np.random.default_rng(4)
    own, queries = rng.uniform(0.1, 1, 200), rng.uniform(0.3, 1, 100)
    squared, logged = (
        compare_samples(change(own), change(queries)) for change in (np.square, np.log)
    )
    plain = compare_samples(own[::-1], rng.permutation(queries))
    for other in (squared, logged):
        assert (other.gap, other.p_value) == (plain.gap, plain.p_value)
        assert other.direction == pytest.approx(plain.direction)


def test_swapping_the_samples_turns_the_direction() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=90), rng.normal(0.4, size=60)
    there, back = compare_samples(one, other), compare_samples(other, one)
    assert there.gap == pytest.approx(back.gap)
    assert there.direction == pytest.approx(-back.direction)


def test_infinite_distances_are_far() -> None:
    shift = compare_samples(np.arange(50.0), np.full(50, np.inf))
    assert (shift.gap, shift.direction, shift.query_median) == (1.0, 1.0, np.inf)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([], r"at least 30 values.*\(0,\)"),
        (np.zeros(29), r"at least 30 values.*\(29,\)"),
        (np.zeros((40, 2)), r"\(40, 2\)"),
        (np.full(40, np.nan), "NaN. Got 40 of 40"),
    ],
)
def test_bad_samples_are_refused(queries: ArrayLike, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        compare_samples(np.zeros(40), queries)


def test_bad_levels_are_refused() -> None:
    values = np.zeros(40)
    with pytest.raises(InvalidInputError, match="'level'"):
        compare_samples(values, values, level=1.0)
    with pytest.raises(InvalidInputError, match="'smallest_gap'"):
        compare_samples(values, values, smallest_gap=0.0)
