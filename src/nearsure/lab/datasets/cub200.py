"""CUB-200-2011: birds of 200 species; the first 100 are seen, the last 100 unseen."""

import os
from collections.abc import Sequence
from pathlib import Path

from nearsure.errors import DatasetError
from nearsure.lab.datasets.class_folders import read_official_folders
from nearsure.lab.datasets.images import (
    ImageSplit,
    LabelledImages,
    bad_line,
    list_images,
    read_list,
    require_folder,
    require_parts,
    split_by_class,
)

DATASET = "CUB-200-2011"
N_CLASSES = 200
N_SEEN_CLASSES = 100
PARTS = ("images.txt", "image_class_labels.txt", "classes.txt", "images/")
EXPECTED = (
    f"either {', '.join(PARTS)} (there or in CUB_200_2011/), "
    f"or {N_CLASSES} class folders like 001.Black_footed_Albatross"
)


def load_cub200(root: str | os.PathLike[str], *, drop_single_images: bool = False) -> ImageSplit:
    """Read CUB-200-2011, as its archive unpacks or as class folders.

    Both layouts give the same names (``001.Black_footed_Albatross/....jpg``) and labels.

    Parameters
    ----------
    root : path
        The unpacked archive, the folder that holds it, or a folder of the 200 class folders.
    drop_single_images : bool
        Leave out classes of one image, in place of an error.

    Returns
    -------
    ImageSplit
        Classes 1 to 100 to learn from, 101 to 200 to be tested on.

    Raises
    ------
    DatasetError
        If the files are not those of CUB-200-2011, or some are missing.

    References
    ----------
    Wah, Branson, Welinder, Perona, Belongie: The Caltech-UCSD Birds-200-2011 Dataset.
    California Institute of Technology, CNS-TR-2011-001, 2011.
    """
    folder = require_folder(root, dataset=DATASET, expected=EXPECTED)
    if (folder / "CUB_200_2011").is_dir():
        folder /= "CUB_200_2011"
    if any((folder / part).exists() for part in PARTS):
        classes, images = _official(folder)
    else:
        classes, images = read_official_folders(
            folder, N_CLASSES, dataset=DATASET, expected=EXPECTED
        )
    return split_by_class(
        images,
        dataset=DATASET,
        seen_classes=classes[:N_SEEN_CLASSES],
        drop_single_images=drop_single_images,
    )


def _official(folder: Path) -> tuple[list[str], LabelledImages]:
    """Classes by their number, and the images."""
    require_parts(folder, PARTS, dataset=DATASET)
    class_by_id = _by_id(folder / "classes.txt", "class_name")
    path_by_id = _by_id(folder / "images.txt", "image_name")
    class_id_by_id = _by_id(folder / "image_class_labels.txt", "class_id")
    classes = [class_by_id[i] for i in sorted(class_by_id, key=int)]
    _check_count(classes, f"{folder / 'classes.txt'} should name {N_CLASSES} classes")
    unmatched = path_by_id.keys() ^ class_id_by_id.keys()
    unknown = set(class_id_by_id.values()) - class_by_id.keys()
    if unmatched or unknown:
        problem = (
            f"{len(unmatched)} image numbers are in one of the two only"
            if unmatched
            else f"class {min(unknown)} is not in classes.txt"
        )
        raise DatasetError(
            f"{DATASET}: images.txt and image_class_labels.txt in {folder} should tell path and "
            f"class of the same images, but {problem}. Unpack the archive again."
        )
    images = list_images(
        folder / "images",
        list(path_by_id.values()),
        [class_by_id[class_id_by_id[i]] for i in path_by_id],
        dataset=DATASET,
        source=folder / "images.txt",
    )
    _check_count(images.classes, f"{folder / 'images.txt'} should list {N_CLASSES} classes")
    return classes, images


def _by_id(path: Path, column: str) -> dict[str, str]:
    """Lines of the form "<number> <value>", by number."""
    values: dict[str, str] = {}
    for line in read_list(path, ("id", column), dataset=DATASET):
        number, value = line.columns
        if not number.isdecimal() or number in values:
            raise bad_line(line, f"'<a number of its own> <{column}>'", dataset=DATASET)
        values[number] = value
    return values


def _check_count(classes: Sequence[str], expected: str) -> None:
    if len(classes) != N_CLASSES:
        raise DatasetError(f"{DATASET}: {expected}. Got {len(classes)} classes instead.")
