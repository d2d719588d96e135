"""Images with labels, wherever they come from, and the split of a data set."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nearsure.errors import DatasetError

Pixels = NDArray[np.uint8]

SHOWN = 5


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

    def __post_init__(self) -> None:
        if len(self.names) != len(self.labels):
            raise DatasetError(
                f"Every image needs a label. Got {len(self.names)} images and "
                f"{len(self.labels)} labels instead."
            )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that occur, sorted."""
        return tuple(sorted(set(self.labels)))

    def without_single_images(self) -> Self:
        """Leave out the classes that have one image only."""
        counts = Counter(self.labels)
        return self.take([i for i, label in enumerate(self.labels) if counts[label] > 1])

    def take(self, rows: Sequence[int]) -> Self:
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
        parts = {"train": self.train, "queries": self.queries}
        if self.gallery is not None:
            parts["gallery"] = self.gallery
        for part, images in parts.items():
            if not len(images):
                raise DatasetError(f"The {part} part of {self.dataset} is empty.")
        self._refuse_shared_classes(parts)
        self._refuse_single_images("train", self.train)
        if self.gallery is None:
            self._refuse_single_images("queries", self.queries)
        else:
            self._refuse_missing_classes(self.gallery)

    def _refuse_shared_classes(self, parts: dict[str, LabelledImages]) -> None:
        seen = set(self.train.labels)
        for part, images in parts.items():
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
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
