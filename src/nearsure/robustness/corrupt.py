"""`corrupt`: an image damaged in one of fifteen ways, at one of five severities."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from math import log
from operator import index
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearsure.errors import InvalidInputError
from nearsure.extras import require
from nearsure.robustness.constants import PUBLISHED, PUBLISHED_SIZES

Pixels = NDArray[np.uint8]

CORRUPTIONS = tuple(PUBLISHED)
SEVERITIES = (1, 2, 3, 4, 5)
# Below this side a blur's reach is that of the image.
SMALLEST_SIDE = 16


def check_image(image: object) -> Pixels:
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


def check_name(name: object) -> str:
    """Refuse what is not one of the fifteen, and suggest the nearest."""
    if isinstance(name, str) and name in PUBLISHED:
        return name
    close = get_close_matches(str(name).lower().replace(" ", "_"), CORRUPTIONS, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInputError(
        f"The 'name' parameter must be one of {', '.join(map(repr, CORRUPTIONS))}. "
        f"Got {name!r} instead.{hint}"
    )


def check_severity(severity: object) -> int:
    """Refuse what is not a whole number from 1 to 5."""
    whole = isinstance(severity, int | np.integer) and not isinstance(severity, bool)
    if not whole or severity not in SEVERITIES:
        raise InvalidInputError(
            "The 'severity' parameter must be a whole number from 1 to 5. "
            f"Got {severity!r} instead."
        )
    return int(severity)


def check_generator(rng: object) -> np.random.Generator:
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


def severity_constants(name: str, severity: int, size: int) -> Mapping[str, float]:
    """The constants with which a corruption is applied to an image.

    At 32, 64 and 224 pixels they are the published ones. Between two published sizes each constant
    goes linearly with the logarithm of the size: the sizes are far apart and what matters is their
    ratio; the constants themselves are not interpolated geometrically, since some are zero. Counts
    are rounded. Only `elastic_transform`, whose sets are of different kinds, takes that of the
    nearest size, by ratio, with its amplitude in proportion to the image's size, so that the image
    is bent by the same fraction of its side. Smaller images than 32 pixels take the constants of
    32, larger ones than 224 those of 224, unchanged, as is the custom of the field.

    Parameters
    ----------
    name : str
        One of `CORRUPTIONS`.
    severity : int
        From 1 to 5.
    size : int
        Smaller side of the image, in pixels.

    Returns
    -------
    mapping of str to float
        Read-only.

    Examples
    --------
    >>> dict(severity_constants("glass_blur", 5, 224))
    {'sigma': 1.5, 'reach': 4, 'passes': 2}
    >>> [severity_constants("jpeg_compression", 1, size)["quality"] for size in (32, 48, 64)]
    [80, 71, 65]
    >>> round(severity_constants("elastic_transform", 5, 168)["amplitude"], 4)  # 0.15 at 224
    0.1125
    """
    try:
        pixels = index(size)
    except TypeError:
        pixels = 0
    if pixels < 1:
        raise InvalidInputError(
            "The 'size' parameter must be a whole number of pixels, at least 1. "
            f"Got {size!r} instead."
        )
    return constants_of(check_name(name), check_severity(severity), pixels)


@lru_cache(maxsize=4096)
def constants_of(name: str, severity: int, size: int) -> Mapping[str, float]:
    """Like `severity_constants`, for arguments that were checked."""
    published = PUBLISHED[name]
    small, middle, large = (
        rows[severity - 1] for rows in (published.at_32, published.at_64, published.at_224)
    )
    first, second, third = PUBLISHED_SIZES
    if size <= second:
        low, high, part = small, middle, _part_of_the_way(size, first, second)
    else:
        low, high, part = middle, large, _part_of_the_way(size, second, third)
    scale = 1.0
    if not published.interpolated:
        part = round(part)
        nearest = ((first, second) if size <= second else (second, third))[part]
        scale = min(size, third) / nearest
    values = {}
    for column, below, above in zip(published.names, low, high, strict=True):
        # Written so that both ends are met exactly.
        value = (1 - part) * below + part * above
        if column in published.proportional:
            value *= scale
        values[column] = round(value) if column in published.integers else value
    return MappingProxyType(values)


def _part_of_the_way(size: int, start: int, end: int) -> float:
    inside = min(max(size, start), end)
    return log(inside / start) / log(end / start)


def corrupt(image: Pixels, name: str, severity: int, rng: np.random.Generator) -> Pixels:
    """A corrupted copy of an image.

    The result depends on the arguments alone: no global random state is read or changed, so
    images may be corrupted in any order, thread or process. The strength of each severity is that
    of `severity_constants` for the smaller side of the image. Grey levels are rounded, where the
    programs of the original benchmark cut off the fraction.

    Parameters
    ----------
    image : array of shape (height, width, 3), uint8
        Red, green and blue; at least 16 pixels high and wide. It is not changed.
    name : str
        One of `CORRUPTIONS`.
    severity : int
        From 1, mild, to 5.
    rng : numpy.random.Generator
        What the noise is drawn from; `corruption_rng` gives one for each image.

    Returns
    -------
    array of shape (height, width, 3), uint8

    Raises
    ------
    InvalidInputError
        If an argument is not as above.
    MissingExtraError
        If OpenCV or Pillow is not installed.

    References
    ----------
    D. Hendrycks, T. Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and
    Perturbations. ICLR 2019.

    Examples
    --------
    >>> image = np.full((32, 32, 3), 100, np.uint8)
    >>> corrupt(image, "brightness", 5, corruption_rng(0, 0, "brightness", 5))[0, 0].tolist()
    [176, 176, 176]
    """
    pixels = check_image(image)
    check_name(name)
    level = check_severity(severity)
    generator = check_generator(rng)
    constants = constants_of(name, level, min(pixels.shape[:2]))
    return _functions()[name](pixels, generator, **constants)


def corruption_rng(seed: int, image: int, name: str, severity: int) -> np.random.Generator:
    """The stream of random numbers of one corruption of one image.

    Streams of different arguments are independent, so that a data set is corrupted in the same
    way whatever is corrupted before, beside or after it.

    Parameters
    ----------
    seed : int
        Of the whole data set, at least 0.
    image : int
        Number of the image, at least 0.
    name : str
        One of `CORRUPTIONS`.
    severity : int
        From 1 to 5.

    Returns
    -------
    numpy.random.Generator

    Examples
    --------
    >>> first, again = (corruption_rng(7, 12, "fog", 3).random() for _ in range(2))
    >>> first == again, first == corruption_rng(7, 13, "fog", 3).random()
    (True, False)
    """
    # The position in the published list is the same in every process, unlike hash().
    key = (CORRUPTIONS.index(check_name(name)), check_severity(severity))
    entropy = (_whole(seed, "seed"), _whole(image, "image"))
    # spawn_key keeps the parts apart: a seed of many digits cannot run into the image's number.
    return np.random.default_rng(np.random.SeedSequence(entropy[0], spawn_key=(entropy[1], *key)))


def _whole(value: object, name: str) -> int:
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise InvalidInputError(
            f"The {name!r} parameter must be a whole number, at least 0. Got {value!r} instead."
        )
    return number


@cache
def _functions() -> Mapping[str, Callable[..., Pixels]]:
    for module in ("cv2", "PIL"):
        require(module, extra="train", purpose="Corrupting images")
    from nearsure.robustness.corruptions import FUNCTIONS  # noqa: PLC0415

    return FUNCTIONS
