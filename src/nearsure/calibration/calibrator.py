"""What every calibrator of the top label's confidence can do, and the one that does nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray
from nearsure.calibration.plain_numbers import PlainNumbers
from nearsure.metrics.validation import check_confidence, check_scored


class Calibrator(Protocol):
    """A few plain numbers that map a confidence to a calibrated one."""

    name: ClassVar[str]

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> Self:
        """Learn the map.

        Parameters
        ----------
        confidence : array-like of shape (n,)
            A rule's confidence in each of its labels, in [0, 1].
        correct : array-like of shape (n,)
            Whether the label is right: boolean, or 0 and 1.
        """
        ...

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Its name and numbers, for JSON."""
        ...

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape, in [0, 1]."""
        ...


@dataclass(frozen=True)
class Unchanged(PlainNumbers):
    """The rule's own confidence.

    Examples
    --------
    >>> Unchanged()([0.2, 0.9])
    array([0.2, 0.9])
    """

    name: ClassVar[str] = "none"

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> Self:
        """Learn nothing; the arguments, as of `Calibrator.fit`, are checked like any other's."""
        check_scored(confidence, correct)
        return cls()

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """The same confidences."""
        return asked_confidence(confidence)


def asked_confidence(confidence: ArrayLike) -> FloatArray:
    """What a fitted calibrator is asked about, as float64: of any shape, none at all included."""
    values = np.asarray(confidence)
    if not values.size:
        return np.zeros(values.shape)
    return check_confidence(values.ravel()).reshape(values.shape)
