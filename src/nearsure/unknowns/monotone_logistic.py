"""Logistic regression whose weights have a lower bound, and a bent line made of its pieces."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from nearsure.arrays import BoolArray, FloatArray


def fit_bounded_logistic(
    features: FloatArray,
    outcomes: BoolArray,
    *,
    lowest: float,
    usual: float,
) -> tuple[float, FloatArray]:
    """Intercept and weights of a logistic regression; both outcomes count the same in total.

    Parameters
    ----------
    features : array of shape (n, m)
        In comparable units.
    outcomes : array of shape (n,)
        Of both kinds.
    lowest : float
        No weight is below it.
    usual : float
        What a weight is drawn to. The pull is that of a single row, so that it matters only where
        the rows say little, and keeps the weights finite where the outcomes do not overlap.
    """
    n_true = int(outcomes.sum())
    shares = np.where(outcomes, 0.5 / n_true, 0.5 / (len(outcomes) - n_true))
    pull = 1 / len(outcomes)

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        intercept, weights = parameters[0], parameters[1:]
        log_odds = intercept + features @ weights
        away = weights - usual
        value = shares @ (np.logaddexp(0, log_odds) - outcomes * log_odds)
        slope = shares * (expit(log_odds) - outcomes)
        gradient = np.concatenate([[slope.sum()], features.T @ slope + pull * away])
        return float(value + 0.5 * pull * away @ away), gradient

    n_weights = features.shape[1]
    start = np.concatenate([[0.0], np.full(n_weights, max(lowest, usual))])
    bounds = [(None, None)] + [(lowest, None)] * n_weights
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    parameters = np.asarray(found.x, np.float64)
    return float(parameters[0]), parameters[1:]


def line_pieces(values: FloatArray, knots: FloatArray) -> FloatArray:
    """How far each value reaches into each stretch between knots, 0 at the first knot.

    Weighted by slopes and summed up, the columns are a line that bends at the knots.

    Parameters
    ----------
    values : array of shape (n,)
        Where to evaluate it.
    knots : array of shape (m,)
        Ascending.

    Returns
    -------
    array of shape (n, m + 1)

    Examples
    --------
    >>> line_pieces(np.array([-2.0, 0.5, 3.0]), np.array([0.0, 1.0]))
    array([[-2. ,  0. ,  0. ],
           [ 0. ,  0.5,  0. ],
           [ 0. ,  1. ,  2. ]])
    """
    below = np.minimum(values - knots[0], 0.0)
    lows, highs = knots, np.append(knots[1:], np.inf)
    above = np.clip(values[:, None], lows, highs) - lows
    return np.column_stack([below, above])
