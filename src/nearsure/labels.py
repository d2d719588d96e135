"""Labels of any kind that sorts, and the integer codes that stand for them everywhere inside."""

import json
from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import type_of_target

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError, ModelFileError

# Bytes that strings from a model may take, or else this many times what they take in the file.
LARGEST_NAMES = 2**30
SPREAD = 64


def label_array(y: ArrayLike) -> ArrayLike:
    """Labels as they are, but tuples in an array of one dimension, as each is one label.

    Examples
    --------
    >>> label_array([("cat", 1), ("dog", 2)]).shape
    (2,)
    """
    tuples = isinstance(y, list | tuple) and any(isinstance(label, tuple) for label in y)
    return np.fromiter(y, object) if tuples else y  # type: ignore[arg-type]


def classes_and_codes(y: AnyArray) -> tuple[AnyArray, IntArray]:
    """The classes, sorted, and the code of each label among them."""
    _check_names_classes(y)
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise InvalidInputError(
            f"Labels must sort, so that classes have one order. Got labels that do not: {error}."
        ) from error
    return classes, codes.astype(np.int64, copy=False)


def _check_names_classes(y: AnyArray) -> None:
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise InvalidInputError("Labels must name classes. Got NaN or infinity instead.")
    if (y.dtype.kind in "mM" and np.isnat(y).any()) or (y.dtype == object and _lacks_some(y)):
        raise InvalidInputError("Labels must name classes. Got NaN or NaT instead.")
    is_whole = y.dtype.kind != "f" or bool((y == np.trunc(y)).all())
    if y.dtype == object or (y.ndim == 1 and y.dtype.kind in "biufUmM" and is_whole):
        return
    # Not for all: of some versions, it takes many small classes for a regression, and warns.
    if (target := type_of_target(y)) not in {"binary", "multiclass"}:
        raise InvalidInputError(
            f"Unknown label type: {target}. Labels must name classes: one string, integer or "
            "object that sorts for each support point."
        )


def _lacks_some(y: AnyArray) -> bool:
    """Whether some object is no label: NaN and NaT do not even equal themselves."""
    kinds = (float, np.generic, date, timedelta)
    return any(isinstance(label, kinds) and bool(label != label) for label in y)  # noqa: PLR0124


def codes_of(labels: ArrayLike, classes: AnyArray) -> IntArray:
    """The code of each label; ``len(classes)`` for one that is not among the classes."""
    wanted = np.asarray(label_array(labels))
    # Classes that were added later are not in order; a stable sort of those that are costs little.
    order = np.argsort(classes, kind="stable")
    try:
        places = np.searchsorted(classes, wanted, sorter=order)
    except TypeError as error:
        raise InvalidInputError(
            f"labels must be of the kind that was fitted, {classes.dtype}. "
            f"Got {wanted.dtype} instead."
        ) from error
    nearest = order[np.minimum(places, len(classes) - 1)]
    return np.where(classes[nearest] == wanted, nearest, len(classes))


def labels_like(y: ArrayLike, n_points: int, classes: AnyArray) -> AnyArray:
    """One label for each of so many points, of the kind that the classes are; or an error."""
    labels = np.asarray(label_array(y))
    if labels.shape != (n_points,):
        raise InvalidInputError(
            f"y must be one label for each of the {n_points} points. "
            f"Got an array of shape {labels.shape} instead."
        )
    if not n_points:
        return classes[:0]
    _check_names_classes(labels)
    if _kind(labels) != _kind(classes) and object not in (labels.dtype, classes.dtype):
        raise InvalidInputError(
            f"y must be of the kind that was fitted, {classes.dtype}. Got {labels.dtype} instead."
        )
    return labels


def extended_names(labels: AnyArray, names: AnyArray) -> tuple[AnyArray, IntArray]:
    """Names with new ones at the end, and the codes of labels among them."""
    codes = codes_of(labels, names)
    new = np.unique(labels[codes == len(names)])
    if new.size:
        names = np.concatenate([names, new])
        codes = codes_of(labels, names)
    return names, codes


