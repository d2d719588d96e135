"""Small galleries with known faults."""

import numpy as np

from nearsure import Neighbors
from nearsure.arrays import AnyArray, IntArray
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out


def leave_one_out_neighbors(vectors: AnyArray, codes: IntArray, k: int) -> Neighbors:
    index = ExactIndex(vectors.astype(np.float32))
    rows = np.arange(len(codes))
    return search_leaving_one_out(index, vectors.astype(np.float32), rows, codes, k=k)


def blobs(
    *, n_classes: int, per_class: int, spread: float, seed: int, n_features: int = 8
) -> tuple[AnyArray, IntArray]:
    """Points about random centres that lie about 4 apart."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_classes, n_features))
    codes = np.repeat(np.arange(n_classes), per_class)
    return centres[codes] + spread * rng.standard_normal((len(codes), n_features)), codes


def padded(neighbors: Neighbors, counts: IntArray) -> Neighbors:
    return Neighbors(neighbors.sq_distances, neighbors.labels, neighbors.ids, counts)
