"""The four metric-learning losses of the paper, from pytorch-metric-learning."""

import torch
from pytorch_metric_learning.distances import DotProductSimilarity, LpDistance
from pytorch_metric_learning.losses import (
    NormalizedSoftmaxLoss,
    NPairsLoss,
    ProxyNCALoss,
    TripletMarginLoss,
)
from pytorch_metric_learning.miners import BatchEasyHardMiner, TripletMarginMiner
from torch import Tensor, nn
from torch.nn import functional

from nearsure.lab.config import TrainingSettings

SOFTMAX_TEMPERATURE = 0.05
PROXY_NCA_TEMPERATURE = 0.33
TRIPLET_MARGIN = 0.2


class SemiHardTripletLoss(nn.Module):
    """Triplets whose negative is farther than the positive, but by less than the margin.

    Parameters
    ----------
    easy_positives : bool
        Only one triplet an image: its nearest positive, and the nearest negative beyond that.
    """

    def __init__(self, *, easy_positives: bool = False) -> None:
        super().__init__()
        distance = LpDistance(power=2)  # squared, as in FaceNet
        self.miner = (
            BatchEasyHardMiner(pos_strategy="easy", neg_strategy="semihard", distance=distance)
            if easy_positives
            else TripletMarginMiner(
                margin=TRIPLET_MARGIN, type_of_triplets="semihard", distance=distance
            )
        )
        self.loss = TripletMarginLoss(margin=TRIPLET_MARGIN, distance=distance)

    def forward(self, embeddings: Tensor, codes: Tensor) -> Tensor:
        """Mean loss of the semi-hard triplets of the batch; 0 if there is none."""
        loss: Tensor = self.loss(embeddings, codes, self.miner(embeddings, codes))
        return loss


class SphericalNPairsLoss(nn.Module):
    """N-pairs of unit vectors, as in the paper, with a temperature as normalized softmax has.

    On inner products of features of any length, which are near 200 at the start, the softmax is
    saturated, and fine-tuning tears the network down; cosines alone are too soft to learn from.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.loss = NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))

    def forward(self, embeddings: Tensor, codes: Tensor) -> Tensor:
        """Mean loss of the pairs of the batch."""
        scaled = functional.normalize(embeddings) / self.temperature**0.5
        loss: Tensor = self.loss(scaled, codes)
        return loss


def make_loss(
    settings: TrainingSettings, *, n_classes: int, embedding_size: int, seed: int
) -> nn.Module:
    """The loss of a training, of (embeddings, class codes).

    The losses put embeddings on the sphere themselves. Proxies are parameters of the loss and have
    to be given to the optimiser.
    """
    name = settings.loss
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
            return SemiHardTripletLoss(easy_positives=settings.easy_positives)
        return SphericalNPairsLoss(settings.n_pairs_temperature)


def start_proxies(loss: nn.Module, class_means: Tensor) -> None:
    """Put the proxies of a loss, if it has any, at the class means, shape (n_classes, d)."""
    with torch.no_grad():
        if isinstance(loss, NormalizedSoftmaxLoss):
            loss.W.copy_(class_means.T)
        elif isinstance(loss, ProxyNCALoss):
            loss.proxies.copy_(class_means)
