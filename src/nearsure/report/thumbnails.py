"""Images as small data: addresses. What cannot be shown is a note, never an error."""

import base64
import io
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from nearsure.errors import MissingExtraError
from nearsure.extras import require
from nearsure.image_limits import KNOWN_FORMATS, ImageLimits

# A path, the bytes of an image file, or a data: address.
Picture: TypeAlias = str | PathLike[str] | bytes
# Pictures of a gallery by id, or by the text of it; only what is shown is looked up.
Pictures: TypeAlias = Mapping[Any, Picture]

LONGEST_SIDE = 128
# Of pictures that a gallery keeps: large enough to be looked at.
KEPT_SIDE = 320
QUALITY = 80
NAMES_SHOWN = 3
# More is no photograph for a gallery, but a file that is made to fill the memory.
LARGEST_AREA = 64_000_000
DATA_PREFIX = "data:image/"


class Thumbnails:
    """Makes each picture small once, and lists what could not be shown.

    Parameters
    ----------
    longest_side : int
        Pixels.
    """

    def __init__(self, longest_side: int = LONGEST_SIDE) -> None:
        self._longest_side = longest_side
        self._made: dict[Picture, str | None] = {}
        self._broken: list[str] = []
        self._lacking: str | None = None

    def of(self, picture: Picture | None) -> str | None:
        """The data: address of a picture; None if there is none, or it cannot be shown."""
        if picture is None or not picture or self._lacking is not None:
            return None
        if picture not in self._made:
            self._made[picture] = self._small(picture)
        return self._made[picture]

    def note(self) -> str | None:
        """What could not be shown, in a sentence."""
        if self._lacking is not None or not self._broken:
            return self._lacking
        names = ", ".join(self._broken[:NAMES_SHOWN])
        more = ", ..." if len(self._broken) > NAMES_SHOWN else ""
        are = "picture is" if len(self._broken) == 1 else "pictures are"
        return f"{len(self._broken)} {are} not shown, as unreadable: {names}{more}."

    def _small(self, picture: Picture) -> str | None:
        try:
            image = require("PIL.Image", extra="plot", purpose="A report with pictures")
            operations = require("PIL.ImageOps", extra="plot", purpose="A report with pictures")
        except MissingExtraError as error:
            self._lacking = str(error)
            return None
        try:
            jpeg = _small_jpeg(image, operations, _source(picture), self._longest_side)
        except Exception:  # noqa: BLE001  # A decoder may raise anything about a broken picture.
            self._broken.append(_name_of(picture))
            return None
        return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


def picture_under(pictures: Pictures | None, name: object) -> Picture | None:
    """What a mapping holds under an id, or under its text."""
    if pictures is None:
        return None
    key = name.item() if isinstance(name, np.generic) else name
    return pictures.get(key) or pictures.get(str(key))


def _source(picture: Picture) -> str | PathLike[str] | io.BytesIO:
    if isinstance(picture, bytes):
        return io.BytesIO(picture)
    if isinstance(picture, str) and picture.startswith(DATA_PREFIX):
        return io.BytesIO(base64.b64decode(picture.partition(",")[2], validate=True))
    return picture


def _small_jpeg(
    image: ModuleType,
    operations: ModuleType,
    source: str | PathLike[str] | io.BytesIO,
    longest_side: int,
) -> bytes:
    with image.open(source, formats=KNOWN_FORMATS) as opened:
        ImageLimits(LARGEST_AREA, enough=2 * longest_side).apply(opened)
        # Small before anything else, of which each makes a copy.
        opened.thumbnail((longest_side, longest_side))
        turned = operations.exif_transpose(opened)
        if turned.mode != "RGB":
            turned = turned.convert("RGBA")
            paper = image.new("RGBA", turned.size, "white")
            turned = image.alpha_composite(paper, turned).convert("RGB")
        written = io.BytesIO()
        # Neither the place of the photograph nor a remark in it goes into a report.
        turned.save(written, "JPEG", quality=QUALITY, optimize=True, exif=b"", comment=b"")
    return written.getvalue()


def _name_of(picture: Picture) -> str:
    """The name of its file alone: the reader of a report need not see its folder."""
    if isinstance(picture, bytes) or str(picture).startswith(DATA_PREFIX):
        return "an image without a name"
    return Path(picture).name
