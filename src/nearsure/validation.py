"""Checks of arguments at public entry points, with one form of message."""

from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError

LARGEST_ID = np.iinfo(np.int64).max
FEW = 5


def integer_ids(ids: ArrayLike, n: int | None = None, name: str = "ids") -> IntArray:
    """Ids as an int64 array of shape (n,), or an error that says what they must be."""
    array: AnyArray = np.asarray(ids)
    shape = array.shape if n is None else (n,)
    if array.ndim != 1 or array.shape != shape:
        raise InvalidInputError(
            f"{name} must be one integer for each of {'the' if n is None else n} points, in an "
            f"array of one dimension. Got an array of shape {array.shape} instead."
        )
    if array.size and array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be 64-bit integers. Got an array of {array.dtype} instead."
        )
    if array.dtype.kind == "u" and array.size and array.max() > LARGEST_ID:
        raise InvalidInputError(f"{name} must be at most {LARGEST_ID}. Got {array.max()} instead.")
    return array.astype(np.int64)


def check_distinct(ids: IntArray) -> None:
    """An error that names a few ids if some come twice."""
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise InvalidInputError(
            f"ids must be distinct. Got {preview(distinct[counts > 1].tolist())} more than once."
        )


def preview(numbers: list[int]) -> str:
    """The first few of many numbers, for a message."""
    named = ", ".join(map(str, numbers[:FEW]))
    return named if len(numbers) <= FEW else f"{named} and {len(numbers) - FEW} more"


def integer_codes(labels: ArrayLike, n: int | None = None, name: str = "labels") -> IntArray:
    """Labels, of n points if n is given, as int64 class codes; or an error about them."""
    codes = np.asarray(labels)
    if codes.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be integer class codes. Got an array of {codes.dtype} instead. "
            "classes, codes = numpy.unique(gallery_labels, return_inverse=True) makes them."
        )
    if n is not None and codes.shape != (n,):
        raise InvalidInputError(
            f"{name} must be one class code for each of the {n} points. "
            f"Got an array of shape {codes.shape} instead."
        )
    return codes.astype(np.int64, copy=False)


def check_confidence(confidence: ArrayLike) -> FloatArray:
    """Return ``confidence`` as float64 of shape (n,), n >= 1, every value in [0, 1]."""
    values = _one_dimensional("confidence", confidence)
    if values.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"The 'confidence' parameter must hold numbers in [0, 1]. Got an array of type "
            f"{values.dtype} instead: pass the confidence of each row as a float."
        )
    checked = values.astype(np.float64)
    # The negated test also catches NaN, for which every comparison is false.
    outside = ~((checked >= 0.0) & (checked <= 1.0))
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise InvalidInputError(
            f"The 'confidence' parameter must hold numbers in [0, 1]. Got {checked[row]} at row "
            f"{row} instead: pass probabilities, not percentages, scores or distances."
        )
    return checked


def check_correct(correct: ArrayLike) -> BoolArray:
    """Return ``correct`` as bool of shape (n,), n >= 1; 0 and 1 of any type are taken too."""
    values = _one_dimensional("correct", correct)
    if values.dtype.kind == "b":
        return values
    if values.dtype.kind not in "fiu" or not np.isin(values, (0, 1)).all():
        odd = values[~np.isin(values, (0, 1))][:3].tolist()
        raise InvalidInputError(
            f"The 'correct' parameter must be boolean, or hold only 0 and 1. Got {odd} of type "
            f"{values.dtype} instead: pass predicted_labels == true_labels."
        )
    return values.astype(np.bool_)


def check_scored(confidence: ArrayLike, correct: ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Return both arrays checked and of the same length."""
    checked_confidence = check_confidence(confidence)
    checked_correct = check_correct(correct)
    check_same_length(confidence=len(checked_confidence), correct=len(checked_correct))
    return checked_confidence, checked_correct


def check_labels(labels: ArrayLike, *, n_rows: int) -> IntArray:
    """Return ``labels`` as int64 class codes of shape (n_rows,), n_rows >= 1."""
    values = _one_dimensional("labels", labels)
    if values.dtype.kind not in "iu":
        raise InvalidInputError(
            f"The 'labels' parameter must hold integer class codes. Got an array of type "
            f"{values.dtype} instead: encode the labels as the posterior's classes are."
        )
    check_same_length(posterior=n_rows, labels=len(values))
    return values.astype(np.int64)


def check_same_length(**lengths: int) -> None:
    """Raise unless the named arguments have equally many rows."""
    if len(set(lengths.values())) > 1:
        names = " and ".join(f"'{name}'" for name in lengths)
        came = " and ".join(str(length) for length in lengths.values())
        raise InvalidInputError(
            f"The {names} parameters must have the same number of rows. Got {came} instead: "
            f"pass one entry per query in each."
        )


def check_positive_integer(name: str, value: int) -> int:
    """Return ``value`` as int, or raise unless it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidInputError(
            f"The '{name}' parameter must be an integer of at least 1. Got {value!r} instead."
        )
    return int(value)


def check_open_fraction(name: str, value: float) -> float:
    """Return ``value`` as float, or raise unless it is a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < value < 1.0:
        raise InvalidInputError(
            f"The '{name}' parameter must be a number strictly between 0 and 1. "
            f"Got {value!r} instead{hint_at_fraction(value)}"
        )
    return float(value)


def hint_at_fraction(value: object) -> str:
    """The end of a sentence about a number, which asks what one like a percentage means.

    Examples
    --------
    >>> hint_at_fraction(99), hint_at_fraction(-1)
    (': did you mean 0.99?', '.')
    """
    if isinstance(value, Real) and 1.0 < float(value) < 100.0:  # noqa: PLR2004
        return f": did you mean {float(value) / 100:.6g}?"
    return "."


def generator_of(seed: int | np.random.Generator) -> np.random.Generator:
    """Return the generator itself, or a new one from an int; never an unseeded one."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InvalidInputError(
            f"The 'seed' parameter must be an int of at least 0 or a numpy.random.Generator. "
            f"Got {seed!r} instead: pass a fixed number to have the same result again."
        )
    return np.random.default_rng(int(seed))


def _one_dimensional(name: str, values: ArrayLike) -> AnyArray:
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInputError(
            f"The '{name}' parameter must be an array of shape (n,) with n >= 1. "
            f"Got shape {array.shape} instead: pass one entry per query."
        )
    return array
