"""Images as a run needs them: checked, cropped, drawn, and on a contact sheet."""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nearsure.errors import DatasetError
from nearsure.extras import require
from nearsure.lab.cache import CachedStep, digest
from nearsure.lab.config import DatasetSettings
from nearsure.lab.datasets import load_split
from nearsure.lab.datasets.images import (
    ImageSplit,
    LabelledImages,
    Pixels,
    find_broken,
    refuse_broken,
    skip_broken,
    split_by_class,
)

TUNING_SHARE = 3 / 4
SAMPLED = 32
DRAWN_AT_A_TIME = 1024


def prepare_images(settings: DatasetSettings, *, seed: int, cache: Path) -> ImageSplit:
    """The split of a data set, every image of which can be read.

    Each image is decoded once before anything else is done, and the finding is cached: a broken
    file is named now, not after hours of training.
    """
    split = load_split(settings, seed=seed)
    if settings.part == "tuning":
        split = tuning_split(split)
    if settings.name == "glyphs":
        inputs = settings.model_dump(mode="json") | {"seed": seed}
        return _each_part(split, lambda images, part: _in_memory(images, cache, inputs, part))
    broken = _broken_images(split, cache)
    if settings.skip_broken_images:
        return _drop_broken(split, broken, drop_single_images=settings.drop_single_images)
    refuse_broken(broken, dataset=settings.name)
    return split


def refuse_other_pixels(split: ImageSplit, cache: Path) -> None:
    """Notice images that changed under the same names, whose stages would be taken for theirs.

    Raises
    ------
    DatasetError
        If some of the images are not what they were when the cache was made.
    """
    for part, images in split.parts.items():
        names = digest([images.names, images.labels])
        now = _sample(images)
        stage = CachedStep(cache, "sampled", {"images": names})
        if stage.document("pixels", partial(_sample, images)) != now:
            raise DatasetError(
                f"The {part} images of {split.dataset} have the names of those that {cache} was "
                "made from, but other pixels. Use another folder (--cache), or delete this one."
            )


def _sample(images: LabelledImages) -> dict[str, str]:
    """A digest of some of the pixels."""
    pixels = hashlib.sha256()
    for row in np.linspace(0, len(images) - 1, SAMPLED, dtype=int).tolist():
        image = images.read(row)
        pixels.update(f"{image.shape}".encode() + image.tobytes())
    return {"pixels": pixels.hexdigest()}


def _in_memory(
    images: LabelledImages, cache: Path, inputs: dict[str, object], part: str
) -> LabelledImages:
    """Images of one size, drawn once, kept on disk and in memory."""
    # Which characters there are depends on the fonts that are installed.
    names = digest([images.names, images.labels])
    pixels = CachedStep(cache, "pixels", {**inputs, "images": names}).rows(
        part,
        len(images),
        lambda rows: {"rows": np.stack([images.read(row) for row in rows])},
        chunk=DRAWN_AT_A_TIME,
        track=progress(f"draw {part}"),
    )
    return replace(images, read=pixels["rows"].__getitem__)


def progress(description: str) -> Callable[[list[range]], Iterable[range]]:
    """A progress bar over chunks, where somebody is looking."""
    return partial(tqdm, desc=description, unit="chunk", disable=None)


def tuning_split(split: ImageSplit) -> ImageSplit:
    """Seen classes alone: the first three quarters to train on, the others to be tested on."""
    classes = split.train.classes
    seen = classes[: int(TUNING_SHARE * len(classes))]
    return split_by_class(split.train, dataset=f"{split.dataset} (tuning)", seen_classes=seen)


def _broken_images(split: ImageSplit, cache: Path) -> dict[str, str]:
    """Names of the images that cannot be decoded, with the reason."""
    broken: dict[str, str] = {}
    for part, images in split.parts.items():
        stage = CachedStep(cache, "checked", {"images": digest([images.names, images.labels])})
        bar = partial(tqdm, desc=f"check {part}", total=len(images), unit="image", disable=None)
        found = stage.document("broken", partial(find_broken, images, progress=bar))
        # They may have been copied again since, as the message asks.
        suspects = [row for row, name in enumerate(images.names) if name in found]
        broken |= find_broken(images.take(suspects))
    return broken


