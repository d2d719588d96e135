"""Multinomial logistic regression, in the metric of the class means or one widened from it.

In that metric a few steps of L-BFGS suffice, and one strength of the penalty means the same for
every feature, whatever its unit.
"""

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.minimization import minimize

# Steps of the search. It starts from the solution for a stronger penalty, and is stopped early:
# held-out points gain nothing from the last digits.
MOST_STEPS = 30
SMALLEST_GAIN = 1e-4
# Points times features times classes that are multiplied in double precision.
LARGEST_IN_DOUBLE = 2e7
# Hardly a penalty, so that the intercept of a class is as free as it can be.
INTERCEPT_PENALTY = 1e-6


def fit_logistic_head(
    points: FloatArray,
    codes: IntArray,
    n_classes: int,
    strength: float,
    start: FloatArray | None = None,
) -> FloatArray:
    """Weights that maximise sum log p(own class) - strength / 2 |weights|^2.

    Parameters
    ----------
    points : array of shape (n, d)
        Whitened points, see `ClassMeans.whiten`.
    codes : array of shape (n,)
        Their classes.
    n_classes : int
        How many classes there are. One without points gets an intercept of minus infinity.
    strength : float
        Of the penalty, above 0.
    start : array of shape (n_classes, d + 1), optional
        Weights to start from; by default 0.

    Returns
    -------
    array of shape (n_classes, d + 1)
        Weights, with the intercepts in the last column.

    Examples
    --------
    >>> points = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> weights = fit_logistic_head(points, np.array([0, 0, 1, 1]), 2, strength=1.0)
    >>> bool(weights[1, 0] > 0 > weights[0, 0])
    True
    """
    present, own = np.unique(codes, return_inverse=True)
    n, d = points.shape
    # Single precision halves the time of what is large; the sums of the loss are in double.
    precision = np.float64 if n * (d + 1) * len(present) < LARGEST_IN_DOUBLE else np.float32
    inputs = np.ones((n, d + 1), precision)
    inputs[:, :d] = points
    rows = np.arange(n)
    penalty = np.full(d + 1, strength / n)
    penalty[-1] = INTERCEPT_PENALTY / n

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        weights = flat.reshape(len(present), d + 1)
        logits = inputs @ weights.T.astype(precision)
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits)
        sums = shares.sum(axis=1, keepdims=True)
        value = float((np.log(sums[:, 0]) - logits[rows, own]).sum(dtype=np.float64)) / n
        shares /= sums
        shares[rows, own] -= 1.0
        slope = (shares.T @ inputs).astype(np.float64) / n + penalty * weights
        return value + 0.5 * float((penalty * weights**2).sum()), slope.ravel()

    first = np.zeros((len(present), d + 1)) if start is None else start[present]
    found = minimize(
        loss,
        np.where(np.isfinite(first), first, 0.0).ravel(),
        options={"maxiter": MOST_STEPS, "ftol": SMALLEST_GAIN, "gtol": 1e-6},
    )
    weights = np.zeros((n_classes, d + 1))
    weights[:, -1] = -np.inf
    weights[present] = found.x.reshape(len(present), d + 1)
    return weights
