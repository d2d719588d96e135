"""The images of a run, found, looked through and, where they are small, drawn in advance."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from nearsure.lab.config import DatasetSettings
from nearsure.lab.datasets import load_split
from nearsure.lab.datasets.image_file import find_broken, refuse_broken, skip_broken
from nearsure.lab.datasets.labelled_images import ImageSplit, LabelledImages, split_by_class
from nearsure.lab.embedding_run import in_memory
from nearsure.lab.stages import Stage, digest

TUNING_SHARE = 3 / 4


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
        stage = Stage(cache, "pixels", inputs)
        return _each_part(split, lambda images, part: in_memory(images, stage, part))
    broken = _broken_images(split, cache)
    if settings.skip_broken_images:
        return _each_part(split, lambda images, _: skip_broken(images, broken))
    refuse_broken(broken, dataset=settings.name)
    return split


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

        broken |= stage.document("broken", look_through)
    return broken


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
