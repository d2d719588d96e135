"""The embedding: a backbone, perhaps a linear layer, and a place on the unit sphere."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nearsure.errors import NearsureError
from nearsure.lab.backbones import make_backbone
from nearsure.lab.config import RunSettings
from nearsure.lab.datasets.labelled_images import Pixels


class Embedder(nn.Module):
    """Images to embeddings, which `on_sphere` makes unit vectors.

    Parameters
    ----------
    backbone : nn.Module
        Images of shape (n, 3, height, width) in [0, 1] to features, with ``n_features``.
    embedding_size : int, optional
        Outputs of a linear layer without bias; None leaves it out.
    layer_norm : bool
        Centre and scale each embedding over its own coordinates before it is put on the sphere
        (Zhai and Wu 2019).
    """

    def __init__(
        self, backbone: nn.Module, embedding_size: int | None, *, layer_norm: bool
    ) -> None:
        super().__init__()
        self.backbone = backbone
        n_features = int(backbone.n_features)  # type: ignore[arg-type]
        self.embedding_size = embedding_size or n_features
        self.layer_norm = layer_norm
        self.head: nn.Module = nn.Identity()
        if embedding_size is not None:
            # Rows at right angles keep the distances of trained features as well as they can.
            self.head = nn.Linear(n_features, embedding_size, bias=False)
            nn.init.orthogonal_(self.head.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Embeddings of images, not yet on the sphere."""
        return self.from_features(self.backbone(images))

    def from_features(self, features: Tensor) -> Tensor:
        """Embeddings of features that the backbone gave earlier, not yet on the sphere."""
        embeddings: Tensor = self.head(features)
        if self.layer_norm:
            embeddings = functional.layer_norm(embeddings, embeddings.shape[1:])
        return embeddings


def make_embedder(settings: RunSettings) -> Embedder:
    """The embedder of a run, its random weights drawn with the run's seed."""
    # Before training, features are taken as they come; layer norm belongs to the loss.
    trained, loss = settings.model.trained, settings.training.loss
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Embedder(
            make_backbone(settings.model.backbone),
            settings.model.embedding_size,
            layer_norm=trained != "nothing" and loss == "normalized-softmax",
        )


def on_sphere(embeddings: Tensor) -> Tensor:
    """Unit vectors, float32, as evaluation wants them."""
    return functional.normalize(embeddings, dim=1)


def finite(embeddings: Tensor) -> Tensor:
    """The same embeddings, if every number of them is one."""
    if not torch.isfinite(embeddings).all():
        raise NearsureError(
            "The model gave embeddings that are not finite. Was it trained with too high a rate?"
        )
    return embeddings


def to_tensor(views: list[Pixels]) -> Tensor:
    """Views of one size to a batch of shape (n, 3, size, size) in [0, 1]."""
    return torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2).to(torch.float32) / 255
