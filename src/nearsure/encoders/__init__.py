"""From images and text to vectors, for those who do not bring vectors."""

from nearsure.encoders.contract import Encoder
from nearsure.encoders.opening import open_encoder

__all__ = ["Encoder", "open_encoder"]
