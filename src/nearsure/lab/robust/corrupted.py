"""Embeddings of corrupted queries, one cached file a corruption and severity."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearsure.arrays import AnyArray, IntArray
from nearsure.lab.batches import read_ahead
from nearsure.lab.datasets.labelled_images import LabelledImages, Pixels
from nearsure.lab.embedder import finite, to_tensor
from nearsure.lab.stages import Stage
from nearsure.lab.views import central_view
from nearsure.robustness import corrupt, corruption_rng

BATCH = 64


def central_views(images: LabelledImages, rows: IntArray, size: int) -> NDArray[np.uint8]:
    """What the network sees of some images, shape (n, size, size, 3)."""
    return np.stack([central_view(images.read(int(row)), size) for row in rows])


@dataclass(frozen=True, eq=False)
class CorruptedQueries:
    """Queries of one model under corruptions.

    Parameters
    ----------
    stage : Stage
        Holds the embeddings; its inputs say which model, images, rows and seed.
    embed : callable
        Batches of images in [0, 1] to unit vectors.
    views : array of shape (n, size, size, 3), uint8
        The clean queries.
    rows : array of shape (n,)
        Which query images they are; randomness belongs to the image, not to its place in a batch.
    seed : int
        Of the corruptions.
    """

    stage: Stage
    embed: Callable[[Tensor], Tensor]
    views: NDArray[np.uint8]
    rows: IntArray
    seed: int

    def clean(self) -> AnyArray:
        """Unit vectors of the queries as they are, shape (n, d)."""
        return self._embeddings("clean", lambda i: self.views[i])

    def corrupted(self, name: str, severity: int) -> AnyArray:
        """Unit vectors of the corrupted queries, shape (n, d)."""

        def damaged(i: int) -> Pixels:
            rng = corruption_rng(self.seed, int(self.rows[i]), name, severity)
            return corrupt(self.views[i], name, severity, rng)

        return self._embeddings(f"{name}-{severity}", damaged)

    def _embeddings(self, name: str, image_of: Callable[[int], Pixels]) -> AnyArray:
        def batch(number: int) -> Tensor:
            rows = range(number * BATCH, min((number + 1) * BATCH, len(self.views)))
            return to_tensor([image_of(i) for i in rows])

        def compute() -> dict[str, AnyArray]:
            batches = read_ahead(batch, range(-(-len(self.views) // BATCH)))
            with torch.inference_mode():
                rows = torch.cat([self.embed(images) for images in batches])
            return {"rows": finite(rows).numpy()}

        return self.stage.arrays(name, compute)["rows"]
