"""Post-hoc calibration of the top label's confidence: fitted once, then only applied.

A calibrator maps a confidence to another one and never touches the label, so accuracy stays the
rule's. Both kinds are kept as the few numbers that they are, which nothing changes afterwards.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from nearsure.arrays import BoolArray, FloatArray
from nearsure.metrics.validation import check_scored

# Confidences of exactly 0 and 1 have no logit; they count as this far away from it.
LOGIT_MARGIN = 1e-6
# Newton's steps end here: far below what any table shows.
STEP_TOLERANCE = 1e-10
MAX_STEPS = 200


class Calibrator(Protocol):
    """What turns a confidence into a calibrated one."""

    def __call__(self, confidence: FloatArray) -> FloatArray:
        """Calibrated confidences of the same shape, in [0, 1]."""
        ...


@dataclass(frozen=True)
class Unchanged:
    """The rule's own confidence."""

    def __call__(self, confidence: FloatArray) -> FloatArray:
        """The same confidences."""
        return confidence


@dataclass(frozen=True)
class Isotonic:
    """An ascending line through knots, level beyond the first and the last; `fit` makes it.

    Parameters
    ----------
    confidence, calibrated : tuple of float
        The knots, both ascending.

    Examples
    --------
    >>> calibrator = Isotonic.fit(np.array([0.2, 0.4, 0.6, 0.8]), np.array([0, 1, 0, 1]) > 0)
    >>> calibrator(np.array([0.1, 0.5, 0.7, 1.0]))
    array([0.  , 0.5 , 0.75, 1.  ])
    """

    confidence: tuple[float, ...]
    calibrated: tuple[float, ...]

    @classmethod
    def fit(cls, confidence: FloatArray, correct: BoolArray) -> "Isotonic":
        """The ascending function nearest to being right, in squares.

        Parameters
        ----------
        confidence : array of shape (n,)
            A rule's confidence in each of its labels.
        correct : array of shape (n,)
            Whether the label is right.
        """
        confidence, correct = check_scored(confidence, correct)
        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        model.fit(confidence, correct.astype(np.float64))
        return cls(tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist()))

    def __call__(self, confidence: FloatArray) -> FloatArray:
        """Calibrated confidences of the same shape."""
        # Interpolation may round to a last bit above 1.
        return np.clip(np.interp(confidence, self.confidence, self.calibrated), 0.0, 1.0)


@dataclass(frozen=True)
class Platt:
    """Logistic regression on the confidence's logit, without a penalty; `fit` makes it.

    On the logit, and not on the confidence itself, the family holds the identity (slope 1,
    intercept 0): what is calibrated already can be left alone.

    Parameters
    ----------
    slope, intercept : float
        The calibrated logit is ``slope * logit + intercept``.
    constant : float or None
        The answer to every confidence, where the data do not determine a line.

    References
    ----------
    Platt: Probabilistic Outputs for Support Vector Machines. Advances in Large Margin
    Classifiers, 1999.

    Examples
    --------
    >>> Platt.fit(np.ones(4), np.array([True, True, True, False]))(np.array([0.3, 1.0]))
    array([0.75, 0.75])
    """

    slope: float
    intercept: float
    constant: float | None = None

    @classmethod
    def fit(cls, confidence: FloatArray, correct: BoolArray) -> "Platt":
        """The line of greatest likelihood.

        There is none if all confidences are equal or all rows alike right or wrong: then the
        answer is the share that is right. If some threshold parts right from wrong the slope
        would be infinite: then Platt's own targets, (n_right + 1) / (n_right + 2) and
        1 / (n_wrong + 2) in place of 1 and 0, keep it finite.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        """
        confidence, correct = check_scored(confidence, correct)
        x = _logit(confidence)
        if correct.all() or not correct.any() or x.min() == x.max():
            return cls(0.0, 0.0, float(correct.mean()))
        targets = correct.astype(np.float64)
        right, wrong = x[correct], x[~correct]
        if wrong.max() <= right.min() or right.max() <= wrong.min():
            targets[correct] = (len(right) + 1) / (len(right) + 2)
            targets[~correct] = 1 / (len(wrong) + 2)
        return cls(*_most_likely_line(x, targets))

    def __call__(self, confidence: FloatArray) -> FloatArray:
        """Calibrated confidences of the same shape."""
        if self.constant is not None:
            return np.full(np.shape(confidence), self.constant)
        return np.asarray(expit(self.slope * _logit(confidence) + self.intercept), np.float64)


def _logit(confidence: FloatArray) -> FloatArray:
    inside = np.clip(confidence, LOGIT_MARGIN, 1.0 - LOGIT_MARGIN)
    return np.asarray(logit(inside), np.float64)


def _most_likely_line(x: FloatArray, targets: FloatArray) -> tuple[float, float]:
    """Slope and intercept by Newton's method; a step that raises the convex loss is halved."""
    design = np.stack([x, np.ones_like(x)], axis=1)
    line = np.zeros(2)
    loss = _loss(design @ line, targets)
    for _ in range(MAX_STEPS):
        p = expit(design @ line)
        slope = design.T @ (p - targets)
        curvature = (design * (p * (1.0 - p))[:, None]).T @ design
        step = np.linalg.solve(curvature, slope)
        while (new := _loss(design @ (line - step), targets)) > loss:
            step /= 2.0
            if np.abs(step).max() < STEP_TOLERANCE:
                break
        line, loss = line - step, min(new, loss)
        if np.abs(step).max() < STEP_TOLERANCE:
            break
    return float(line[0]), float(line[1])


def _loss(logits: FloatArray, targets: FloatArray) -> float:
    return float((np.logaddexp(0.0, logits) - targets * logits).sum())
