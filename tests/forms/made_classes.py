"""Classes that are made, not found, with the neighbours of points and queries by brute force."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.neighbors import Neighbors


@dataclass(frozen=True, eq=False)
class MadeClasses:
    """A support set and queries drawn from the same classes."""

    support: FloatArray
    codes: IntArray
    queries: FloatArray
    query_codes: IntArray

    @property
    def counts(self) -> IntArray:
        return np.bincount(self.codes)

    def own_neighbors(self, k: int) -> Neighbors:
        """Each support point's neighbours among the others."""
        sq_distances = all_sq_distances(self.support, self.support)
        np.fill_diagonal(sq_distances, np.inf)
        return nearest(sq_distances, self.codes, k)

    def query_neighbors(self, k: int) -> Neighbors:
        return nearest(all_sq_distances(self.queries, self.support), self.codes, k)


def gaussian_classes(
    factors: FloatArray,
    *,
    sizes: IntArray,
    n_queries: IntArray,
    spread: float,
    seed: int,
) -> MadeClasses:
    """Class j has the covariance factors[j] @ factors[j].T, shape (n_classes, d, d).

    Centres are normal with the standard deviation `spread`.
    """
    n_classes, dimension, _ = factors.shape
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(n_classes, dimension))

    def drawn(numbers: IntArray) -> tuple[FloatArray, IntArray]:
        codes = np.repeat(np.arange(n_classes), numbers)
        noise = rng.normal(size=(len(codes), dimension, 1))
        return centres[codes] + (factors[codes] @ noise)[:, :, 0], codes

    return MadeClasses(*drawn(sizes), *drawn(n_queries))


def all_sq_distances(queries: FloatArray, support: FloatArray) -> FloatArray:
    return np.asarray(np.square(queries[:, None] - support[None]).sum(axis=2))


def nearest(sq_distances: FloatArray, codes: IntArray, k: int) -> Neighbors:
    ids = np.argsort(sq_distances, axis=1, kind="stable")[:, :k]
    return Neighbors(np.take_along_axis(sq_distances, ids, axis=1), codes[ids], ids)


def slopes_by_differences(
    loss: Callable[[FloatArray], tuple[float, FloatArray]], at: FloatArray
) -> FloatArray:
    """The gradient of a loss by central differences."""
    steps = 1e-5 * np.eye(len(at))
    return np.array([(loss(at + step)[0] - loss(at - step)[0]) / 2e-5 for step in steps])
