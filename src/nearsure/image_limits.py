"""Limits of images from untrusted files, checked before they are decoded.

A few bytes may take gigabytes or hours to decode: a picture of one colour is some kilobytes,
however large; and each of the thousands of scans that a progressive JPEG may have goes over the
whole picture. Decoders that few need (such as that of PostScript, which runs a program) are not
used.
"""

import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

# Pillow's names of what photographs and drawings come in.
KNOWN_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
# Programs write about ten.
MOST_SCANS = 32

START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
# What else may stand behind 255 among the data of a scan is no marker.
MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")


@dataclass(frozen=True)
class ImageLimits:
    """How much of an image is decoded.

    Parameters
    ----------
    largest_area : int
        Pixels.
    enough : int
        Pixels of either side that suffice: a JPEG is decoded at a fraction of its size, if that has
        so many.
    """

    largest_area: int
    enough: int

    def apply(self, image: "Image") -> None:
        """Let an image that was opened, and not loaded yet, be decoded within the limits.

        Raises
        ------
        ValueError
            If it cannot.
        """
        image.draft(None, (self.enough, self.enough))
        if image.width * image.height > self.largest_area:
            raise ValueError(
                f"it has {image.width} x {image.height} pixels, of which at most "
                f"{self.largest_area:,} are allowed; make it smaller"
            )
        file: IO[bytes] | None = getattr(image, "fp", None)
        if file is not None and image.info.get("progressive"):
            n_scans = count_scans(_whole(file))
            if n_scans > MOST_SCANS:
                raise ValueError(
                    f"it has {n_scans} scans, of which at most {MOST_SCANS} are allowed; "
                    "save it again"
                )


def count_scans(jpeg: bytes) -> int:
    r"""Scans of a JPEG up to its end; what is cut off in the middle does not matter.

    Examples
    --------
    >>> comment = b"\xff\xfe\x00\x06\xff\xda\xff\xd9"
    >>> scan = b"\xff\xda\x00\x02data\xff\x00data"
    >>> count_scans(b"\xff\xd8" + comment + 3 * scan + b"\xff\xd9" + scan)
    3
    """
    n_scans, place = 0, 2
    while (found := MARKER.search(jpeg, place)) is not None:
        marker = found[1][0]
        if marker == END_OF_IMAGE:
            break
        n_scans += marker == START_OF_SCAN
        length = int.from_bytes(jpeg[found.end() : found.end() + 2], "big")
        place = found.end() + max(2, length)
    return n_scans


def _whole(file: IO[bytes]) -> bytes:
    place = file.tell()
    file.seek(0)
    content = file.read()
    file.seek(place)
    return content
