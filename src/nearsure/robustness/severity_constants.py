"""How strong a corruption is at a severity and an image size."""

from collections.abc import Mapping
from functools import lru_cache
from math import log
from operator import index
from types import MappingProxyType

from nearsure.errors import InvalidInputError
from nearsure.robustness.image_checks import checked_name, checked_severity
from nearsure.robustness.published_constants import PUBLISHED, PUBLISHED_SIZES


def severity_constants(name: str, severity: int, size: int) -> Mapping[str, float]:
    """The constants with which a corruption is applied to an image.

    At 32, 64 and 224 pixels they are the published ones. Between two published sizes each constant
    goes linearly with the logarithm of the size: the sizes are far apart and what matters is their
    ratio; the constants themselves are not interpolated geometrically, since some are zero. Counts
    are rounded. Only `elastic_transform`, whose sets are of different kinds, takes that of the
    nearest size, by ratio. Smaller images than 32 pixels take the constants of 32, larger ones
    than 224 those of 224, unchanged, as is the custom of the field.

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
    return constants_of(checked_name(name), checked_severity(severity), pixels)


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
    if not published.interpolated:
        part = round(part)
    values = {}
    for column, below, above in zip(published.names, low, high, strict=True):
        # Written so that both ends are met exactly.
        value = (1 - part) * below + part * above
        values[column] = round(value) if column in published.integers else value
    return MappingProxyType(values)


def _part_of_the_way(size: int, start: int, end: int) -> float:
    inside = min(max(size, start), end)
    return log(inside / start) / log(end / start)