def _drop_broken(
    split: ImageSplit, broken: dict[str, str], *, drop_single_images: bool
) -> ImageSplit:
    """The images that can be read; what is left of a class may be one image."""

    def kept(images: LabelledImages, part: str) -> LabelledImages:
        readable = skip_broken(images, broken)
        # A single query is fair where there is a gallery to find its class in.
        single_is_fair = part != "train" and split.gallery is not None
        drop = drop_single_images and not single_is_fair
        return readable.without_single_images() if drop else readable

    return _each_part(split, kept)


def _each_part(
    split: ImageSplit, change: Callable[[LabelledImages, str], LabelledImages]
) -> ImageSplit:
    parts = {part: change(images, part) for part, images in split.parts.items()}
    return ImageSplit(split.dataset, **parts)


# Of random crops, width to height, as is customary since Inception.
NARROWEST, WIDEST = 3 / 4, 4 / 3
ATTEMPTS = 10


def central_view(image: Pixels, size: int) -> Pixels:
    """The largest central square, resized.

    Examples
    --------
    >>> central_view(np.zeros((20, 30, 3), np.uint8), 16).shape
    (16, 16, 3)
    """
    height, width = image.shape[:2]
    side = min(height, width)
    left, top = (width - side) / 2, (height - side) / 2
    return _resize(image, size, (left, top, left + side, top + side))


def random_view(
    image: Pixels, size: int, rng: np.random.Generator, *, smallest_crop: float, flip: bool
) -> Pixels:
    """A random crop, resized, and mirrored half of the time where `flip` says so.

    It covers at least the share `smallest_crop` of the image. Where no such crop of a customary
    shape is found, as in an elongated image, it is the largest square, at a random place.
    """
    height, width = image.shape[:2]
    crop_width = crop_height = float(min(height, width))
    for _ in range(ATTEMPTS):
        area = height * width * rng.uniform(smallest_crop, 1)
        aspect = math.exp(rng.uniform(math.log(NARROWEST), math.log(WIDEST)))
        if area * aspect <= width**2 and area / aspect <= height**2:
            crop_width, crop_height = math.sqrt(area * aspect), math.sqrt(area / aspect)
            break
    left, top = rng.uniform(0, width - crop_width), rng.uniform(0, height - crop_height)
    # Rounding may put the far edge a hair outside, which Pillow refuses.
    right, bottom = min(left + crop_width, width), min(top + crop_height, height)
    view = _resize(image, size, (left, top, right, bottom))
    return view[:, ::-1] if flip and rng.random() < 1 / 2 else view


def _resize(image: Pixels, size: int, box: tuple[float, float, float, float]) -> Pixels:
    height, width = image.shape[:2]
    if (height, width) == (size, size) and box == (0, 0, size, size):
        return image
    pillow = require("PIL.Image", extra="train", purpose="Resizing images")
    picture = pillow.fromarray(np.ascontiguousarray(image))
    resized = picture.resize((size, size), pillow.Resampling.BICUBIC, box=box)
    return np.asarray(resized)


GAP = 2


def contact_sheet(
    images: LabelledImages, *, classes: int, images_per_class: int, size: int, seed: int
) -> Pixels:
    """Some classes, one a row, and some images of each.

    Parameters
    ----------
    images : LabelledImages
        To choose from.
    classes, images_per_class : int
        Rows and columns; classes with fewer images are not chosen.
    size : int
        Side of each picture in pixels.
    seed : int
        Of the choice.

    Returns
    -------
    array of shape (height, width, 3), uint8
    """
    _, codes, counts = np.unique(images.labels, return_inverse=True, return_counts=True)
    large = np.flatnonzero(counts >= images_per_class)
    rng = np.random.default_rng(seed)
    side = size + GAP
    sheet = np.zeros((classes * side + GAP, images_per_class * side + GAP, 3), np.uint8)
    for row, chosen in enumerate(rng.choice(large, classes, replace=False)):
        members = rng.choice(np.flatnonzero(codes == chosen), images_per_class, replace=False)
        for column, member in enumerate(members.tolist()):
            top, left = GAP + row * side, GAP + column * side
            view = central_view(images.read(member), size)
            sheet[top : top + size, left : left + size] = view
    return sheet
