"""Labelled images of a data set: listed, checked and decoded."""

import io
import os
import struct
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearsure.errors import BrokenImageError, DatasetError
from nearsure.extras import require
from nearsure.image_limits import KNOWN_FORMATS, ImageLimits

if TYPE_CHECKING:
    from typing import Self

    from PIL.Image import Image


Pixels = NDArray[np.uint8]

NAMES_SHOWN = 5


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """A list of images that are read when asked for.

    Parameters
    ----------
    names : tuple of str
        What each image is called in messages and results: its path below the root, with forward
        slashes, or a name of its own.
    labels : tuple of str
        Class of each image.
    read : callable
        ``read(i)`` gives image `i` as red, green and blue, shape (height, width, 3), uint8. It may
        be called from several threads.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    read: Callable[[int], Pixels]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that occur, sorted."""
        return tuple(sorted(set(self.labels)))

    def without_single_images(self) -> "Self":
        """Leave out the classes that have one image only."""
        counts = Counter(self.labels)
        return self.take([i for i, label in enumerate(self.labels) if counts[label] > 1])

    def take(self, rows: Sequence[int]) -> "Self":
        """Some of the images, in the order of `rows`."""
        whole, kept = self.read, tuple(rows)
        return type(self)(
            tuple(self.names[row] for row in kept),
            tuple(self.labels[row] for row in kept),
            lambda i: whole(kept[i]),
        )


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """A data set for metric learning: classes to learn from, and others to be tested on.

    Parameters
    ----------
    dataset : str
        Its name.
    train : LabelledImages
        Images of the seen classes.
    queries : LabelledImages
        Images of unseen classes.
    gallery : LabelledImages, optional
        What the queries are searched among. None: each query is searched among all the others.

    Raises
    ------
    DatasetError
        If a part is empty, if train and test share a class, if a class has one image where it
        needs two (to train on, or to be found when queries are searched among each other), or if
        the gallery lacks the class of a query, which then could never be right.
    """

    dataset: str
    train: LabelledImages
    queries: LabelledImages
    gallery: LabelledImages | None = None

    def __post_init__(self) -> None:
        for part, images in self.parts.items():
            if not len(images):
                raise DatasetError(f"The {part} part of {self.dataset} is empty.")
        self._refuse_shared_classes()
        self._refuse_single_images("train", self.train)
        if self.gallery is None:
            self._refuse_single_images("queries", self.queries)
        else:
            self._refuse_missing_classes(self.gallery)

    @property
    def parts(self) -> dict[str, LabelledImages]:
        """The parts that there are, by name."""
        parts = {"train": self.train, "queries": self.queries}
        return parts if self.gallery is None else parts | {"gallery": self.gallery}

    def _refuse_shared_classes(self) -> None:
        seen = set(self.train.labels)
        for part, images in self.parts.items():
            shared = sorted(seen & set(images.labels))
            if part != "train" and shared:
                raise DatasetError(
                    f"The classes of {self.dataset} must be disjoint: {first_few(shared)} "
                    f"in train and in {part}."
                )

    def _refuse_single_images(self, part: str, images: LabelledImages) -> None:
        single = [label for label, count in Counter(images.labels).items() if count == 1]
        if single:
            raise DatasetError(
                f"Every class of the {part} part of {self.dataset} needs two images or more. "
                f"One image only: {first_few(sorted(single))}. Add images, remove the class, or "
                "say that such classes are to be dropped (drop_single_images)."
            )

    def _refuse_missing_classes(self, gallery: LabelledImages) -> None:
        missing = sorted(set(self.queries.labels) - set(gallery.labels))
        if missing:
            raise DatasetError(
                f"The gallery of {self.dataset} must hold the class of every query, which could "
                f"never be right otherwise. Missing: {first_few(missing)}. Add images to the "
                "gallery or remove these queries."
            )


def split_by_class(
    images: LabelledImages,
    *,
    dataset: str,
    seen_classes: Collection[str],
    drop_single_images: bool = False,
) -> ImageSplit:
    """Train on the classes named, test on all others.

    Parameters
    ----------
    images : LabelledImages
        All images.
    dataset : str
        Name of the data set.
    seen_classes : collection of str
        The classes to train on.
    drop_single_images : bool
        Leave out classes of one image, in place of an error. No class changes its side by this.
    """
    if drop_single_images:
        images = images.without_single_images()
    seen = frozenset(seen_classes)
    train = [i for i, label in enumerate(images.labels) if label in seen]
    queries = [i for i, label in enumerate(images.labels) if label not in seen]
    return ImageSplit(dataset, images.take(train), images.take(queries))


def first_few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


