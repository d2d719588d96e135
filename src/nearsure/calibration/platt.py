"""Platt scaling: a line on the confidence's logit."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from nearsure.arrays import FloatArray
from nearsure.calibration.calibrator import asked_confidence
from nearsure.calibration.logistic import inside, likeliest, targets_of
from nearsure.calibration.plain_numbers import PlainNumbers, check_finite, check_fractions
from nearsure.metrics.validation import check_scored

# Logits that differ by less differ by the rounding of sums or of float32, and hold no line.
SMALLEST_SPREAD = 1e-6


@dataclass(frozen=True)
class Platt(PlainNumbers):
    """Logistic regression on the confidence's logit, without a penalty; `fit` makes it.

    On the logit, and not on the confidence itself, the family holds the identity (slope 1,
    intercept 0): what is calibrated already can be left alone. Confidences of exactly 0 and 1 have
    no logit and count as 1e-6 and 1 - 1e-6.

    Parameters
    ----------
    slope, intercept : float
        The calibrated logit is ``slope * logit + intercept``. A slope below 0, of a rule that is
        more often wrong the surer it is, is left as it is.
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

    name: ClassVar[str] = "platt"
    slope: float
    intercept: float
    constant: float | None = None

    def __post_init__(self) -> None:
        check_finite("Platt", slope=self.slope, intercept=self.intercept)
        if self.constant is not None:
            check_fractions("Platt", "constant", [self.constant])

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> Self:
        """The line of greatest likelihood.

        There is none if all confidences are equal (but for rounding) or all rows alike right or
        wrong: then the answer is the share that is right. If some threshold parts right from wrong
        the slope would be infinite: then Platt's own targets, (n_right + 1) / (n_right + 2) and
        1 / (n_wrong + 2) in place of 1 and 0, keep it finite.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        """
        confidence, correct = check_scored(confidence, correct)
        x = _logit(confidence)
        if correct.all() or not correct.any() or x.max() - x.min() < SMALLEST_SPREAD:
            return cls(0.0, 0.0, float(correct.mean()))
        design = np.stack([x, np.ones_like(x)], axis=1)
        slope, intercept = likeliest(design, targets_of(x, correct)).tolist()
        return cls(slope, intercept)

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        asked = asked_confidence(confidence)
        if self.constant is not None:
            return np.full(asked.shape, self.constant)
        return np.asarray(expit(self.slope * _logit(asked) + self.intercept), np.float64)


def _logit(confidence: FloatArray) -> FloatArray:
    return np.asarray(logit(inside(confidence)), np.float64)
