"""The images of a run, found, looked through and, where they are small, drawn in advance."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nearsure.errors import DatasetError
from nearsure.lab.config import DatasetSettings
from nearsure.lab.datasets import load_split
from nearsure.lab.datasets.image_file import find_broken, refuse_broken, skip_broken
from nearsure.lab.datasets.labelled_images import ImageSplit, LabelledImages, split_by_class
from nearsure.lab.stages import Stage, digest

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
        return _without_broken(split, broken, drop_single_images=settings.drop_single_images)
    refuse_broken(broken, dataset=settings.name)
    return split


def refuse_other_pixels(split: ImageSplit, cache: Path) -> None:
    """Notice images that changed under the same names, whose stages would be taken for theirs.

    Raises
    ------
    DatasetError
        If some of the images are not what they were when the cache was made.
    """
    for part, images in _parts(split).items():
        names = digest([images.names, images.labels])
        now = _sample(images)
        stage = Stage(cache, "sampled", {"images": names})
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
    pixels = Stage(cache, "pixels", {**inputs, "images": names}).rows(
        part,
        len(images),
        lambda rows: np.stack([images.read(row) for row in rows]),
        chunk=DRAWN_AT_A_TIME,
        track=lambda ranges: iter(tqdm(ranges, desc=f"draw {part}", unit="chunk", disable=None)),
    )
    return replace(images, read=pixels.__getitem__)


def tuning_split(split: ImageSplit) -> ImageSplit:
    """Seen classes alone: the first three quarters to train on, the others to be tested on."""
    classes = split.train.classes
    seen = classes[: int(TUNING_SHARE * len(classes))]
    return split_by_class(split.train, dataset=f"{split.dataset} (tuning)", seen_classes=seen)


def _broken_images(split: ImageSplit, cache: Path) -> dict[str, str]:
    """Names of the images that cannot be decoded, with the reason."""
    broken: dict[str, str] = {}
    for part, images in _parts(split).items():
        stage = Stage(cache, "checked", {"images": digest([images.names, images.labels])})

        def look_through(images: LabelledImages = images, part: str = part) -> dict[str, str]:
            return find_broken(
                images,
                progress=lambda rows: tqdm(
                    rows, desc=f"check {part}", total=len(images), unit="image", disable=None
                ),
            )

        found = stage.document("broken", look_through)
        # They may have been copied again since, as the message asks.
        suspects = [row for row, name in enumerate(images.names) if name in found]
        broken |= find_broken(images.take(suspects))
    return broken


def _without_broken(
    split: ImageSplit, broken: dict[str, str], *, drop_single_images: bool
) -> ImageSplit:
    """The images that can be read; what is left of a class may be one image."""

    def kept(images: LabelledImages, part: str) -> LabelledImages:
        readable = skip_broken(images, broken)
        # A single query is fair where there is a gallery to find its class in.
        single_is_fair = part != "train" and split.gallery is not None
        return (
            readable.without_single_images()
            if drop_single_images and not single_is_fair
            else readable
        )

    return _each_part(split, kept)


def _parts(split: ImageSplit) -> dict[str, LabelledImages]:
    parts = {"train": split.train, "queries": split.queries}
    return parts if split.gallery is None else parts | {"gallery": split.gallery}


def _each_part(
    split: ImageSplit, change: Callable[[LabelledImages, str], LabelledImages]
) -> ImageSplit:
    return replace(
        split,
        train=change(split.train, "train"),
        queries=change(split.queries, "queries"),
        gallery=None if split.gallery is None else change(split.gallery, "gallery"),
    )
