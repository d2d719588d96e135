"""How crowded the neighbourhood of a point is: the distance to its tenth nearest class.

The same distance means more where points lie far apart than where many classes lie close together.
Classes are counted, not points, so that it matters little whether a query's own class is in the
gallery: it takes one place of ten, however many points it has. A point of the gallery is measured
without its own class, as a query of a new class would be. Of fewer than ten classes crowding is not
measured.
"""

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.index import ExactIndex

NEAREST_CLASSES = 10
# With fewer, a query's own class, left out of the fit, would be most of what is measured.
FEWEST_CLASSES = 10
# Points that stand for a class, and for the gallery.
MOST_PER_CLASS = 10
MOST_POINTS = 20_000
# A distance of 0 has no logarithm; so small a share of the usual distance is no different from it.
SMALLEST_SHARE = 1e-3


class Cohort:
    """Points that stand for the classes of a gallery.

    Parameters
    ----------
    vectors : array of shape (n, n_features), float32 or float64
    codes : array of shape (n,)
        Class of each; no class has more than `MOST_PER_CLASS`.
    """

    def __init__(self, vectors: AnyArray, codes: IntArray) -> None:
        self.vectors, self.codes = vectors, codes
        self._index = ExactIndex(vectors)
        counts = np.unique(codes, return_counts=True)[1]
        self._n_classes, self._most = len(counts), int(counts.max())

    @classmethod
    def draw(cls, vectors: AnyArray, codes: IntArray, rng: np.random.Generator) -> "Cohort":
        """Draw a few points of every class, or of as many classes as there is room for."""
        shuffled = rng.permutation(len(codes))
        by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
        counts = np.bincount(codes)
        place = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
        most = max(1, min(MOST_PER_CLASS, MOST_POINTS // len(counts)))
        chosen = by_class[place < most]
        if len(chosen) > MOST_POINTS:
            chosen = rng.choice(chosen, MOST_POINTS, replace=False)
        chosen = np.sort(chosen)
        return cls(vectors[chosen], codes[chosen])

    @property
    def rank(self) -> int:
        """Which of the nearest classes is measured to: the tenth, or one in the middle of few."""
        return min(NEAREST_CLASSES, (self._n_classes - 1) // 2)

    def sq_distances(self, queries: AnyArray, own: IntArray | None = None) -> FloatArray:
        """Squared distance of each query to its tenth nearest class, shape (n,); 0 of few classes.

        Parameters
        ----------
        queries : array of shape (n, n_features)
        own : array of shape (n,), optional
            Class of each query, which is left out.
        """
        if self._n_classes < FEWEST_CLASSES:
            return np.zeros(len(queries))
        n_left_out = 0 if own is None else 1
        k = min((self.rank - 1 + n_left_out) * self._most + 1, len(self.codes))
        sq_distances, rows = self._index.search_rows(queries, k)
        found = self.codes[rows]
        is_first = _first_occurrences(found)
        if own is not None:
            is_first &= found != own[:, None]
        place = (np.cumsum(is_first, axis=1) == self.rank).argmax(axis=1)
        return np.asarray(np.take_along_axis(sq_distances, place[:, None], axis=1)[:, 0])


def _first_occurrences(codes: IntArray) -> AnyArray:
    """Where each code stands for the first time in its row."""
    order = np.argsort(codes, axis=1, kind="stable")
    ordered = np.take_along_axis(codes, order, axis=1)
    is_new = np.ones(codes.shape, np.bool_)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_first = np.empty(codes.shape, np.bool_)
    np.put_along_axis(is_first, order, is_new, axis=1)
    return is_first
