"""What an image, a corruption's name and a severity must be."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearsure.errors import InvalidInputError
from nearsure.robustness.published_constants import PUBLISHED

Pixels = NDArray[np.uint8]

CORRUPTIONS = tuple(PUBLISHED)
SEVERITIES = (1, 2, 3, 4, 5)
# Below this side a blur's reach is that of the image.
SMALLEST_SIDE = 16


def checked_image(image: object) -> Pixels:
    """Refuse what is not a colour image of bytes; give the same pixels in one piece of memory."""
    if not isinstance(image, np.ndarray):
        raise InvalidInputError(
            "The 'image' parameter must be an array of uint8 of shape (height, width, 3). "
            f"Got {type(image).__name__} instead: convert it with np.asarray(image)."
        )
    if image.dtype != np.uint8:
        raise InvalidInputError(_wrong_type(image))
    if image.ndim != 3 or image.shape[2] != 3:  # noqa: PLR2004
        raise InvalidInputError(_wrong_shape(image.shape))
    if min(image.shape[:2]) < SMALLEST_SIDE:
        raise InvalidInputError(
            f"Both sides of the 'image' must be at least {SMALLEST_SIDE} pixels. "
            f"Got an image of {image.shape[0]} x {image.shape[1]} pixels instead."
        )
    return np.ascontiguousarray(image)


def _wrong_type(image: NDArray[Any]) -> str:
    message = (
        f"The 'image' parameter must be of type uint8, from 0 to 255. Got {image.dtype} instead"
    )
    if not np.issubdtype(image.dtype, np.floating):
        return f"{message}."
    if not image.size:
        return f"{message}, and no pixels."
    low, high = float(image.min()), float(image.max())
    if low >= 0 and high <= 1:
        return f"{message}, with values in [0, 1]: convert with np.uint8(np.rint(255 * image))."
    return (
        f"{message}, with values from {low:g} to {high:g}, which are out of the range [0, 1] "
        "of an image of floats: undo the standardisation, then convert with "
        "np.uint8(np.rint(255 * image))."
    )


def _wrong_shape(shape: tuple[int, ...]) -> str:
    message = (
        f"The 'image' parameter must be of shape (height, width, 3). Got the shape {shape} instead"
    )
    match shape:
        case (_, _):
            return f"{message}, a grey image: repeat it with np.stack([image] * 3, axis=-1)."
        case (_, _, 1):
            return f"{message}, a grey image: repeat it with np.repeat(image, 3, axis=-1)."
        case (_, _, 4):
            return f"{message}, with an alpha channel: leave it out with image[:, :, :3]."
        case (3, _, _):
            return f"{message}, channels first: use np.moveaxis(image, 0, -1)."
        case (_, _, _, 3):
            return f"{message}, a batch: corrupt one image at a time."
        case _:
            return f"{message}."


def checked_name(name: object) -> str:
    """Refuse what is not one of the fifteen, and suggest the nearest."""
    if isinstance(name, str) and name in PUBLISHED:
        return name
    close = get_close_matches(str(name).lower().replace(" ", "_"), CORRUPTIONS, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInputError(
        f"The 'name' parameter must be one of {_listed(CORRUPTIONS)}. Got {name!r} instead.{hint}"
    )


def checked_severity(severity: object) -> int:
    """Refuse what is not a whole number from 1 to 5."""
    whole = isinstance(severity, int | np.integer) and not isinstance(severity, bool)
    if not whole or severity not in SEVERITIES:
        raise InvalidInputError(
            "The 'severity' parameter must be a whole number from 1 to 5. "
            f"Got {severity!r} instead."
        )
    return int(severity)


def checked_generator(rng: object) -> np.random.Generator:
    """Refuse seeds and the old random state."""
    if isinstance(rng, np.random.Generator):
        return rng
    remedy = (
        f"np.random.default_rng({rng})"
        if isinstance(rng, int | np.integer) and not isinstance(rng, bool)
        else "np.random.default_rng(seed)"
    )
    raise InvalidInputError(
        f"The 'rng' parameter must be a numpy Generator. Got {rng!r} instead: pass {remedy}."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
