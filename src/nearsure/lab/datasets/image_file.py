"""Image files of any kind as red, green and blue; those that cannot be decoded are named."""

import io
import struct
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearsure.errors import BrokenImageError
from nearsure.extras import require
from nearsure.image_limits import KNOWN_FORMATS, ImageLimits
from nearsure.lab.datasets.labelled_images import LabelledImages, Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

PURPOSE = "Reading images"
SHOWN = 10
BATCH = 1024
# Rows that are laid on white at a time.
BAND = 64

# 32-bit grey is what Pillow makes of some 16-bit files.
WIDE_GREY_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")
ALPHA_MODES = ("P", "PA", "LA", "La", "RGBA", "RGBa")
LARGEST_16_BIT = 65535

ORIENTATION_TAG = 0x0112
# What turns the stored picture upright, by the value of the tag; Pillow's names.
UPRIGHT_BY = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}

# Python's warning filters belong to the process: one thread at a time may change them.
_filters_lock = threading.Lock()


def read_image(path: Path) -> Pixels:
    """Decode an image file.

    Grey, 16-bit grey (65535 is white), palette, CMYK and 1-bit images become red, green and blue.
    What is transparent is laid on white. The picture is turned as its EXIF orientation says. Of
    several frames the first is taken.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    array of shape (height, width, 3), uint8
        Red, green and blue; the caller's own, writable.

    Raises
    ------
    BrokenImageError
        If the file is missing, empty, cut off, not an image, too large to be trusted, or of a kind
        whose white is not known. The message names the file and says why.
    MissingExtraError
        If Pillow is not installed.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _broken(path, error.strerror or str(error)) from error
    return decode_image(data, name=path)


def decode_image(data: bytes, *, name: str | Path, limits: ImageLimits | None = None) -> Pixels:
    """Decode what an image file holds, as `read_image` does; errors call it by `name`.

    With `limits`, for images of strangers, it may be smaller than the file says.
    """
    module = require("PIL.Image", extra="train", purpose=PURPOSE)
    try:
        return _decode(data, limits)
    except MemoryError:
        raise  # says nothing about the file
    except (module.DecompressionBombWarning, module.DecompressionBombError) as error:
        reason = f"{error} (PIL.Image.MAX_IMAGE_PIXELS sets the limit)"
        raise _broken(name, reason) from error
    except module.UnidentifiedImageError as error:
        reason = "it is not an image of a kind that Pillow knows, or its header is broken"
        raise _broken(name, reason) from error
    except OSError as error:
        raise _broken(name, error.strerror or str(error)) from error
    except Exception as error:  # broken bytes make decoders raise errors of every kind
        raise _broken(name, str(error) or type(error).__name__) from error


def find_broken(
    images: LabelledImages,
    *,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
    n_threads: int = 4,
) -> dict[str, str]:
    """Read every image once, and tell which cannot be decoded.

    Parameters
    ----------
    images : LabelledImages
        What to read.
    progress : callable
        Wraps the range of image numbers, as ``tqdm`` does, and passes on its items.
    n_threads : int
        Images that are decoded at a time.

    Returns
    -------
    dict of str to str
        Name of each broken image -> sentence that says what is wrong, in the order of `images`.
    """

    def complaint(i: int) -> str | None:
        try:
            images.read(i)
        except BrokenImageError as error:
            return str(error)
        return None

    def complaints() -> Iterator[str | None]:
        # Batches bound the memory that waiting images take.
        for start in range(0, len(images), BATCH):
            yield from pool.map(complaint, range(start, min(start + BATCH, len(images))))

    with ThreadPoolExecutor(n_threads) as pool:
        found = zip(progress(range(len(images))), complaints(), strict=True)
        return {images.names[i]: message for i, message in found if message is not None}


def refuse_broken(broken: Mapping[str, str], *, dataset: str) -> None:
    """Raise an error that lists the broken images, if there are any.

    Parameters
    ----------
    broken : mapping of str to str
        What `find_broken` found.
    dataset : str
        Name of the data set.

    Raises
    ------
    BrokenImageError
        If `broken` is not empty.
    """
    if not broken:
        return
    lines = [f"  {message}" for message in list(broken.values())[:SHOWN]]
    if len(broken) > SHOWN:
        lines.append(f"  and {len(broken) - SHOWN} more")
    count = "1 image" if len(broken) == 1 else f"{len(broken)} images"
    raise BrokenImageError(
        f"{count} of {dataset} cannot be decoded. Copy them again, or say that such images are to "
        "be skipped (skip_broken_images):\n" + "\n".join(lines)
    )


def skip_broken(images: LabelledImages, broken: Mapping[str, str]) -> LabelledImages:
    """The images without the broken ones.

    Parameters
    ----------
    images : LabelledImages
        All of them.
    broken : mapping of str to str
        What `find_broken` found; only its keys, the names, are used.
    """
    return images.take([i for i, name in enumerate(images.names) if name not in broken])


def _broken(name: str | Path, reason: str) -> BrokenImageError:
    return BrokenImageError(f"{name} cannot be decoded: {reason.rstrip('.')}.")


def _decode(data: bytes, limits: ImageLimits | None) -> Pixels:
    if not data:
        raise ValueError("the file is empty")
    module = require("PIL.Image", extra="train", purpose=PURPOSE)
    with _quiet_about_metadata(error=module.DecompressionBombWarning):
        formats = None if limits is None else KNOWN_FORMATS
        image: Image = module.open(io.BytesIO(data), formats=formats)
        if limits is not None:
            limits.apply(image)
        if image.format == "TIFF":
            image.load()  # reads metadata too
    image.load()  # the long part, outside the lock
    with _quiet_about_metadata(error=module.DecompressionBombWarning):
        orientation = _orientation(image)
    if orientation in UPRIGHT_BY:
        image = image.transpose(module.Transpose[UPRIGHT_BY[orientation]])
    return _red_green_blue(image)


@contextmanager
def _quiet_about_metadata(error: type[Warning]) -> Iterator[None]:
    """Nobody can act on Pillow's warnings about metadata; the one about size becomes an error."""
    with _filters_lock, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\b")
        warnings.simplefilter("error", error)
        yield


