"""The share of unknowns in mixtures whose share is known."""

import numpy as np
import pytest
from made_evidence import UNKNOWN_MEAN, mixed, normal, one_column

from nearsure.errors import InvalidInputError
from nearsure.unknowns import KnownModel, estimate_unknown_share, fit_shift
from nearsure.unknowns.model import NOVELTIES

MODEL = KnownModel.fit(
    one_column(normal(0.0, 20_000, seed=1)), one_column(normal(UNKNOWN_MEAN, 20_000, seed=2))
)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("n_unknown", [150, 1500])
def test_the_share_lies_in_its_interval(*, n_unknown: int, shifted: bool) -> None:
    estimates = [
        estimate_unknown_share(
            MODEL,
            mixed(3000 - n_unknown, n_unknown, unknown_mean=UNKNOWN_MEAN, seed=seed),
            seed=seed,
            shifted=shifted,
            n_resamples=60,
        )
        for seed in range(8)
    ]
    share = n_unknown / 3000
    covered = sum(estimate.low <= share <= estimate.high for estimate in estimates)
    assert covered >= 6  # at a true coverage of 0.95, fewer come up once in 170 times
    assert np.mean([estimate.share for estimate in estimates]) == pytest.approx(share, abs=0.02)


def test_without_shift_it_is_the_fixed_point_of_em() -> None:
    queries = mixed(1600, 400, unknown_mean=UNKNOWN_MEAN, seed=3)
    share = 0.5
    for _ in range(2000):
        share = 1 - MODEL.p_known(queries, share).mean()
    estimate = estimate_unknown_share(MODEL, queries, seed=0, shifted=False)
    assert estimate.share == pytest.approx(share, abs=1e-3)
    assert (estimate.novelty, estimate.drift) == (0, 0)


@pytest.mark.parametrize("novelty", [NOVELTIES[2], NOVELTIES[4]])
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_unknowns_farther_than_rehearsed(novelty: float, seed: int) -> None:
    """Without novelty, far unknowns count as more than they are; with it, the share is right.

    Each unknown is farther by its own b between 0 and twice the novelty, and their means so much
    lower. 600 of them tell the novelty from those a step of the grid away.
    """
    rng = np.random.default_rng(seed)
    means = UNKNOWN_MEAN * (1 + rng.uniform(0, 2 * novelty, 600))
    queries = one_column(np.concatenate([rng.normal(0, 1, 2400), rng.normal(means)]))
    shifted = estimate_unknown_share(MODEL, queries, seed=0)
    assert shifted.low <= 0.2 <= shifted.high
    assert shifted.share == pytest.approx(0.2, abs=0.01)  # two standard errors
    assert estimate_unknown_share(MODEL, queries, seed=0, shifted=False).share > 0.23
    assert shifted.novelty == novelty
    assert fit_shift(MODEL, queries, 0.2).novelty == novelty


def test_unknowns_that_are_all_equally_far() -> None:
    """Some near ones are expected among them, so a few known are taken for unknown."""
    estimates = [
        estimate_unknown_share(
            MODEL, mixed(2400, 600, unknown_mean=-4.5, seed=seed), seed=0, n_resamples=2
        )
        for seed in range(6)
    ]
    assert 0.2 < np.mean([estimate.share for estimate in estimates]) < 0.23


@pytest.mark.parametrize("seed", [9, 10, 11])
def test_garbage_is_not_the_measure_of_the_other_unknowns(seed: int) -> None:
    """Ten of 3,010 queries lie beyond everything; taken at their word, novelty would be 4."""
    queries = mixed(2400, 600, unknown_mean=UNKNOWN_MEAN, seed=seed)
    garbage = one_column(np.append(queries.log_mass, np.full(10, -1e6)))
    estimate = estimate_unknown_share(MODEL, garbage, seed=0, n_resamples=2)
    assert estimate.novelty <= NOVELTIES[1]
    assert estimate.share > 0.16  # at a novelty of 4 it would be 0.04


def test_known_queries_farther_than_rehearsed() -> None:
    rng = np.random.default_rng(7)
    queries = one_column(np.concatenate([rng.normal(-0.4, 1, 9500), rng.normal(-4.5, 1, 500)]))
    plain = estimate_unknown_share(MODEL, queries, seed=0, shifted=False)
    shifted = estimate_unknown_share(MODEL, queries, seed=0)
    assert abs(shifted.share - 0.05) < 0.02 < abs(plain.share - 0.05)
    assert shifted.drift > 0


def test_standard_error_is_the_spread_over_draws() -> None:
    estimates = [
        estimate_unknown_share(
            MODEL,
            mixed(800, 200, unknown_mean=UNKNOWN_MEAN, seed=seed),
            seed=0,
            shifted=False,
            n_resamples=60,
        )
        for seed in range(40)
    ]
    # The numbers of known and unknown are fixed here; in a resample they scatter, too.
    fixed_numbers = np.var([estimate.share for estimate in estimates], ddof=1)
    spread = np.sqrt(fixed_numbers + 0.2 * 0.8 / 1000)
    claimed = np.mean([estimate.standard_error for estimate in estimates])
    assert 0.75 < claimed / spread < 1.3


@pytest.mark.parametrize(("mean", "share"), [(0.5, 0.0), (-30.0, 0.999)])
def test_all_known_or_all_unknown(mean: float, share: float) -> None:
    queries = one_column(normal(mean, 500, seed=6))
    estimate = estimate_unknown_share(MODEL, queries, seed=0, shifted=False)
    assert estimate.share == pytest.approx(share, abs=0.01)
    MODEL.p_known(queries, estimate.share)


def test_the_seed_decides() -> None:
    queries = mixed(400, 100, unknown_mean=UNKNOWN_MEAN, seed=0)
    first, again, other = (
        estimate_unknown_share(MODEL, queries, seed=seed, n_resamples=20) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.share == other.share
    assert first.standard_error != other.standard_error


def test_what_is_refused() -> None:
    queries = mixed(4, 1, unknown_mean=UNKNOWN_MEAN, seed=0)
    with pytest.raises(InvalidInputError, match="level"):
        estimate_unknown_share(MODEL, queries, seed=0, level=95)
    with pytest.raises(InvalidInputError, match="n_resamples"):
        estimate_unknown_share(MODEL, queries, seed=0, n_resamples=1)
    with pytest.raises(InvalidInputError, match="at least one query"):
        estimate_unknown_share(MODEL, one_column(np.array([])), seed=0)


def test_by_default_there_are_100_resamples_and_19_of_20_are_covered() -> None:
    queries = mixed(400, 100, unknown_mean=UNKNOWN_MEAN, seed=0)
    usual = estimate_unknown_share(MODEL, queries, seed=1)
    assert usual == estimate_unknown_share(MODEL, queries, seed=1, n_resamples=100, level=0.95)
    assert usual != estimate_unknown_share(MODEL, queries, seed=1, n_resamples=101)
    assert usual.level == 0.95
