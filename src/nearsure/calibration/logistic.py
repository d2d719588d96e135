"""Logistic regression without a penalty, on a few columns: what Platt and Beta are fitted by.

Scikit-learn has it too, but only for targets that are 0 or 1; where a threshold parts right from
wrong, the targets must lie between.
"""

import numpy as np
from scipy.special import expit

from nearsure.arrays import BoolArray, FloatArray

# Confidences of exactly 0 and 1 have no logit; they count as this far away from it.
LOGIT_MARGIN = 1e-6
# Newton's steps end here: far below what any table shows.
STEP_TOLERANCE = 1e-10
MAX_STEPS = 200


def inside(confidence: FloatArray) -> FloatArray:
    """Confidences moved away from 0 and 1, where logarithms end."""
    return np.clip(confidence, LOGIT_MARGIN, 1.0 - LOGIT_MARGIN)


def targets_of(x: FloatArray, correct: BoolArray) -> FloatArray:
    """What to regress on x, of shape (n,), where some rows are right and some wrong: 1 and 0.

    If some threshold parts right from wrong the slope would be infinite: then Platt's own targets,
    (n_right + 1) / (n_right + 2) and 1 / (n_wrong + 2), keep it finite.
    """
    targets = correct.astype(np.float64)
    right, wrong = x[correct], x[~correct]
    if wrong.max() <= right.min() or right.max() <= wrong.min():
        targets[correct] = (len(right) + 1) / (len(right) + 2)
        targets[~correct] = 1 / (len(wrong) + 2)
    return targets


def likeliest(design: FloatArray, targets: FloatArray) -> FloatArray:
    """Coefficients by Newton's method; a step that raises the convex loss is halved.

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
    loss = _loss(design @ coefficients, targets)
    for _ in range(MAX_STEPS):
        p = expit(design @ coefficients)
        slope = design.T @ (p - targets)
        curvature = (design * (p * (1.0 - p))[:, None]).T @ design
        step = np.linalg.solve(curvature, slope)
        while (new := _loss(design @ (coefficients - step), targets)) > loss:
            step /= 2.0
            if np.abs(step).max() < STEP_TOLERANCE:
                break
        coefficients, loss = coefficients - step, min(new, loss)
        if np.abs(step).max() < STEP_TOLERANCE:
            break
    return coefficients


def _loss(logits: FloatArray, targets: FloatArray) -> float:
    return float((np.logaddexp(0.0, logits) - targets * logits).sum())
