"""Any folder of class folders: each sub-folder is a class and holds its images."""

import os
from pathlib import Path

from nearsure.errors import DatasetError
from nearsure.lab.datasets.images import (
    ImageSplit,
    LabelledImages,
    first_few,
    read_image,
    require_folder,
    split_by_class,
)

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
NOTE_SUFFIXES = (".txt", ".md", ".csv", ".json", ".xml")
LEFT_BY_SYSTEMS = ("thumbs.db", "desktop.ini", "__macosx", "@eadir")
EXPECTED = "a folder for each class, with the images of the class in it"


def load_class_folders(
    root: str | os.PathLike[str], *, dataset: str, drop_single_images: bool = False
) -> ImageSplit:
    """Read a folder of class folders and split it by class.

    If the root holds the two folders ``train`` and ``test`` and no other, these hold the class
    folders. Else its own sub-folders are the classes; sorted by name, the first half of them,
    rounded down, are seen and the others unseen.

    Hidden files, notes (.txt, .md, .csv, .json, .xml) and what desktop systems leave behind
    (Thumbs.db and the like) are passed over. Anything else in a class folder that does not have
    the suffix of an image is an error, because a class would be smaller than it looks.

    Parameters
    ----------
    root : path
        The folder.
    dataset : str
        Name of the data set.
    drop_single_images : bool
        Leave out classes of one image, in place of an error. The split is made before, so that no
        class changes its side.

    Returns
    -------
    ImageSplit
        Names are paths below the root; labels are names of folders.

    Raises
    ------
    DatasetError
        If the root or a class folder is missing, empty or holds what it should not.
    """
    folder = require_folder(root, dataset=dataset, expected=EXPECTED)
    names = class_names(folder, dataset=dataset)
    if set(names) == {"train", "test"}:
        parts = [_part(folder, part, dataset=dataset) for part in ("train", "test")]
        if drop_single_images:
            parts = [part.without_single_images() for part in parts]
        return ImageSplit(dataset, *parts)
    images = read_class_folders(folder, names, dataset=dataset)
    if len(names) == 1:
        raise DatasetError(
            f"{dataset}: {folder} should hold two class folders or more, one to learn from and "
            f"one to be tested on. Got {names[0]} alone."
        )
    return split_by_class(
        images,
        dataset=dataset,
        seen_classes=names[: len(names) // 2],
        drop_single_images=drop_single_images,
    )


def class_names(folder: Path, *, dataset: str) -> list[str]:
    """Names of the class folders, sorted.

    Raises
    ------
    DatasetError
        If there is none, or if an image lies outside of them.
    """
    folders, files = _entries(folder)
    loose = [name for name in files if _is_image(name)]
    if loose:
        raise DatasetError(
            f"{dataset}: {folder} should hold {EXPECTED}. "
            f"Got images outside of any class folder: {first_few(loose)}."
        )
    if not folders:
        raise DatasetError(f"{dataset}: {folder} should hold {EXPECTED}. It holds no folder.")
    return folders


def read_official_folders(
    folder: Path, n_classes: int, *, dataset: str, expected: str
) -> tuple[list[str], LabelledImages]:
    """The classes, sorted, and the images of a data set that has so many class folders."""
    classes = class_names(folder, dataset=dataset)
    if len(classes) != n_classes:
        raise DatasetError(
            f"{dataset}: {folder} should hold {expected}. Got {len(classes)} class folders instead."
        )
    return classes, read_class_folders(folder, classes, dataset=dataset)


def read_class_folders(
    folder: Path, names: list[str], *, dataset: str, below: str = ""
) -> LabelledImages:
    """The images of some class folders, class by class, sorted by name.

    Parameters
    ----------
    folder : Path
        What holds the class folders.
    names : list of str
        The class folders.
    dataset : str
        Name of the data set, for messages.
    below : str
        What stands before the path of an image in its name, for example ``"train/"``.

    Raises
    ------
    DatasetError
        If a class folder is empty, or holds a folder or a file that is neither image nor note.
    """
    paths: list[str] = []
    labels: list[str] = []
    for label in names:
        files = _images_of(folder / label, dataset=dataset)
        paths += [f"{label}/{file}" for file in files]
        labels += [label] * len(files)
    return LabelledImages(
        tuple(below + path for path in paths),
        tuple(labels),
        lambda i: read_image(folder / paths[i]),
    )


def _part(folder: Path, part: str, *, dataset: str) -> LabelledImages:
    names = class_names(folder / part, dataset=dataset)
    return read_class_folders(folder / part, names, dataset=dataset, below=f"{part}/")


def _images_of(folder: Path, *, dataset: str) -> list[str]:
    folders, files = _entries(folder)
    if folders:
        raise DatasetError(
            f"{dataset}: the class folder {folder} should hold images, not folders. "
            f"Got {first_few(folders)}."
        )
    images = [name for name in files if _is_image(name)]
    strange = [
        name for name in files if not _is_image(name) and not name.lower().endswith(NOTE_SUFFIXES)
    ]
    if strange:
        raise DatasetError(
            f"{dataset}: the class folder {folder} should hold images ({' '.join(IMAGE_SUFFIXES)})."
            f" Got {first_few(strange)}. Convert or remove what is not an image."
        )
    if not images:
        raise DatasetError(f"{dataset}: the class folder {folder} holds no image.")
    return images


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    """Names of the folders and of the files in a folder, sorted, without what is passed over."""
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.name.lower() not in LEFT_BY_SYSTEMS:
                    (folders if entry.is_dir() else files).append(entry.name)
    except OSError as error:
        raise DatasetError(f"The folder {folder} cannot be listed: {error.strerror}.") from error
    return sorted(folders), sorted(files)


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)
