"""Platt scaling that leaves a confidence alone unless the points say otherwise."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, logit

from nearsure.arrays import FloatArray
from nearsure.calibration.calibrator import asked_confidence
from nearsure.calibration.logistic import inside
from nearsure.calibration.plain_numbers import PlainNumbers, check_finite
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_scored

# Before any point is seen slope and intercept are 1 and 0, give or take this much.
PRIOR_SPREAD = 1.0
# The surer a rule is, the surer it stays: no two answers change their order.
LOWEST_SLOPE = 0.01


@dataclass(frozen=True)
class ShrunkPlatt(PlainNumbers):
    """A line on the confidence's logit, drawn towards the identity; `fit` makes it.

    Where a handful of points, or points that are all right, would send an ordinary Platt scaling to
    certainty, this one stays near what the rule said. With hundreds of points the two agree.

    Parameters
    ----------
    slope, intercept : float
        The calibrated logit is ``slope * logit + intercept``; the slope is above 0.

    Examples
    --------
    >>> ShrunkPlatt.fit([0.9, 0.9, 0.8], [True, True, True])([0.5, 0.9]).round(2)
    array([0.55, 0.96])
    """

    name: ClassVar[str] = "shrunk"
    slope: float
    intercept: float

    def __post_init__(self) -> None:
        check_finite("ShrunkPlatt", slope=self.slope, intercept=self.intercept)
        if self.slope <= 0:
            raise InvalidInputError(f"The slope must be above 0. Got {self.slope} instead.")

    @classmethod
    def fit(
        cls, confidence: ArrayLike, correct: ArrayLike, *, weights: FloatArray | None = None
    ) -> Self:
        """The most probable line.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        weights : array of shape (n,), optional
            How much each point counts, in points; by default 1.
        """
        confidence, correct = check_scored(confidence, correct)
        x = np.asarray(logit(inside(confidence)), np.float64)
        counts = np.ones(len(x)) if weights is None else weights
        if counts.shape != x.shape or not (counts >= 0).all():
            raise InvalidInputError(
                f"weights must be one number >= 0 for each of the {len(x)} points. "
                f"Got an array of shape {counts.shape} instead."
            )

        def loss(line: FloatArray) -> tuple[float, FloatArray]:
            logits = line[0] * x + line[1]
            away = (line - (1.0, 0.0)) / PRIOR_SPREAD
            residuals = counts * (expit(logits) - correct)
            value = counts @ (np.logaddexp(0.0, logits) - correct * logits) + away @ away / 2
            slopes = np.array([residuals @ x, residuals.sum()]) + away / PRIOR_SPREAD
            return float(value) / len(x), slopes / len(x)

        best = minimize(
            loss,
            np.array([1.0, 0.0]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(LOWEST_SLOPE, None), (None, None)],
            tol=1e-12,
        )
        return cls(float(best.x[0]), float(best.x[1]))

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        x = logit(inside(asked_confidence(confidence)))
        return np.asarray(expit(self.slope * x + self.intercept), np.float64)
