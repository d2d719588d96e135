"""Exact bounds on a share that was measured on finitely many trials.

References
----------
Clopper, Pearson: The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial.
Biometrika 1934.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc
from scipy.stats import beta

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_open_fraction


def lower_bound(successes: ArrayLike, trials: ArrayLike, *, certainty: float = 0.95) -> FloatArray:
    """Return the share that the true one exceeds, with the given certainty.

    Parameters
    ----------
    successes : array-like of int
        How many trials succeeded.
    trials : array-like of int, broadcast against `successes`
        How many there were. No trials give the bound 0.
    certainty : float, default=0.95
        At least this share of all draws of the trials have a bound below the true share.

    Returns
    -------
    ndarray
        One-sided Clopper-Pearson bounds, in [0, 1), of the shape of the arguments.

    Examples
    --------
    >>> lower_bound([299, 298], 299).round(4).tolist()
    [0.99, 0.9842]
    """
    succeeded, tried = _checked_counts(successes, trials)
    level = 1.0 - check_open_fraction("certainty", certainty)
    # The beta distribution needs a positive first parameter; without a success the bound is 0.
    bound = beta.ppf(level, np.maximum(succeeded, 1), tried - succeeded + 1)
    return np.where(succeeded > 0, bound, 0.0)


def upper_bound(successes: ArrayLike, trials: ArrayLike, *, certainty: float = 0.95) -> FloatArray:
    """Return the share that the true one stays below, with the given certainty.

    Parameters
    ----------
    successes, trials : array-like of int
        As in :func:`lower_bound`. No trials give the bound 1.
    certainty : float, default=0.95
        At least this share of all draws of the trials have a bound above the true share.

    Returns
    -------
    ndarray
        One-sided Clopper-Pearson bounds, in (0, 1], of the shape of the arguments.

    Examples
    --------
    >>> upper_bound([0, 1], 299).round(4).tolist()
    [0.01, 0.0158]
    """
    succeeded, tried = _checked_counts(successes, trials)
    return 1.0 - lower_bound(tried - succeeded, tried, certainty=certainty)


def at_least_p_value(successes: ArrayLike, trials: ArrayLike, *, share: float) -> FloatArray:
    """Return the chance of so many successes or more if the true share were only `share`.

    A small value speaks for a true share of at least `share`: it is at most ``1 - certainty``
    exactly where ``lower_bound(successes, trials, certainty=certainty) >= share``.

    Parameters
    ----------
    successes, trials : array-like of int
        As in :func:`lower_bound`.
    share : float
        The share in question, in (0, 1).

    Returns
    -------
    ndarray
        Exact binomial tail probabilities, in [0, 1].

    Examples
    --------
    >>> at_least_p_value([2, 1, 0], 2, share=0.5).tolist()
    [0.25, 0.75, 1.0]
    """
    succeeded, tried = _checked_counts(successes, trials)
    check_open_fraction("share", share)
    tail = betainc(np.maximum(succeeded, 1), tried - succeeded + 1, share)
    return np.where(succeeded > 0, tail, 1.0)


def _checked_counts(successes: ArrayLike, trials: ArrayLike) -> tuple[IntArray, IntArray]:
    succeeded, tried = np.asarray(successes), np.asarray(trials)
    for name, counts in (("successes", succeeded), ("trials", tried)):
        if counts.dtype.kind not in "iu":
            raise InvalidInputError(
                f"The '{name}' parameter must hold integers. Got an array of type {counts.dtype} "
                f"instead: pass counts, not shares."
            )
    succeeded, tried = np.broadcast_arrays(succeeded.astype(np.int64), tried.astype(np.int64))
    if not ((succeeded >= 0) & (succeeded <= tried)).all():
        raise InvalidInputError(
            "The 'successes' parameter must lie between 0 and the number of trials. "
            f"Got successes from {succeeded.min()} to {succeeded.max()} and trials from "
            f"{tried.min()} to {tried.max()} instead."
        )
    return succeeded, tried
