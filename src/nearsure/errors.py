"""Every exception and warning of nearsure.

NearsureError
├── InvalidInputError (ValueError)       an argument is not what the function takes
├── MissingExtraError (ImportError)      an optional dependency is not installed
├── ModelFileError (ValueError)          a saved model is cut off, altered or of a newer format
└── DenseResultTooLargeError (MemoryError)  a dense matrix of probabilities would not fit

FitWarning (UserWarning)
├── ManyMissesWarning                 many points' class is not among their neighbours
└── DegenerateTemperatureWarning         the data do not determine the temperature

Unfitted use raises scikit-learn's ``NotFittedError``, and arrays that scikit-learn validates
(wrong dimension, NaN, no rows) raise its ``ValueError``.
"""


class NearsureError(Exception):
    """Base of every error that nearsure raises itself."""


class InvalidInputError(NearsureError, ValueError):
    """An argument is not what the function takes; the message says what is."""


class MissingExtraError(NearsureError, ImportError):
    """An optional dependency is missing; the message holds the install command."""


class ModelFileError(NearsureError, ValueError):
    """A saved model cannot be trusted: cut off, altered, foreign or of a newer format."""


class DenseResultTooLargeError(NearsureError, MemoryError):
    """A dense result would not fit in memory; the message names the sparse call."""


class FitWarning(UserWarning):
    """Base of the warnings about a fitted temperature."""


class ManyMissesWarning(FitWarning):
    """Many support points have no neighbour of their own class."""


class DegenerateTemperatureWarning(FitWarning):
    """The likelihood has no minimum inside the searched range of temperatures."""
