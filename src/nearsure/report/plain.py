"""From numpy's values to JSON's: labels and ids as text or integers, numbers without NaN."""

from math import isfinite

import numpy as np

from nearsure.arrays import IntArray
from nearsure.decisions.binomial_bounds import lower_bound, upper_bound
from nearsure.metrics import Interval
from nearsure.report.document import Estimate, Label

# Beyond it, JavaScript's numbers are no longer every integer.
LARGEST_INTEGER = 2**53 - 1
# Of each side; together they make the 95% of the document.
ONE_SIDED = 0.975


def plain_label(value: object) -> Label:
    """A label or an id as JSON has it.

    Integers stay integers as far as a browser can count, whole floats become integers, and all else
    is text: a truth value, too, which would otherwise look like 0 or 1.

    Examples
    --------
    >>> plain_label(np.int64(3)), plain_label(np.str_("wren")), plain_label(np.True_)
    (3, 'wren', 'True')
    >>> plain_label(2**60), plain_label(4.0)
    ('1152921504606846976', 4)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_INTEGER:
        return value
    return str(value)


def plain_number(value: float | None) -> float | None:
    """A finite float, or None."""
    return None if value is None or not isfinite(value) else float(value)


def estimate_of(interval: Interval) -> Estimate:
    """A bootstrapped number.

    All resamples of a single row, or of rows that are all alike, are the same. An interval without
    width then says nothing about the truth, and is left out.
    """
    low, high = plain_number(interval.low), plain_number(interval.high)
    if low is None or high is None or not low < high:
        low = high = None
    return Estimate(plain_number(interval.estimate), low, high)


def share_of(successes: int, trials: int) -> Estimate:
    """A share with its exact 95% interval (Clopper and Pearson); all None without trials.

    Examples
    --------
    >>> share = share_of(9, 10)
    >>> share.value, round(share.low, 3), round(share.high, 3)
    (0.9, 0.555, 0.997)
    """
    return shares_of(np.array([successes]), np.array([trials]))[0]


def shares_of(successes: IntArray, trials: IntArray) -> list[Estimate]:
    """Several of them at once."""
    lows = lower_bound(successes, trials, certainty=ONE_SIDED)
    highs = upper_bound(successes, trials, certainty=ONE_SIDED)
    return [
        Estimate(int(right) / int(tried), float(low), float(high)) if tried else Estimate(None)
        for right, tried, low, high in zip(successes, trials, lows, highs, strict=True)
    ]