def groups_and_codes(groups: ArrayLike, n_points: int) -> tuple[AnyArray, IntArray]:
    """The names of groups, sorted, and the code of each point's; anything may name a group."""
    names = _checked_groups(groups, n_points)
    unique, codes = np.unique(names, return_inverse=True)
    return unique, codes.astype(np.int64, copy=False)


def extended_groups(
    groups: ArrayLike | None, n_points: int, names: AnyArray | None
) -> tuple[AnyArray | None, IntArray | None]:
    """The names of groups with new ones at the end, and the codes of points' groups among them."""
    if groups is None or names is None:
        # Where one side alone has groups, the gallery raises an error.
        codes = None if groups is None else np.zeros(n_points, np.int64)
        return names, codes
    own = _checked_groups(groups, n_points)
    if _kind(own) != _kind(names):
        own, names = own.astype(str), names.astype(str)
    return extended_names(own, names)


def _checked_groups(groups: ArrayLike, n_points: int) -> AnyArray:
    names = np.asarray(groups)
    if names.dtype == object or (names.dtype.kind == "f" and np.isnan(names).any()):
        names = names.astype(str)  # None, NaN and mixtures, too
    if names.shape != (n_points,):
        raise InvalidInputError(
            f"groups must be one group for each of the {n_points} support points. "
            f"Got an array of shape {names.shape} instead."
        )
    return names


def _kind(labels: AnyArray) -> str:
    return "number" if labels.dtype.kind in "biuf" else labels.dtype.kind


def stored_classes(classes: AnyArray) -> AnyArray:
    """Numbers as they are; strings and objects as the bytes of a JSON list."""
    if classes.dtype.kind in "biuf":
        return classes
    if not all(isinstance(label, str | int) for label in classes):
        raise InvalidInputError(
            "Labels must be numbers or strings for a model to be saved. "
            f"Got {type(classes[0]).__name__} instead: fit with the text of each label."
        )
    return np.frombuffer(json.dumps(classes.tolist()).encode(), np.uint8)


def restored_classes(stored: AnyArray, dtype: str) -> AnyArray:
    """The inverse of `stored_classes`; `ModelFileError` for anything else.

    Strings are as wide as the longest, whatever width the dtype names.
    """
    own = _stored_dtype(dtype)
    if own.kind in "biuf":
        if stored.ndim != 1 or stored.dtype != own.newbyteorder("="):
            raise _not_names(f"{own} in an array of {stored.dtype}, shape {stored.shape}")
        return stored.astype(own, copy=False)
    if stored.ndim != 1 or stored.dtype != np.uint8:
        raise _not_names(f"text in an array of {stored.dtype}, shape {stored.shape}")
    try:
        names = json.loads(stored.tobytes())
    except (ValueError, RecursionError) as error:
        raise _not_names("what is not JSON") from error
    if not isinstance(names, list) or not any(
        all(isinstance(name, kind) for name in names)
        for kind in ((str,) if own.kind == "U" else (str, int))
    ):
        raise _not_names("JSON of another kind")
    if own.kind == "O":
        return np.array([*names, None], object)[:-1]  # never an array of more dimensions
    return text_array(names, stored.nbytes)


def text_array(names: list[str], n_bytes: int) -> AnyArray:
    """Strings from a file of so many bytes; `ModelFileError` if they would take far more here."""
    width = max(map(len, names), default=0)
    # One long name makes all of them long.
    if 4 * width * len(names) > max(LARGEST_NAMES, SPREAD * n_bytes):
        raise _not_names(f"{len(names)} of up to {width} characters")
    return np.array(names, np.str_)


def _stored_dtype(dtype: str) -> np.dtype[Any]:
    try:
        own = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise _not_names(f"the type {dtype[:20]!r}") from error
    if own.kind not in "biufUO":
        raise _not_names(f"the type {dtype[:20]!r}")
    return own


def _not_names(what: str) -> ModelFileError:
    return ModelFileError(
        "Labels, ids and groups of a model must be numbers or a list of strings, in the type that "
        f"it names. Got {what} instead. The file has been altered: save the model again."
    )
