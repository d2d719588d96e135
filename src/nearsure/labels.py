"""Labels of any kind that sorts, and the integer codes that stand for them everywhere inside."""

import json

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import type_of_target

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError


def classes_and_codes(y: AnyArray) -> tuple[AnyArray, IntArray]:
    """The classes, sorted, and the code of each label among them."""
    # Not check_classification_targets, which suspects a regression behind many small classes.
    if y.dtype != object and (target := type_of_target(y)) not in {"binary", "multiclass"}:
        raise InvalidInputError(
            f"Unknown label type: {target}. Labels must name classes: one string, integer or "
            "object that sorts for each support point."
        )
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise InvalidInputError(
            f"Labels must sort, so that classes have one order. Got labels that do not: {error}."
        ) from error
    return classes, codes.astype(np.int64, copy=False)


def codes_of(labels: ArrayLike, classes: AnyArray) -> IntArray:
    """The code of each label; ``len(classes)`` for one that is not among the classes."""
    wanted = np.asarray(labels)
    try:
        places = np.searchsorted(classes, wanted)
    except TypeError as error:
        raise InvalidInputError(
            f"labels must be of the kind that was fitted, {classes.dtype}. "
            f"Got {wanted.dtype} instead."
        ) from error
    nearest = np.minimum(places, len(classes) - 1)
    return np.where(classes[nearest] == wanted, nearest, len(classes))


def group_codes(groups: ArrayLike, n_support: int) -> IntArray:
    """A number for the group of each support point; anything may name a group."""
    groups = np.asarray(groups)
    if groups.dtype == object:
        groups = groups.astype(str)  # anything may name a group, None and mixtures too
    if groups.shape != (n_support,):
        raise InvalidInputError(
            f"groups must be one group for each of the {n_support} support points. "
            f"Got an array of shape {groups.shape} instead."
        )
    return np.unique(groups, return_inverse=True)[1].astype(np.int64, copy=False)


def stored_classes(classes: AnyArray) -> AnyArray:
    """Numbers as they are; strings and objects as the bytes of a JSON list."""
    if classes.dtype.kind in "biuf":
        return classes
    if not all(isinstance(label, str | int) for label in classes):
        raise InvalidInputError(
            "Labels must be numbers or strings for a model to be saved. "
            f"Got {type(classes[0]).__name__} instead."
        )
    return np.frombuffer(json.dumps(classes.tolist()).encode(), np.uint8)


def restored_classes(stored: AnyArray, dtype: str) -> AnyArray:
    """The inverse of `stored_classes`."""
    if np.dtype(dtype).kind in "biuf":
        return stored.astype(dtype, copy=False)
    return np.array(json.loads(stored.tobytes()), dtype)
