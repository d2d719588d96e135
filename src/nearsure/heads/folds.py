"""Folds: which points, and which classes, are left out together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from nearsure.arrays import AnyArray, FloatArray, IntArray

# A class of n members loses one of n when a point is left out, and so should its rivals: small
# classes are divided into few folds.
FEWEST_FOLDS, USUAL_FOLDS = 2, 5
# What is fitted without a fifth of a small gallery is worse by more than what is fitted without a
# tenth; in a large one it is not.
SMALL_GALLERY, MOST_FOLDS = 2000, 10
FOLD_SEED = 0
# Classes are left out in so many.
CLASS_FOLDS = 5
# Points of all folds that are chosen by at most.
MOST_CHOSEN_ON = 2000


@dataclass(frozen=True, eq=False)
class LabelledFolds:
    """Points with their classes and folds."""

    vectors: AnyArray
    codes: IntArray
    folds: IntArray

    def by_fold(self, n_folds: int) -> Iterator[tuple[int, "LabelledFolds"]]:
        """Some of the points of each of the first folds."""
        for fold in range(n_folds):
            rows = np.flatnonzero(self.folds == fold)
            rows = rows[: max(1, MOST_CHOSEN_ON // n_folds)]
            if rows.size:
                yield fold, self.take(rows)

    def take(self, rows: AnyArray) -> "LabelledFolds":
        """Some of the points."""
        return LabelledFolds(self.vectors[rows], self.codes[rows], self.folds[rows])


def assign_folds(
    codes: IntArray,
    groups: IntArray | None = None,
    most: int | None = None,
    *,
    seed: int = FOLD_SEED,
) -> IntArray:
    """Folds of points, shape (n,): those of a class are spread evenly, those of a group together.

    Parameters
    ----------
    codes : array of shape (n,)
        Their classes.
    groups : array of shape (n,), optional
        Their groups.
    most : int, optional
        Folds of large classes: ten in a gallery of 2,000 points at most, five in others.
    seed : int
        Of the draw.

    Examples
    --------
    >>> assign_folds(np.array([0, 0, 1, 1])).tolist() in ([0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1])
    True
    """
    if most is None:
        most = MOST_FOLDS if len(codes) <= SMALL_GALLERY else USUAL_FOLDS
    sizes = np.bincount(codes)
    n_folds = int(np.clip(np.median(sizes[codes]), FEWEST_FOLDS, most))
    first, of_unit = np.arange(len(codes)), np.arange(len(codes))
    if groups is not None:
        _, first, of_unit = np.unique(groups, return_index=True, return_inverse=True)
    unit_codes = codes[first]
    drawn = np.random.default_rng(seed).permutation(len(first))
    by_class = drawn[np.argsort(unit_codes[drawn], kind="stable")]
    ordered = unit_codes[by_class]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(starts, append=len(ordered)))
    folds = np.empty(len(first), np.int64)
    # Classes begin with different folds, or the first would have all that is left over.
    folds[by_class] = (rank + ordered) % n_folds
    occurring, folds = np.unique(folds, return_inverse=True)
    if len(occurring) < FEWEST_FOLDS:
        # A few groups that hold many classes: what they are of does not divide them.
        folds[drawn] = np.arange(len(drawn)) % n_folds
    return folds[of_unit]


def spread_classes(means: FloatArray) -> IntArray:
    """Folds of classes, shape (n,): those that are alike are in different ones.

    A query of an unknown class still meets the classes that are most like its own, and so should a
    point whose class is left out with others.

    Examples
    --------
    >>> folds = spread_classes(np.array([[0.0], [9.0], [0.1], [9.1]]))
    >>> bool(folds[0] != folds[2] and folds[1] != folds[3])
    True
    """
    n = len(means)
    sq_distances = cdist(means, means, "sqeuclidean")
    folds = np.zeros(n, np.int64)
    # Of each class to the nearest one of each fold.
    nearest = np.full((n, CLASS_FOLDS), np.inf)
    places = np.full(CLASS_FOLDS, -(-n // CLASS_FOLDS))
    for each in np.random.default_rng(FOLD_SEED).permutation(n).tolist():
        folds[each] = fold = int(np.where(places > 0, nearest[each], -1.0).argmax())
        places[fold] -= 1
        nearest[:, fold] = np.minimum(nearest[:, fold], sq_distances[each])
    return folds
