"""Encoders: images or texts to vectors."""

import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nearsure.errors import ConfigError, MissingExtraError

__all__ = ["Encoder", "check_encoder", "describe_encoder", "find_stored_encoder", "open_encoder"]


EncoderKind = Literal["image", "text"]


@runtime_checkable
class Encoder(Protocol):
    """The contract; calls come from one thread at a time.

    It may have a ``version``, a text that changes when its vectors do: a gallery that was made by
    another version is then refused.
    """

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
# Larger batches are not faster on a CPU, and take more memory.
BATCH = 16


def find_stored_encoder(made_by: str) -> str:
    """The name of the encoder that a model file names; an error if it is not one of nearsure's.

    A file from elsewhere must not choose which code is run.
    """
    name = made_by.partition(" ")[0]
    if name not in BUILT_IN:
        raise ConfigError(
            f"The vectors of the gallery were made by the encoder {name!r}, which is no part of "
            f"nearsure, and is run only if it is named: --encoder {name}."
        )
    return name


def open_encoder(name: str, *, device: str = "cpu", batch_size: int = BATCH) -> Encoder:
    """Open an encoder.

    Parameters
    ----------
    name : str
        ``"image"`` (EfficientNet-Lite0, extra ``image``), ``"text"`` (all-MiniLM-L6-v2, extra
        ``text``), or ``"module:attribute"`` for one of your own: an `Encoder`, or a function
        without parameters that makes one.
    device : str
        Where a built-in one runs: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.
    batch_size : int
        How many images or texts a built-in one encodes together.

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
        return cast("Encoder", getattr(module, BUILT_IN[name])(_check_device(device), batch_size))
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise ConfigError(
            f"encoder must be 'image', 'text' or 'module:attribute'. Got {name!r} instead."
        )
    if device != "cpu":
        raise ConfigError(f"device must be left out: the encoder {name!r} chooses its own.")
    return _load_encoder(name, module_name, attribute)


def describe_encoder(name: str, encoder: Encoder) -> str:
    """Name and version of an encoder that was opened by this name, as a model file has them."""
    return f"{name} {getattr(encoder, 'version', '')}".strip()


def check_encoder(made_by: str | None, name: str, encoder: Encoder, dimension: int) -> None:
    """An error unless an encoder is the one that made the vectors of a gallery, as far as is known.

    Parameters
    ----------
    made_by : str or None
        What `describe_encoder` gave when the gallery was fitted; None if nobody said so.
    name, encoder : str, Encoder
        The one that is to be used.
    dimension : int
        Of the gallery's vectors.
    """
    own = describe_encoder(name, encoder)
    if made_by is not None and own != made_by:
        raise ConfigError(
            f"The gallery's vectors were made by the encoder {made_by!r}, and only vectors of the "
            f"same can be compared with them. Got {own!r}: leave --encoder out, or install that "
            "version, or refit the gallery with this one."
        )
    if encoder.dimension != dimension:
        raise ConfigError(
            f"The encoder makes vectors of {encoder.dimension} numbers. "
            f"Those of the gallery have {dimension}."
        )


def _check_device(device: str) -> str:
    torch = import_module("torch")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ConfigError(
            f"device must be one that torch finds here, such as cpu or cuda. Got {device!r}: "
            f"{reason}."
        ) from error
    return device


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
