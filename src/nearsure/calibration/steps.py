"""A map that is level between edges."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray
from nearsure.calibration.calibrator import asked_confidence
from nearsure.calibration.plain_numbers import PlainNumbers, check_fractions
from nearsure.errors import InvalidInputError


@dataclass(frozen=True)
class Steps(PlainNumbers):
    """One answer for each bin of confidences.

    Parameters
    ----------
    edges : tuple of float
        The inner edges, ascending; a confidence on an edge belongs to the bin above it.
    calibrated : tuple of float
        The answers, one more than there are edges.
    """

    edges: tuple[float, ...]
    calibrated: tuple[float, ...]

    def __post_init__(self) -> None:
        owner = type(self).__name__
        check_fractions(owner, "edges", self.edges)
        check_fractions(owner, "calibrated", self.calibrated)
        if len(self.calibrated) != len(self.edges) + 1 or (np.diff(self.edges) <= 0).any():
            raise InvalidInputError(
                f"{owner} must have ascending edges and one answer more than edges. Got "
                f"{len(self.edges)} edges and {len(self.calibrated)} answers, or edges that do not "
                f"ascend, instead: make it with {owner}.fit."
            )

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        places = np.searchsorted(self.edges, asked_confidence(confidence), side="right")
        return np.array(self.calibrated, np.float64)[places]
