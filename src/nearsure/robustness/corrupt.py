"""One image, one corruption, one severity: the fifteen of Hendrycks and Dietterich."""

from collections.abc import Callable, Mapping
from functools import cache
from operator import index

import numpy as np

from nearsure.errors import InvalidInputError
from nearsure.extras import require
from nearsure.robustness.image_checks import (
    CORRUPTIONS,
    Pixels,
    checked_generator,
    checked_image,
    checked_name,
    checked_severity,
)
from nearsure.robustness.severity_constants import constants_of


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
    pixels = checked_image(image)
    checked_name(name)
    level = checked_severity(severity)
    generator = checked_generator(rng)
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
    key = (CORRUPTIONS.index(checked_name(name)), checked_severity(severity))
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
        require(module, extra="robust", purpose="Corrupting images")
    from nearsure.robustness.corruptions import FUNCTIONS  # noqa: PLC0415

    return FUNCTIONS
