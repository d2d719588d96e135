"""Every exception and warning of nearsure.

NearsureError
├── InvalidInputError (ValueError)       an argument is not what the function takes
├── MissingExtraError (ImportError)      an optional dependency is not installed
├── ModelFileError (ValueError)          a saved model is cut off, altered or of another format
├── EmbeddingsFileError (ValueError)     a file of embeddings is missing, broken or lacks a part
├── ConfigError (ValueError)             a run's configuration has an unknown key or a bad value
├── DatasetError (ValueError)            images on disk are not the data set that was named
│   └── BrokenImageError                 one or more image files cannot be decoded
├── ZeroGradientError                    an attack had no gradient to follow
├── EngineError                          an engine could not do what it was asked
│   ├── EngineUnavailableError (ConnectionError)  it cannot be reached, or went away
│   ├── EngineAccessError (PermissionError)  it refuses: password, rights, a read-only server
│   ├── GalleryNotFoundError (LookupError)  it has no such table or collection
│   ├── GalleryMismatchError (ValueError)  what it holds does not fit what was asked for
│   ├── UnusableGalleryError             a point has no label, or all points are gone
│   └── PartialGalleryError              a load was cut off; the gallery must not be taken for whole
├── PartitionsFailedError                partitions of a data set could not be scored or searched
└── DenseResultTooLargeError (MemoryError)  a dense matrix of probabilities would not fit

FitWarning (UserWarning)
├── ManyMissesWarning                 many points' class is not among their neighbours
├── DegenerateTemperatureWarning      the data do not determine the temperature
├── LowRecallWarning                  an approximate engine misses many of the true neighbours
├── NearCopiesWarning                 near-copies carry the gallery's accuracy on itself
├── QueriesDifferWarning              queries are not like the gallery
├── UnknownsNotRecognizedWarning      classes that are left out look like those that are there
├── StaleFitWarning                   the gallery has changed much since the fit
└── EngineChangedWarning              what was fitted through one engine is used through another

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
    """A saved model cannot be trusted: cut off, altered, foreign or of another format."""


class EmbeddingsFileError(NearsureError, ValueError):
    """A file of embeddings is missing, unreadable, or lacks a part that was asked for."""


class ConfigError(NearsureError, ValueError):
    """A run's configuration has an unknown key or a value that is not allowed."""


class DatasetError(NearsureError, ValueError):
    """The images on disk are not the data set that was named: missing, half unpacked, misfit."""


class BrokenImageError(DatasetError):
    """One or more image files cannot be decoded; the message lists them."""


class ZeroGradientError(NearsureError):
    """An attack had no gradient to follow, so that its result would say nothing."""


class DenseResultTooLargeError(NearsureError, MemoryError):
    """A dense result would not fit in memory; the message names the sparse call."""


class EngineError(NearsureError):
    """An engine could not do what it was asked; the message names it, without its secrets."""


class EngineUnavailableError(EngineError, ConnectionError):
    """An engine cannot be reached or went away; what was asked may be asked again."""


class EngineAccessError(EngineError, PermissionError):
    """An engine refuses: a wrong password, missing rights, a read-only server."""


class GalleryNotFoundError(EngineError, LookupError):
    """An engine has no such table or collection."""


class GalleryMismatchError(EngineError, ValueError):
    """What an engine holds does not fit what was asked for: dimension, metric, kind of ids."""


class UnusableGalleryError(EngineError):
    """What an engine holds cannot be answered from: a point has no label, or all are gone."""


class PartialGalleryError(EngineError):
    """A load was cut off: repeat it with the same points, or undo it, before any use."""


class PartitionsFailedError(NearsureError):
    """Partitions of a data set could not be worked on; `failed` has their names and reasons."""

    def __init__(self, message: str, failed: dict[str, str]) -> None:
        super().__init__(message, failed)
        self.message = message
        self.failed = failed

    def __str__(self) -> str:
        return self.message


class FitWarning(UserWarning):
    """Base of the warnings about what was fitted."""


class ManyMissesWarning(FitWarning):
    """Many support points have no neighbour of their own class."""


class DegenerateTemperatureWarning(FitWarning):
    """The likelihood has no minimum inside the searched range of temperatures."""


class LowRecallWarning(FitWarning):
    """An approximate engine misses many of the true neighbours, with as much effort as it may."""


class NearCopiesWarning(FitWarning):
    """The gallery's points are right about themselves because near-copies of them are there."""


class UnknownsNotRecognizedWarning(FitWarning):
    """Points whose class is left out look as known to the gallery as all others."""


class StaleFitWarning(FitWarning):
    """The gallery has changed so much since the fit that confidence may no longer be calibrated."""


class EngineChangedWarning(FitWarning):
    """What was fitted through one engine, index type or parameter set is used through another."""


class QueriesDifferWarning(FitWarning):
    """Queries are not like the gallery, for which confidence was fitted and promises were made."""
