"""What points must be to enter a gallery, and what must be left in it."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index.stable_ids import a_few
from nearsure.neighbors import integer_codes


def checked_vectors(vectors: ArrayLike) -> AnyArray:
    """The vectors as float32 or float64, finite, of shape (n, n_features); or an error."""
    points = np.asarray(vectors)
    if points.ndim != 2 or 0 in points.shape:  # noqa: PLR2004
        raise InvalidInputError(
            "vectors must have the shape (n, n_features), with at least one point and feature. "
            f"Got an array of shape {points.shape} instead."
        )
    if points.dtype.kind not in "fiu":
        raise InvalidInputError(f"vectors must be numbers. Got {points.dtype} instead.")
    if points.dtype not in (np.float32, np.float64):
        points = points.astype(np.float32 if points.dtype == np.float16 else np.float64)
    # Both pass NaN and infinity on, and take no memory.
    if not np.isfinite(points.min()) or not np.isfinite(points.max()):
        raise InvalidInputError("vectors must be finite. Got NaN or infinity instead.")
    return points


def checked_codes(codes: ArrayLike, n_points: int) -> IntArray:
    """A copy of one class code >= 0 for each point, or an error."""
    given = np.asarray(codes)
    if given.shape != (n_points,):
        raise InvalidInputError(
            f"codes must be one class code for each of the {n_points} points. "
            f"Got an array of shape {given.shape} instead."
        )
    own = integer_codes(given).copy() if given.size else np.empty(0, np.int64)
    if own.min(initial=0) < 0:
        raise InvalidInputError(f"codes must be class codes >= 0. Got {own.min()} instead.")
    return own


def sizes_of_classes(codes: IntArray | None) -> dict[int, int]:
    """How many points have each code that occurs."""
    if codes is None:
        return {}
    classes, sizes = np.unique(codes, return_counts=True)
    return dict(zip(classes.tolist(), sizes.tolist(), strict=True))


def check_not_emptied(counts: dict[int, int], *, allowed: bool) -> None:
    """Raise an error if a class would have no point, unless that is meant."""
    emptied = [code for code, n_points in counts.items() if n_points == 0]
    if emptied and not allowed:
        raise InvalidInputError(
            f"Every class must keep a point. Got the last of class codes {a_few(emptied)}. "
            "Pass allow_empty_class=True if this is meant."
        )


def members_left_of_groups(codes: IntArray, groups: IntArray, rows: IntArray) -> IntArray:
    """Members of some points' classes without the points' groups, shape (len(rows),).

    Parameters
    ----------
    codes, groups : array of shape (n,)
        Of all points.
    rows : array of integers
        The points.

    Examples
    --------
    >>> codes, groups = np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6])
    >>> members_left_of_groups(codes, groups, np.array([0, 2, 3]))
    array([1, 2, 0])
    """
    _, together, sizes = np.unique(
        np.stack([codes, groups]), axis=1, return_inverse=True, return_counts=True
    )
    left: IntArray = np.bincount(codes)[codes[rows]] - sizes[together.ravel()][rows]
    return left
