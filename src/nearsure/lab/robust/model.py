"""A trained model whose queries are damaged, with its clean gallery and what was fitted on it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nearsure.lab.embedder import Embedder, on_sphere
from nearsure.lab.embedding_run import EmbeddingRun, class_means
from nearsure.lab.folding import folded
from nearsure.lab.protocols import ProtocolName, encode_labels
from nearsure.lab.robust.adversarial_training import AdversarialRun
from nearsure.lab.robust.frozen_support import FrozenSupport, frozen_supports
from nearsure.lab.robust.methods import FrozenMethods

CLEAN_TRAINED = "clean-trained"
ADVERSARIALLY_TRAINED = "adversarially trained"


@dataclass(frozen=True, eq=False)
class RobustModel:
    """A model and its clean galleries; both are ready before the first query is damaged.

    Parameters
    ----------
    name : str
        For tables.
    run : EmbeddingRun or AdversarialRun
        What trained it.
    k : int
        Neighbours; fewer where the gallery has no more.
    seed : int
        Of the half that is the gallery.
    """

    name: str
    run: EmbeddingRun | AdversarialRun
    k: int
    seed: int

    @property
    def _images(self) -> EmbeddingRun:
        return self.run.clean if isinstance(self.run, AdversarialRun) else self.run

    @property
    def key(self) -> str:
        """Digest of all that the weights depend on."""
        return self.run.training_stage.key

    @property
    def cache(self) -> Path:
        """Folder of all stages."""
        return self._images.cache

    @cached_property
    def embedder(self) -> Embedder:
        """The network, without batch normalisation."""
        return folded(self.run.trained.embedder)

    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        """Images in [0, 1] to unit vectors."""
        # Folded here and not inside, where weights made in inference mode could not be attacked.
        embedder = self.embedder
        return lambda images: on_sphere(embedder(images))

    @cached_property
    def supports(self) -> dict[ProtocolName, FrozenSupport]:
        """Clean galleries by protocol."""
        split = self._images.split
        queries = self.run.embeddings("queries")
        if split.gallery is None:
            codes, _ = encode_labels(np.asarray(split.queries.labels))
            return frozen_supports(queries, codes, None, seed=self.seed)
        gallery_codes, codes = encode_labels(
            np.asarray(split.gallery.labels), np.asarray(split.queries.labels)
        )
        gallery = self.run.embeddings("gallery"), gallery_codes
        return frozen_supports(queries, codes, gallery, seed=self.seed)

    @cached_property
    def frozen(self) -> dict[ProtocolName, FrozenMethods]:
        """T and calibrators by protocol, from the clean gallery alone."""
        found = {}
        for protocol, support in self.supports.items():
            k = min(self.k, len(support.codes) - 1)
            found[protocol] = FrozenMethods.fit(support.own_neighbors(k), support.codes, k=k)
        return found

    @property
    def strict(self) -> FrozenSupport:
        """The gallery that no query is in; an attacker knows it, and damaged queries are its."""
        return list(self.supports.values())[-1]

    @cached_property
    def class_means(self) -> Tensor:
        """Mean of the strict gallery's vectors of each class, shape (n_classes, d)."""
        return class_means(torch.from_numpy(self.strict.vectors), self.strict.codes)
