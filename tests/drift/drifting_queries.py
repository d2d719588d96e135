"""Made galleries on the unit sphere, whose queries can be drawn again and moved."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score
from nearsure.rules import RuleName

N_CLASSES = 20
N_FEATURES = 32
SPREAD = 0.8
K = 20
# About what fit_temperature finds.
TEMPERATURE = 0.08


@dataclass(frozen=True, eq=False)
class MadeGallery:
    """Gaussian classes, put on the sphere; the leave-one-out pass and batches of queries."""

    index: ExactIndex
    codes: IntArray
    own: Neighbors

    def queries(
        self, n: int, seed: int, *, noise: float = 0.0, pull: float = 0.0, offset: float = 0.0
    ) -> tuple[Neighbors, IntArray]:
        """Neighbours and true codes of new points.

        Noise hits each alone, a pull takes all in one direction, and an offset lifts them off the
        sphere, as far from every gallery point as from any other.
        """
        rng = np.random.default_rng([seed, 1])
        codes = rng.integers(N_CLASSES, size=n)
        damage = noise * rng.normal(size=(n, N_FEATURES)) + pull * COMMON
        points = _points(codes, rng, damage)
        points[:, -1] = offset
        sq_distances, ids = self.index.search(points, K)
        return Neighbors(sq_distances, self.codes[ids]), codes


def made_gallery(n: int, seed: int = 0) -> MadeGallery:
    rng = np.random.default_rng([seed, 0])
    codes = rng.integers(N_CLASSES, size=n)
    points = _points(codes, rng, np.zeros((n, N_FEATURES)))
    index = ExactIndex(points)
    own = search_leaving_one_out(index, points, np.arange(n), codes, k=K)
    return MadeGallery(index, codes, own)


def scored(neighbors: Neighbors, rule: RuleName = "ned") -> Posterior:
    temperature = TEMPERATURE if rule == "ned" else None
    return score(neighbors, rule=rule, temperature=temperature, n_classes=N_CLASSES)


_CLASSES = np.random.default_rng(7)
CENTRES: FloatArray = SPREAD * _CLASSES.normal(size=(N_CLASSES, N_FEATURES))
COMMON: FloatArray = _CLASSES.normal(size=N_FEATURES)


def _points(codes: IntArray, rng: np.random.Generator, damage: FloatArray) -> FloatArray:
    vectors = CENTRES[codes] + rng.normal(size=damage.shape) + damage
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.column_stack([vectors, np.zeros(len(vectors))])
