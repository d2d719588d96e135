"""Differences between variants over splits, paired by the split."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t

from nearsure.errors import InvalidInputError
from nearsure.lab.ablation.measured import MEASURES
from nearsure.lab.ablation.results import Group
from nearsure.lab.ablation.variants import Variant
from nearsure.metrics import Interval

LEVEL = 0.95


def t_interval(values: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Mean of a few numbers with Student's interval; its ends are NaN for a single number.

    Parameters
    ----------
    values : array of shape (n,)
        One for each seed.
    level : float
        Nominal coverage.

    Examples
    --------
    >>> interval = t_interval([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), interval.estimate, round(interval.high, 3)
    (-0.484, 2.0, 4.484)
    """
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise InvalidInputError(
            f"values must be numbers of shape (n,), at least one. Got shape {numbers.shape}."
        )
    mean = float(numbers.mean())
    if len(numbers) == 1:
        return Interval(mean, float("nan"), float("nan"), level)
    error = float(numbers.std(ddof=1)) / float(np.sqrt(len(numbers)))
    reach = float(t.ppf((1 + level) / 2, len(numbers) - 1)) * error
    return Interval(mean, mean - reach, mean + reach, level)


def difference(group: Group, one: Variant, other: Variant, measure: str) -> Interval:
    """What `one` has more than `other`, on the seeds that both were measured with.

    Parameters
    ----------
    group : Group
        The trials.
    one, other : Variant
        Whom to compare.
    measure : {"accuracy", "ece", "floor", "brier", "overconfidence"}
        In what.
    """
    if measure not in MEASURES:
        raise InvalidInputError(f"measure must be one of {MEASURES}. Got {measure!r} instead.")
    ours, theirs = group.rows(one), group.rows(other)
    seeds = [seed for seed in ours if seed in theirs]
    return t_interval([getattr(ours[s], measure) - getattr(theirs[s], measure) for s in seeds])
