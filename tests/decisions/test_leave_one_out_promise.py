"""Promises that rest on support points which left themselves out, on Gaussian classes.

Neither promise is proven for such points. Over 200 draws of a gallery of 300 points the promise of
a threshold was broken in 3% to 4% of the draws, where 5% are allowed, and the sets held the true
class of 94.8% and 90.0% of the queries, where 95% and 90% were asked for.
"""

import numpy as np
import pytest
from gaussian_draws import N_QUERIES, Draw, draw
from scipy.stats import binom

from nearsure.decisions import ScoreName, choose_threshold, fit_conformal, prediction_sets

N_DRAWS = 120
# What fails with a chance of 5% each time fails more often than this with a chance of 1 in 1000.
ALLOWED = binom.ppf(0.999, N_DRAWS, 0.05) / N_DRAWS  # 0.117


@pytest.fixture(scope="module")
def draws() -> list[Draw]:
    return [draw(seed) for seed in range(N_DRAWS)]


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
    assert np.mean(broken) <= ALLOWED
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
    assert np.mean(broken) <= ALLOWED


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
    assert np.std(coverage) / np.sqrt(N_DRAWS) < 0.002
    assert np.mean(coverage) == pytest.approx(1 - alpha, abs=0.01)
    assert np.mean(sizes) < largest_mean_size
