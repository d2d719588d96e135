"""Encoders: images or texts to vectors."""

import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nearsure.errors import ConfigError, MissingExtraError

__all__ = ["Encoder", "open_encoder"]


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


BUILT_IN = {"image": "ImageEncoder", "text": "TextEncoder"}
KINDS = ("image", "text")


def open_encoder(name: str) -> Encoder:
    """Open an encoder.

    Parameters
    ----------
    name : str
        ``"image"`` (EfficientNet-Lite0, extra ``image``), ``"text"`` (all-MiniLM-L6-v2, extra
        ``text``), or ``"module:attribute"`` for one of your own: an `Encoder`, or a function
        without parameters that makes one.

    Examples
    --------
    >>> open_encoder("sound")
    Traceback (most recent call last):
    ...
    nearsure.errors.ConfigError: encoder must be 'image', 'text' or 'module:attribute'. Got \
'sound' instead.
    """
    if name in BUILT_IN:
        try:
            module = import_module(f"nearsure.encoders.{name}")
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"The {name} encoder needs {error.name}, which is not installed: "
                f"pip install 'nearsure[{name}]'"
            ) from error
        return cast("Encoder", getattr(module, BUILT_IN[name])())
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise ConfigError(
            f"encoder must be 'image', 'text' or 'module:attribute'. Got {name!r} instead."
        )
    return _load_encoder(name, module_name, attribute)


def _load_encoder(name: str, module_name: str, attribute: str) -> Encoder:
    try:
        found = getattr(_import_from_here(module_name), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"encoder {name!r} cannot be imported: {error}.") from error
    except AttributeError as error:
        raise ConfigError(f"encoder {name!r}: {module_name} has no {attribute}.") from error
    encoder = found() if isinstance(found, type) or not isinstance(found, Encoder) else found
    if not isinstance(encoder, Encoder) or encoder.kind not in KINDS:
        raise ConfigError(
            f"encoder {name!r} must have kind ('image' or 'text'), dimension and encode(); see "
            "nearsure.encoders.Encoder."
        )
    return encoder


def _import_from_here(name: str) -> ModuleType:
    """Import a module, also from the current folder; an installed one comes first."""
    before = list(sys.path)
    sys.path.append("")
    try:
        return import_module(name)
    finally:
        sys.path[:] = before
