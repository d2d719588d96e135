"""The chance that a query's true class is not among its neighbours, by the query's confidence.

One share for all queries is right on average, and wrong for each: a query whose neighbours agree
has hardly ever missed its class. The logit of the chance is a line in the logit of the confidence.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError

# A confidence of 1 has no logit; it counts as this much less.
SMALLEST_DOUBT = 1e-4
# A share of 0 has no logit either.
SMALLEST_SHARE = 1e-9
# Hardly a penalty, but enough for a finite answer where a threshold parts misses from hits.
PENALTY_INVERSE = 1e4
# Wide enough to move any line to any share: confidences have logits up to 9.
WIDEST_SHIFT = 1e4


@dataclass(frozen=True)
class MissedByConfidence:
    """logit(share) = intercept + slope logit(confidence); `fit` makes it.

    Parameters
    ----------
    slope : float
        At most 0: the surer, the less is missed.
    intercept : float
        Logit of the share at a confidence of 1/2.

    Examples
    --------
    >>> missed = MissedByConfidence(slope=-1.0, intercept=0.0)
    >>> missed([0.5, 0.75])
    array([0.5 , 0.25])
    """

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        if not (-np.inf < self.slope <= 0 and np.isfinite(self.intercept)):
            raise InvalidInputError(
                "slope must be a finite number of at most 0, and intercept a finite number. "
                f"Got {self.slope!r} and {self.intercept!r} instead."
            )

    @classmethod
    def fit(cls, confidence: ArrayLike, missed: ArrayLike, share: float) -> Self:
        """The line of greatest likelihood on leave-one-out points, moved to a mean of `share`.

        Leave-one-out points miss more than queries do: their slope is taken, their level is not.

        Parameters
        ----------
        confidence : array of shape (n,)
            Of leave-one-out points.
        missed : array of shape (n,)
            Whether their class is not among their neighbours.
        share : float
            The share that queries miss, as `MissedMass` estimates it.
        """
        doubts = _logits(confidence)
        outcomes = np.asarray(missed)
        if outcomes.dtype.kind != "b" or outcomes.shape != doubts.shape or not outcomes.size:
            raise InvalidInputError(
                "confidence and missed must have one number and one truth value for each point. "
                f"Got shapes {doubts.shape} and {outcomes.shape} of {outcomes.dtype} instead."
            )
        if not 0 <= share <= 1:
            raise InvalidInputError(f"share must lie in [0, 1]. Got {share!r} instead.")
        level = float(np.clip(share, SMALLEST_SHARE, 1.0 - SMALLEST_SHARE))
        slope = 0.0
        if outcomes.any() and not outcomes.all():
            line = LogisticRegression(C=PENALTY_INVERSE).fit(doubts[:, None], outcomes)
            slope = min(float(line.coef_[0, 0]), 0.0)
        intercept = brentq(
            lambda shift: float(expit(slope * doubts + shift).mean()) - level,
            -WIDEST_SHIFT,
            WIDEST_SHIFT,
        )
        return cls(slope, float(intercept))

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Share of each query, of the shape of `confidence`, for `leave_room`."""
        return np.asarray(expit(self.intercept + self.slope * _logits(confidence)), np.float64)

    def to_dict(self) -> dict[str, Any]:
        """The line as numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(**fields)


def _logits(confidence: ArrayLike) -> FloatArray:
    values = np.asarray(confidence, np.float64)
    if values.size and not ((values >= 0) & (values <= 1)).all():
        raise InvalidInputError(
            f"confidence must lie in [0, 1]. Got {values.min()} to {values.max()} instead."
        )
    return np.asarray(logit(np.clip(values, SMALLEST_DOUBT, 1.0 - SMALLEST_DOUBT)), np.float64)
