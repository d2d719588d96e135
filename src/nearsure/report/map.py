"""The gallery in two dimensions: principal components of a sample, and where points lie in them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.index import unit_vectors
from nearsure.report.document import CurvePoint, GalleryMap, plain_label

# Points that are drawn, and those that the axes are found by.
MOST_POINTS = 5000
MOST_FITTED = 1000
# Places lie within about +-1.
DIGITS = 4


@dataclass(frozen=True, eq=False)
class Plane:
    """The two directions in which vectors differ most; `fit_plane` finds them.

    Parameters
    ----------
    mean : array of shape (n_features,)
        The origin.
    axes : array of shape (2, n_features)
        Scaled so that the points they were found by lie within +-1; zero where nothing varies.
    explained : tuple of float
        Share of the variance along both.
    """

    mean: FloatArray
    axes: FloatArray
    explained: tuple[float, float]

    def places(self, vectors: ArrayLike) -> FloatArray:
        """Coordinates of vectors, shape (n, n_features), in the plane, shape (n, 2)."""
        away = np.asarray(vectors, np.float64) - self.mean
        return np.asarray(away @ self.axes.T, np.float64)


def fit_plane(vectors: ArrayLike) -> Plane:
    """Principal components of vectors, shape (n, n_features).

    Of each axis the entry of the largest size is positive, so that a picture is never mirrored.

    Examples
    --------
    >>> plane = fit_plane([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    >>> plane.explained
    (0.8, 0.2)
    >>> plane.places([[2.0, 0.5], [1.0, 1.0]]).round(3).tolist()
    [[1.0, 0.0], [0.0, 0.5]]
    """
    points = np.asarray(vectors, np.float64)
    mean = points.mean(axis=0)
    _, lengths, directions = np.linalg.svd(points - mean, full_matrices=False)
    total = float((lengths**2).sum())
    axes, explained = np.zeros((2, points.shape[1])), [0.0, 0.0]
    for place in range(min(2, len(lengths)) if total > 0 else 0):
        direction = directions[place]
        axes[place] = direction * np.sign(direction[np.abs(direction).argmax()])
        explained[place] = round(float(lengths[place] ** 2) / total, 6)
    largest = float(np.abs((points - mean) @ axes.T).max(initial=0.0))
    return Plane(mean, axes / (largest or 1.0), (explained[0], explained[1]))


def draw_sample(n: int, most: int, seed: int) -> AnyArray:
    """Places of at most so many of n points, ascending: all of them, or a draw."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def plane_of(classifier: NEDClassifier, *, seed: int = 0) -> Plane:
    """The plane of a gallery, by a sample of its points."""
    ids = classifier.support_ids_
    return fit_plane(classifier.own_points(ids[draw_sample(len(ids), MOST_FITTED, seed)])[0])


def map_gallery(
    classifier: NEDClassifier, queries: AnyArray, *, plane: Plane | None = None, seed: int = 0
) -> GalleryMap:
    """Places of a gallery's points, or of a sample of 5,000, and of some queries.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted.
    queries : array of shape (n, n_features)
        Vectors of mistakes, to be seen among the points; there may be none.
    plane : Plane, optional
        Of an earlier map, so that points stay where they were.
    seed : int
        Of the sample.
    """
    plane = plane or plane_of(classifier, seed=seed)
    ids = classifier.support_ids_
    shown = ids[draw_sample(len(ids), MOST_POINTS, seed)]
    vectors, codes, _ = classifier.own_points(shown)
    present, places = np.unique(codes, return_inverse=True)
    coordinates = plane.places(vectors).round(DIGITS).tolist()
    if len(queries) and classifier.metric_ == "cosine":
        queries = unit_vectors(queries)
    asked = plane.places(queries).round(DIGITS).tolist() if len(queries) else []
    return GalleryMap(
        n_points=len(ids),
        explained=plane.explained,
        labels=tuple(plain_label(label) for label in classifier.classes_[present]),
        ids=tuple(map(plain_label, shown)),
        codes=tuple(places.tolist()),
        x=tuple(x for x, _ in coordinates),
        y=tuple(y for _, y in coordinates),
        queries=tuple(CurvePoint(x, y) for x, y in asked),
    )
