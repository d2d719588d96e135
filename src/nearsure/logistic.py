"""Logistic regression on a few columns: by Newton's method, or with bounds and a prior.

Scikit-learn's takes targets of 0 and 1 only, and no bounds.
"""

import numpy as np
from scipy.special import expit

from nearsure.arrays import BoolArray, FloatArray
from nearsure.minimization import minimize

# Newton's steps end here: far below what any table shows.
STEP_TOLERANCE = 1e-10
MAX_STEPS = 200


def fit_logistic(design: FloatArray, targets: FloatArray) -> FloatArray:
    """Find the coefficients by Newton's method; a step that raises the convex loss is halved.

    Parameters
    ----------
    design : array of shape (n, n_columns)
        Independent columns.
    targets : array of shape (n,)
        In [0, 1], and such that a finite best answer exists.

    Returns
    -------
    array of shape (n_columns,)
    """
    coefficients = np.zeros(design.shape[1])
    loss = _losses(design @ coefficients, targets).sum()
    for _ in range(MAX_STEPS):
        p = expit(design @ coefficients)
        slope = design.T @ (p - targets)
        curvature = (design * (p * (1.0 - p))[:, None]).T @ design
        step = np.linalg.solve(curvature, slope)
        while (new := _losses(design @ (coefficients - step), targets).sum()) > loss:
            step /= 2.0
            if np.abs(step).max() < STEP_TOLERANCE:
                break
        coefficients, loss = coefficients - step, min(new, loss)
        if np.abs(step).max() < STEP_TOLERANCE:
            break
    return coefficients


def fit_bounded_logistic(
    features: FloatArray,
    outcomes: BoolArray,
    row_weights: FloatArray,
    *,
    lowest: float,
    usual: float,
    pull: float,
    pull_intercept: bool = False,
    divisor: float = 1.0,
    tolerance: float | None = None,
) -> tuple[float, FloatArray]:
    """Intercept and weights, bounded from below and shrunk towards what is usual.

    Parameters
    ----------
    features : array of shape (n, m)
        In comparable units.
    outcomes : array of shape (n,)
        Of both kinds.
    row_weights : array of shape (n,)
        How much each row counts.
    lowest : float
        No weight is below it.
    usual : float
        What weights are shrunk towards. It matters only where the rows determine little, and keeps
        the weights finite where the outcomes do not overlap.
    pull : float
        How strongly, in units of a row's weight.
    pull_intercept : bool
        Whether the intercept is shrunk towards 0 as strongly.
    divisor : float
        What the loss is divided by before its fall is compared with the tolerance.
    tolerance : float, optional
        Of scipy's L-BFGS-B.
    """
    intercept_pull = pull if pull_intercept else 0.0

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        intercept, weights = parameters[0], parameters[1:]
        logits = intercept + features @ weights
        away = weights - usual
        penalty = 0.5 * (pull * away @ away + intercept_pull * intercept**2)
        slopes = row_weights * (expit(logits) - outcomes)
        gradient = np.append(
            slopes.sum() + intercept_pull * intercept, features.T @ slopes + pull * away
        )
        value = row_weights @ _losses(logits, outcomes) + penalty
        return float(value) / divisor, gradient / divisor

    n_weights = features.shape[1]
    found = minimize(
        loss,
        np.append(0.0, np.full(n_weights, max(lowest, usual))),
        bounds=[(None, None)] + [(lowest, None)] * n_weights,
        tolerance=tolerance,
    )
    return float(found.x[0]), np.asarray(found.x[1:], np.float64)


def _losses(logits: FloatArray, targets: FloatArray | BoolArray) -> FloatArray:
    return np.asarray(np.logaddexp(0.0, logits) - targets * logits, np.float64)
