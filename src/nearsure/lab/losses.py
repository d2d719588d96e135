"""The four metric-learning losses of the paper, from pytorch-metric-learning."""

import torch
from pytorch_metric_learning.distances import DotProductSimilarity, LpDistance
from pytorch_metric_learning.losses import (
    NormalizedSoftmaxLoss,
    NPairsLoss,
    ProxyNCALoss,
    TripletMarginLoss,
)
from pytorch_metric_learning.miners import TripletMarginMiner
from torch import Tensor, nn
from torch.nn import functional

from nearsure.lab.config import LossName

SOFTMAX_TEMPERATURE = 0.05
PROXY_NCA_TEMPERATURE = 0.33
TRIPLET_MARGIN = 0.2
N_PAIRS_TEMPERATURE = 0.05


class SemiHardTripletLoss(nn.Module):
    """Triplets whose negative is farther than the positive, but by less than the margin."""

    def __init__(self) -> None:
        super().__init__()
        distance = LpDistance(power=2)  # squared, as in FaceNet
        self.miner = TripletMarginMiner(
            margin=TRIPLET_MARGIN, type_of_triplets="semihard", distance=distance
        )
        self.loss = TripletMarginLoss(margin=TRIPLET_MARGIN, distance=distance)

    def forward(self, embeddings: Tensor, codes: Tensor) -> Tensor:
        """Mean loss of the semi-hard triplets of the batch; 0 if there is none."""
        loss: Tensor = self.loss(embeddings, codes, self.miner(embeddings, codes))
        return loss


class SphericalNPairsLoss(nn.Module):
    """N-pairs of unit vectors, as in the paper, with the temperature of normalized softmax.

    On inner products of features of any length, which are near 200 at the start, the softmax is
    saturated, and fine-tuning tears the network down; cosines alone are too soft to learn from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loss = NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))

    def forward(self, embeddings: Tensor, codes: Tensor) -> Tensor:
        """Mean loss of the pairs of the batch."""
        scaled = functional.normalize(embeddings) / N_PAIRS_TEMPERATURE**0.5
        loss: Tensor = self.loss(scaled, codes)
        return loss


def make_loss(name: LossName, *, n_classes: int, embedding_size: int, seed: int) -> nn.Module:
    """A loss of (embeddings, class codes).

    The losses put embeddings on the sphere themselves. Proxies are parameters of the loss and have
    to be given to the optimiser.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "normalized-softmax":
            return NormalizedSoftmaxLoss(  # type: ignore[no-any-return]
                n_classes, embedding_size, temperature=SOFTMAX_TEMPERATURE
            )
        if name == "proxy-nca":
            return ProxyNCALoss(  # type: ignore[no-any-return]
                n_classes, embedding_size, softmax_scale=1 / PROXY_NCA_TEMPERATURE
            )
        if name == "triplet":
            return SemiHardTripletLoss()
        return SphericalNPairsLoss()


def start_proxies(loss: nn.Module, class_means: Tensor) -> None:
    """Put the proxies of a loss, if it has any, at the class means, shape (n_classes, d)."""
    with torch.no_grad():
        if isinstance(loss, NormalizedSoftmaxLoss):
            loss.W.copy_(class_means.T)
        elif isinstance(loss, ProxyNCALoss):
            loss.proxies.copy_(class_means)