PURPOSE = "Reading images"
BROKEN_SHOWN = 10
BATCH = 1024
# Images that are decoded at a time.
N_DECODED = 4
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
    images: LabelledImages, *, progress: Callable[[Iterable[int]], Iterable[int]] = iter
) -> dict[str, str]:
    """Read every image once, and tell which cannot be decoded.

    Parameters
    ----------
    images : LabelledImages
        What to read.
    progress : callable
        Wraps the range of image numbers, as ``tqdm`` does, and passes on its items.

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

    with ThreadPoolExecutor(N_DECODED) as pool:
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
    lines = [f"  {message}" for message in list(broken.values())[:BROKEN_SHOWN]]
    if len(broken) > BROKEN_SHOWN:
        lines.append(f"  and {len(broken) - BROKEN_SHOWN} more")
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


class Line(NamedTuple):
    """One line of a list: where it stands, for messages, and its columns."""

    place: str
    columns: tuple[str, ...]


def require_folder(root: str | os.PathLike[str], *, dataset: str, expected: str) -> Path:
    """The root of a data set, if it is a folder that holds something.

    Parameters
    ----------
    root : path
        Where the images should be; ``~`` is the home folder.
    dataset : str
        Name of the data set, for messages.
    expected : str
        What should be in the folder, for messages.

    Raises
    ------
    DatasetError
        If it is missing, a file, not to be read, or empty.
    """
    folder = Path(root).expanduser()
    if not folder.exists():
        problem = "it does not exist"
    elif not folder.is_dir():
        problem = "it is a file, not a folder; an archive must be unpacked first"
    elif not _listing(folder):
        problem = "it is empty"
    else:
        return folder
    raise DatasetError(f"{dataset} should be in {folder}: {expected}. But {problem}.")


def require_parts(folder: Path, parts: Sequence[str], *, dataset: str) -> None:
    """Raise an error unless the folder holds all these files and folders (``name/``)."""
    missing = [
        part
        for part in parts
        if not ((folder / part).is_dir() if part.endswith("/") else (folder / part).is_file())
    ]
    if missing:
        raise DatasetError(
            f"{dataset} is half unpacked: {folder} should hold {', '.join(parts)}. "
            f"Missing: {', '.join(missing)}. Unpack the archive again."
        )


def read_list(
    path: Path, columns: Sequence[str], *, dataset: str, n_lines_before: int = 0
) -> Iterator[Line]:
    """The lines of a text file whose columns are parted by white space.

    Parameters
    ----------
    path : Path
        The file, UTF-8. The last column may hold spaces. Empty lines are passed over.
    columns : sequence of str
        Names of the columns, for messages.
    dataset : str
        Name of the data set, for messages.
    n_lines_before : int
        Lines to pass over at the start.

    Raises
    ------
    DatasetError
        If the file is not text, or a line has fewer columns.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                cells = tuple(cell.strip() for cell in text.split(maxsplit=len(columns) - 1))
                if number <= n_lines_before or not cells:
                    continue
                line = Line(f"line {number} of {path}", cells)
                if len(cells) < len(columns):
                    raise bad_line(line, f"'{' '.join(columns)}'", dataset=dataset)
                yield line
    except UnicodeDecodeError as error:
        raise DatasetError(f"{dataset}: {path} is not a text file ({error}).") from error


def bad_line(line: Line, expected: str, *, dataset: str) -> DatasetError:
    """The error about a line that does not parse."""
    return DatasetError(
        f"{dataset}: {line.place} should read {expected}. Got '{' '.join(line.columns)}' instead."
    )


def list_images(
    folder: Path,
    paths: Sequence[str],
    labels: Sequence[str],
    *,
    dataset: str,
    source: Path,
    names: Sequence[str] | None = None,
) -> LabelledImages:
    """Images that a list names, after a check that all are there.

    Folders are listed once each; no file is touched, so that 100,000 files take a second or two.

    Parameters
    ----------
    folder : Path
        What `paths` are relative to.
    paths : sequence of str
        Paths of the images with forward slashes.
    labels : sequence of str
        Class of each.
    dataset : str
        Name of the data set, for messages.
    source : Path
        The list, for messages.
    names : sequence of str, optional
        What the images are called; by default their paths.

    Raises
    ------
    DatasetError
        If a file is absent, is listed twice, or lies outside of the folder.
    """
    kept = tuple(paths)
    _refuse_odd_paths(kept, dataset=dataset, source=source)
    absent = _absent(folder, kept)
    if absent:
        raise DatasetError(
            f"{dataset} is half unpacked: {len(absent)} of {len(kept)} images that {source} lists "
            f"are not in {folder}: {first_few(absent)}. Unpack the archive again."
        )
    return LabelledImages(
        kept if names is None else tuple(names),
        tuple(labels),
        lambda i: read_image(folder / kept[i]),
    )


def _refuse_odd_paths(paths: Sequence[str], *, dataset: str, source: Path) -> None:
    repeated = [path for path, count in Counter(paths).items() if count > 1]
    if repeated:
        # A query would find itself.
        raise DatasetError(f"{dataset}: {source} lists images twice: {first_few(repeated)}.")
    outside = [path for path in paths if path.startswith("/") or ".." in path.split("/")]
    if outside:
        raise DatasetError(
            f"{dataset}: {source} must list paths inside of its folder. "
            f"Got {first_few(outside)} instead."
        )


def _absent(folder: Path, paths: Sequence[str]) -> list[str]:
    by_parent: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_parent[path.rpartition("/")[0]].append(path)
    absent: list[str] = []
    for parent, members in by_parent.items():
        there = _listing(folder / parent)
        absent += [path for path in members if path.rpartition("/")[2] not in there]
    return absent


def _listing(folder: Path) -> set[str]:
    """Names in a folder; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise DatasetError(f"The folder {folder} cannot be listed: {error.strerror}.") from error
