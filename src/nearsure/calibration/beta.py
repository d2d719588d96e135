"""Beta calibration: Platt's line bent, with one slope near 0 and another near 1."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from nearsure.arrays import FloatArray
from nearsure.calibration.calibrator import asked_confidence
from nearsure.calibration.logistic import inside, likeliest, targets_of
from nearsure.calibration.plain_numbers import PlainNumbers, check_finite, check_fractions
from nearsure.calibration.platt import Platt
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_scored

# Which of the two columns are kept, the fewest first.
SUBSETS: tuple[list[int], ...] = ([], [0], [1], [0, 1])
# A mean loss that falls less than this along a column that is left out falls by rounding.
SLOPE_TOLERANCE = 1e-9
# Below this, 1 - r^2 of the two columns is rounding: they are one column.
SAME_COLUMN = 1e-10


@dataclass(frozen=True)
class Beta(PlainNumbers):
    """Logistic regression on log p and -log(1 - p), ascending; `fit` makes it.

    It is the true map if the confidences of right and of wrong labels each have a beta
    distribution. The family holds the identity (a = b = 1, c = 0) and, with a = b, Platt's line.
    Confidences of exactly 0 and 1 count as 1e-6 and 1 - 1e-6.

    Parameters
    ----------
    a, b : float
        At least 0. The calibrated logit is ``a * log(p) - b * log(1 - p) + c``.
    c : float
        The intercept.
    constant : float or None
        The answer to every confidence, where the data do not determine a curve.

    References
    ----------
    Kull, Silva Filho, Flach: Beta Calibration: A Well-founded and Easily Implemented Improvement
    on Logistic Calibration for Binary Classifiers. AISTATS 2017.

    Examples
    --------
    >>> Beta(2.0, 2.0, 0.0)([0.5, 0.75])
    array([0.5, 0.9])
    """

    name: ClassVar[str] = "beta"
    a: float
    b: float
    c: float
    constant: float | None = None

    def __post_init__(self) -> None:
        check_finite("Beta", a=self.a, b=self.b, c=self.c)
        if self.a < 0 or self.b < 0:
            raise InvalidInputError(
                "The 'a' and 'b' of Beta must be at least 0, or a larger confidence would become a "
                f"smaller one. Got {self.a} and {self.b} instead: make it with Beta.fit."
            )
        if self.constant is not None:
            check_fractions("Beta", "constant", [self.constant])

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> Self:
        """The ascending curve of greatest likelihood.

        A column that would get a negative coefficient is dropped, as in the paper. If both would,
        if all confidences are equal, or all rows alike right or wrong, the answer is the share that
        is right. Two distinct confidences determine no more than a line: then a = b. If some
        threshold parts wrong from right, the targets are those of `Platt.fit`.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        """
        confidence, correct = check_scored(confidence, correct)
        line = Platt.fit(confidence, correct)
        if line.constant is not None:
            return cls(0.0, 0.0, 0.0, line.constant)
        columns = _columns(confidence)
        mean, scale = columns.mean(axis=0), columns.std(axis=0)
        scaled = (columns - mean) / scale
        if 1.0 - np.mean(scaled[:, 0] * scaled[:, 1]) ** 2 < SAME_COLUMN:
            a, b, c = line.slope, line.slope, line.intercept
        else:
            slopes, level = _likeliest_ascending(scaled, targets_of(columns[:, 0], correct))
            a, b = (slopes / scale).tolist()
            c = level - float(slopes @ (mean / scale))
        return cls(a, b, c) if max(a, b) > 0 else cls(0.0, 0.0, 0.0, float(correct.mean()))

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        asked = asked_confidence(confidence)
        if self.constant is not None:
            return np.full(asked.shape, self.constant)
        logits = _columns(asked) @ np.array([self.a, self.b]) + self.c
        return np.asarray(expit(logits), np.float64)


def _columns(confidence: FloatArray) -> FloatArray:
    p = inside(confidence)
    return np.stack([np.log(p), -np.log1p(-p)], axis=-1)


def _likeliest_ascending(scaled: FloatArray, targets: FloatArray) -> tuple[FloatArray, float]:
    """Slopes >= 0 of the two columns, and the level: the fewest that leave nothing to gain.

    The loss is convex, so that they are the best as soon as the slopes of the columns used are not
    negative and the loss does not fall along those left out. Both columns come last: by then both
    slopes are known to be positive, and finite.
    """
    slopes, level = np.zeros(2), 0.0
    for used in SUBSETS:
        design = np.column_stack([scaled[:, used], np.ones(len(scaled))])
        *found, level = likeliest(design, targets).tolist()
        slopes = np.zeros(2)
        slopes[used] = np.maximum(found, 0.0)
        falls = scaled.T @ (expit(design @ [*found, level]) - targets) / len(targets)
        left_out = [column for column in (0, 1) if column not in used]
        if min(found, default=0.0) >= 0 and (falls[left_out] >= -SLOPE_TOLERANCE).all():
            break
    return slopes, level
