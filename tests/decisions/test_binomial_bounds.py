"""Clopper-Pearson bounds against scipy and against the binomial distribution itself."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from nearsure.decisions import at_least_p_value, lower_bound, upper_bound
from nearsure.errors import InvalidInputError

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
