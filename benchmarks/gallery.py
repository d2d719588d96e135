"""The size of the paper's largest test set: 60,502 vectors of 512 numbers in 11,316 classes."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, IntArray

N_SUPPORT, N_FEATURES, N_CLASSES, N_QUERIES, K = 60_502, 512, 11_316, 8_000, 50


@dataclass(frozen=True, eq=False)
class Gallery:
    """Unit vectors about random class centres, noisy enough that one match in six is wrong."""

    vectors: AnyArray
    labels: IntArray
    queries: AnyArray


def make_gallery(seed: int = 0) -> Gallery:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((N_CLASSES, N_FEATURES), np.float32)

    def draw(labels: IntArray) -> AnyArray:
        noise = rng.standard_normal((len(labels), N_FEATURES), np.float32)
        vectors: AnyArray = centres[labels] + np.float32(2.4) * noise
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    labels = np.sort(rng.integers(0, N_CLASSES, N_SUPPORT))
    return Gallery(draw(labels), labels, draw(rng.integers(0, N_CLASSES, N_QUERIES)))
