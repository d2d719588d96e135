"""Labels of queries, checked against those of the gallery."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.labels import codes_of


def one_each(name: str, values: ArrayLike, n_queries: int) -> AnyArray:
    """One value for each query, as an array."""
    array = np.asarray(values)
    if array.shape != (n_queries,):
        raise InvalidInputError(
            f"The '{name}' parameter must have one entry for each of the {n_queries} queries. "
            f"Got an array of shape {array.shape} instead."
        )
    return array


def checked_truth(labels: ArrayLike, n_queries: int, classes: AnyArray) -> AnyArray:
    """True labels, one for each query and of the gallery's kind.

    Text never equals a number: a mixture would make every answer wrong without a word.
    """
    truth = one_each("labels", labels, n_queries)
    kinds = _kind(truth), _kind(classes)
    if object not in (truth.dtype, classes.dtype) and kinds[0] != kinds[1]:
        raise InvalidInputError(
            f"The 'labels' parameter must hold labels of the gallery's kind, {kinds[1]}. "
            f"Got {kinds[0]} instead."
        )
    return truth


def codes_in_gallery(truth: AnyArray, classes: AnyArray, class_sizes: IntArray) -> IntArray:
    """Class codes of true labels; ``n_classes`` for a class that has no point in the gallery.

    Parameters
    ----------
    truth : array of shape (n,)
        The labels.
    classes : array of shape (n_classes,)
        Labels of the classes.
    class_sizes : array of shape (n_classes,)
        Their points; a class may have lost its last.
    """
    codes = codes_of(truth, classes)
    has_points = np.append(class_sizes[: len(classes)] > 0, False)
    return np.where(has_points[codes], codes, len(classes))


def _kind(labels: AnyArray) -> str:
    return "numbers" if labels.dtype.kind in "biuf" else "text"
