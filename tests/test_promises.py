"""What `benchmarks.promises` counts is what its words say."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.promise_cases import CASES, LARGEST, UNKNOWN, Case
from benchmarks.promises import Cell, Outcome, find_oracle_coverage, read_coverages, to_markdown

KEPT = Outcome(
    target=0.9,
    state=None,
    reached=True,
    n_queries=400,
    n_accepted=200,
    n_right=190,
    oracle_coverage=0.6,
    own_accuracy=0.8,
    accuracy=0.8,
    warned=(),
)


def test_break_is_beyond_chance_where_the_exact_test_rejects_the_promise() -> None:
    # The chance of 172 or fewer of 200 at 0.9 is 0.043, that of 173 or fewer 0.067.
    assert not replace(KEPT, n_right=180).broken
    assert replace(KEPT, n_right=179).broken
    assert not replace(KEPT, n_right=173).beyond_chance
    assert replace(KEPT, n_right=172).beyond_chance


def test_break_by_a_margin_is_beyond_chance_too() -> None:
    assert replace(KEPT, n_right=172).broken_by(0.02)
    assert not replace(KEPT, n_right=172).broken_by(0.05)
    assert not replace(KEPT, n_accepted=5, n_right=4).broken_by(0.02)


@pytest.mark.parametrize(
    ("state", "silent"), [(None, True), ("holds", True), ("adjusted", False), ("withdrawn", False)]
)
def test_break_is_silent_unless_the_promise_was_adjusted(
    state: str | None, *, silent: bool
) -> None:
    assert replace(KEPT, n_right=100, state=state).silent is silent


def test_nothing_promised_is_nothing_broken() -> None:
    for outcome in (
        replace(KEPT, n_right=0, reached=False),
        replace(KEPT, n_right=0, state="withdrawn"),
        replace(KEPT, n_right=0, n_accepted=0),
    ):
        assert not outcome.broken
        assert not outcome.beyond_chance


@pytest.mark.parametrize("seed", range(20))
def test_oracle_tries_every_threshold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 10, 30) / 10
    right = rng.random(30) < confidence
    coverages = [0.0]
    for threshold in np.unique(confidence):
        accepted = confidence >= threshold
        if right[accepted].mean() >= 0.8:
            coverages.append(float(accepted.mean()))
    assert find_oracle_coverage(confidence, right, 0.8) == max(coverages)


def test_coverage_is_read_from_the_table_as_it_was_written() -> None:
    cell = Cell("like the gallery", "digits", "none")
    outcomes = [replace(KEPT, target=target) for target in (0.9, 0.95, 0.99)]
    table = to_markdown({cell: outcomes, replace(cell, case="blurred"): outcomes})
    assert read_coverages(f"# Title\n\n{table}\n") == {"digits": (1, 50.0)}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if "digits" in case.datasets],
    ids=lambda case: case.make.__name__,
)
def test_trials_repeat_and_no_query_is_in_its_gallery(case: Case) -> None:
    for trial, same in zip(case.trials("digits", 2), case.trials("digits", 2), strict=True):
        np.testing.assert_array_equal(trial.gallery.vectors, same.gallery.vectors)
        assert len(trial.gallery.codes) <= LARGEST
        gallery = {row.tobytes() for row in trial.gallery.vectors}
        for name, queries in trial.batches.items():
            np.testing.assert_array_equal(queries.vectors, same.batches[name].vectors)
            assert not any(row.tobytes() in gallery for row in queries.vectors)
            is_new = ~np.isin(queries.codes, trial.gallery.codes)
            np.testing.assert_array_equal(is_new, queries.codes == UNKNOWN)
            assert is_new.mean() == (trial.unknown_share or 0.0)