def _orientation(image: "Image") -> int:
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except (OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, struct.error):
        return 1  # broken metadata do not make a picture unreadable
    return orientation if isinstance(orientation, int) else 1


def _red_green_blue(image: "Image") -> Pixels:
    if image.mode in WIDE_GREY_MODES:
        grey = _to_8_bits(np.asarray(image), image.info.get("transparency"))
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise ValueError("it holds floating-point numbers, whose white is not known")
    if image.mode in ALPHA_MODES or "transparency" in image.info:
        return _on_white(image)
    return np.array(image.convert("RGB"))


def _to_8_bits(values: NDArray[np.integer], transparent: object) -> Pixels:
    """Grey of 16 bits, shape (height, width), to the nearest of 8 bits; transparent is white."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > LARGEST_16_BIT:
        raise ValueError(
            f"it holds 32-bit numbers from {low} to {high}, whose white is not known; "
            "grey of 16 bits ends at 65535"
        )
    grey = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if transparent is not None:
        grey[values == transparent] = 255
    return grey


def _on_white(image: "Image") -> Pixels:
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    # In bands: four wide numbers a pixel of a whole photograph would take a gigabyte.
    for top in range(0, image.height, BAND):
        bottom = min(top + BAND, image.height)
        band = image.crop((0, top, image.width, bottom))
        if band.mode == "La":
            band = band.convert("LA")  # Pillow has no direct way from La
        red_green_blue_alpha = np.asarray(band.convert("RGBA")).astype(np.uint32)
        alpha = red_green_blue_alpha[:, :, 3:]
        mixed = red_green_blue_alpha[:, :, :3] * alpha + 255 * (255 - alpha)
        pixels[top:bottom] = (mixed + 127) // 255
    return pixels
