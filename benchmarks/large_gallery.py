"""Made galleries with class structure, as large as is asked for."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, IntArray

N_FEATURES, MEMBERS, K = 128, 50, 50
SHEET, WITHIN, NOISE = 16, 0.7, 0.1
# Vectors are drawn this many at a time.
PORTION = 100_000


@dataclass(frozen=True, eq=False)
class LargeGallery:
    """Points about random class centres, and queries of the same classes."""

    vectors: AnyArray
    labels: IntArray
    queries: AnyArray
    query_labels: IntArray


def make_large_gallery(n_points: int, n_queries: int = 10_000, seed: int = 0) -> LargeGallery:
    """Classes of 50 members, which overlap the more, the more of them there are.

    Centres lie on a curved sheet of 16 dimensions and members vary in 16 directions, with a little
    noise in all 128, as embeddings do. An index finds near neighbours of such points, while of
    unstructured noise in 128 dimensions it would find few.
    """
    rng = np.random.default_rng(seed)
    n_classes = max(2, n_points // MEMBERS)

    def directions() -> AnyArray:
        return rng.standard_normal((SHEET, N_FEATURES), np.float32) / np.float32(np.sqrt(SHEET))

    within = np.float32(WITHIN) * directions()
    centres = np.tanh(rng.standard_normal((n_classes, SHEET), np.float32) @ directions())

    def draw(labels: IntArray) -> AnyArray:
        vectors = np.empty((len(labels), N_FEATURES), np.float32)
        for start in range(0, len(labels), PORTION):
            part = slice(start, start + PORTION)
            n_drawn = len(labels[part])
            vectors[part] = centres[labels[part]]
            vectors[part] += rng.standard_normal((n_drawn, SHEET), np.float32) @ within
            vectors[part] += np.float32(NOISE) * rng.standard_normal(
                (n_drawn, N_FEATURES), np.float32
            )
        return vectors

    labels = rng.permutation(np.arange(n_points) % n_classes)
    query_labels = rng.integers(0, n_classes, n_queries)
    return LargeGallery(draw(labels), labels, draw(query_labels), query_labels)
