"""Networks and pictures that are small enough to attack in no time."""

import torch
from torch import Tensor, nn

N_IMAGES, SIDE, EMBEDDING_SIZE = 6, 8, 5


class Linear(nn.Module):
    """An embedding of one number, w . x, whose gradient is w wherever x is."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, images: Tensor) -> Tensor:
        return (self.weights * images).flatten(1).sum(dim=1, keepdim=True)


def small_network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """With batch normalisation and dropout, which do one thing in training and another in use."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = nn.Sequential(
            nn.Conv2d(3, 6, kernel_size=3),
            nn.BatchNorm2d(6),
            nn.Tanh(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(6 * (SIDE - 2) ** 2, EMBEDDING_SIZE),
        )
    network.to(dtype).eval()
    return network


def pictures(dtype: torch.dtype = torch.float64, n: int = N_IMAGES) -> Tensor:
    """Some pixels stand at 0 or 1, where there is no way out."""
    noise = torch.rand(n, 3, SIDE, SIDE, generator=seeded(1), dtype=torch.float64)
    return (1.2 * noise - 0.1).clamp(0, 1).to(dtype)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
