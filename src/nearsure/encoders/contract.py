"""What turns images or text into vectors."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

EncoderKind = Literal["image", "text"]


@runtime_checkable
class Encoder(Protocol):
    """The contract; calls come from one thread at a time."""

    @property
    def kind(self) -> EncoderKind:
        """What it takes: "image", the bytes of image files; or "text", strings."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        """Vectors of shape (n, dimension), finite.

        Raises
        ------
        NearsureError
            For what is no image, or no text.
        """
