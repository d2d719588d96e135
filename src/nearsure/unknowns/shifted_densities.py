"""How densities of evidence change when queries are farther away than the gallery rehearsed."""

import numpy as np
from scipy.special import logsumexp

from nearsure.arrays import FloatArray

# Of which the most probable is sought: the mean novelty of unknowns, and drift.
NOVELTIES: FloatArray = np.linspace(0.0, 4.0, 21)
DRIFTS: FloatArray = np.linspace(0.0, 0.3, 13)
# Of single unknowns, up to twice the largest mean, and close enough for a line in between.
SINGLE_NOVELTIES: FloatArray = np.linspace(0.0, 8.0, 161)
N_SPREAD = 12
# Evenly from 0 to twice the mean. With one novelty for all, the farthest would set it, the near
# ones would be taken for known, and the share of unknowns found too small.
SPREAD: FloatArray = np.arange(1.0, 2 * N_SPREAD, 2.0) / N_SPREAD


def log_known_change(log_odds: FloatArray, drift: float, normalizers: FloatArray) -> FloatArray:
    """Log of drifted over rehearsed density of known evidence, r^-a normalised.

    Parameters
    ----------
    log_odds : array of shape (n,)
        log r, rehearsed.
    drift : float
        a.
    normalizers : array of shape (n_drifts,)
        From `log_mean_powers` of rehearsed known evidence and ``DRIFTS``.
    """
    return -drift * log_odds - np.interp(drift, DRIFTS, normalizers)


def log_unknown_change(log_odds: FloatArray, novelty: float, normalizers: FloatArray) -> FloatArray:
    """Log of real over rehearsed density of unknown evidence.

    Unknowns are not all equally far: the change is the mean of r^-b, each normalised, over b that
    lie evenly between 0 and twice the novelty.

    Parameters
    ----------
    log_odds : array of shape (n,)
        log r, rehearsed.
    novelty : float
        Mean of b.
    normalizers : array of shape (n_single_novelties,)
        From `log_mean_powers` of rehearsed unknown evidence and ``SINGLE_NOVELTIES``.

    Examples
    --------
    >>> log_odds = np.array([-3.0, -2.0, 1.0])
    >>> normalizers = log_mean_powers(log_odds, SINGLE_NOVELTIES)
    >>> change = np.exp(log_unknown_change(log_odds, 0.5, normalizers))
    >>> change.round(1), f"{change.mean():.2f}"  # the far counts more, the whole as before
    (array([1.7, 1. , 0.3]), '1.00')
    """
    single = novelty * SPREAD
    log_normalizers = np.interp(single, SINGLE_NOVELTIES, normalizers)
    changes = -single[:, None] * log_odds - log_normalizers[:, None]
    log_change: FloatArray = np.asarray(logsumexp(changes, axis=0)) - np.log(N_SPREAD)
    return log_change


def log_mean_powers(log_odds: FloatArray, exponents: FloatArray) -> FloatArray:
    """Log of the mean of r^-b for each b among the exponents, shape (n_exponents,)."""
    powers = np.asarray(logsumexp(-exponents[:, None] * log_odds, axis=1), np.float64)
    log_means: FloatArray = powers - np.log(len(log_odds))
    return log_means
