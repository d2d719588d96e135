"""Isotonic regression: the ascending curve nearest to being right."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression

from nearsure.arrays import FloatArray
from nearsure.calibration.calibrator import asked_confidence
from nearsure.calibration.plain_numbers import PlainNumbers, check_fractions
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_scored


@dataclass(frozen=True)
class Isotonic(PlainNumbers):
    """An ascending line through knots, level beyond the first and the last; `fit` makes it.

    Parameters
    ----------
    confidence, calibrated : tuple of float
        The knots, both ascending.

    References
    ----------
    Zadrozny, Elkan: Transforming Classifier Scores into Accurate Multiclass Probability Estimates.
    KDD 2002.

    Examples
    --------
    >>> calibrator = Isotonic.fit([0.2, 0.4, 0.6, 0.8], [False, True, False, True])
    >>> calibrator([0.1, 0.5, 0.7, 1.0])
    array([0.  , 0.5 , 0.75, 1.  ])
    """

    name: ClassVar[str] = "isotonic"
    confidence: tuple[float, ...]
    calibrated: tuple[float, ...]

    def __post_init__(self) -> None:
        check_fractions("Isotonic", "confidence", self.confidence)
        check_fractions("Isotonic", "calibrated", self.calibrated)
        n_knots = len(self.confidence)
        if (
            not n_knots
            or n_knots != len(self.calibrated)
            or (np.diff(self.confidence) <= 0).any()
            or (np.diff(self.calibrated) < 0).any()
        ):
            raise InvalidInputError(
                "The knots of Isotonic must be ascending, one 'calibrated' for each 'confidence'. "
                f"Got {n_knots} and {len(self.calibrated)} or descending ones instead: make it "
                "with Isotonic.fit."
            )

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> Self:
        """The ascending function nearest to being right, in squares.

        Where all confidences are equal, or all rows alike right or wrong, it is the share that is
        right. It reaches 0 below the first row that is right, and 1 above the last that is wrong.

        Parameters
        ----------
        confidence : array-like of shape (n,)
            A rule's confidence in each of its labels, in [0, 1].
        correct : array-like of shape (n,)
            Whether the label is right: boolean, or 0 and 1.
        """
        confidence, correct = check_scored(confidence, correct)
        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        model.fit(confidence, correct.astype(np.float64))
        return cls(tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist()))

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        asked = asked_confidence(confidence)
        # Interpolation may round to a last bit above 1.
        return np.clip(np.interp(asked, self.confidence, self.calibrated), 0.0, 1.0)
