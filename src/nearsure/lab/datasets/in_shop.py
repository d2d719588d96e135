"""In-shop Clothes Retrieval: the authors' split into train, queries and gallery."""

import os
from pathlib import Path

from nearsure.errors import DatasetError
from nearsure.lab.datasets.images import (
    ImageSplit,
    Line,
    bad_line,
    list_images,
    read_list,
    require_folder,
)

DATASET = "In-shop Clothes Retrieval"
COLUMNS = ("image_name", "item_id", "evaluation_status")
STATUSES = ("train", "query", "gallery")
LIST = "list_eval_partition.txt"
LIST_FOLDERS = ("", "Eval")
# Where people unpack img.zip or img_highres.zip to: each may stand for the "img/" of the list.
IMAGE_FOLDERS = (
    "img",
    "Img/img",
    "Img",
    "img_highres",
    "Img/img_highres",
    "img_highres/img",
    "Img/img_highres/img",
)
LISTED_FOLDER = "img/"
EXPECTED = f"{LIST} (there or in Eval/) and the images in img/, Img/img/ or img_highres/"


def load_in_shop(root: str | os.PathLike[str], *, drop_single_images: bool = False) -> ImageSplit:
    """Read the In-shop Clothes Retrieval benchmark of DeepFashion.

    Parameters
    ----------
    root : path
        What holds ``list_eval_partition.txt``, or ``Eval`` with it, and the images.
    drop_single_images : bool
        Leave out train items of one image, in place of an error. Queries and gallery stay as they
        are: an item with one image in the gallery is a fair one to find or to be misled by.

    Returns
    -------
    ImageSplit
        With a gallery. Names are those of the list (``img/WOMEN/...``), wherever the images lie;
        labels are item ids.

    Raises
    ------
    DatasetError
        If the list is cut off or does not parse, if images are absent, if train and test share
        items, or if a query's item is not in the gallery (the official data have no such query).

    References
    ----------
    Liu, Luo, Qiu, Wang, Tang: DeepFashion: Powering Robust Clothes Recognition and Retrieval with
    Rich Annotations. CVPR, 2016.
    """
    folder = require_folder(root, dataset=DATASET, expected=EXPECTED)
    source = _list_file(folder)
    lines = _lines(source)
    names = [line.columns[0] for line in lines]
    below = [name.removeprefix(LISTED_FOLDER) for name in names]
    images = list_images(
        _image_folder(folder, below),
        below,
        [line.columns[1] for line in lines],
        dataset=DATASET,
        source=source,
        names=names,
    )
    train, queries, gallery = (
        images.take([i for i, line in enumerate(lines) if line.columns[2] == status])
        for status in STATUSES
    )
    if drop_single_images:
        train = train.without_single_images()
    return ImageSplit(DATASET, train, queries, gallery)


def _list_file(folder: Path) -> Path:
    for place in LIST_FOLDERS:
        if (folder / place / LIST).is_file():
            return folder / place / LIST
    raise DatasetError(f"{DATASET}: {folder} should hold {EXPECTED}. {LIST} is missing.")


def _lines(source: Path) -> list[Line]:
    """The lines after the count and the header, checked."""
    # Read as one column, a line of any form comes through.
    head = read_list(source, ("text",), dataset=DATASET)
    count, header = next(head, None), next(head, None)
    if count is None or header is None:
        raise DatasetError(
            f"{DATASET}: {source} should begin with the number of images and a header. "
            "It ends before. Copy it again."
        )
    if not count.columns[0].isdecimal():
        raise bad_line(count, "the number of images", dataset=DATASET)
    if tuple(header.columns[0].split()) != COLUMNS:
        raise bad_line(header, f"'{' '.join(COLUMNS)}'", dataset=DATASET)
    lines = list(read_list(source, COLUMNS, dataset=DATASET, n_lines_before=2))
    for line in lines:
        name, _, status = line.columns
        if status not in STATUSES or not name.startswith(LISTED_FOLDER):
            expected = f"'{LISTED_FOLDER}... <item id> <{' | '.join(STATUSES)}>'"
            raise bad_line(line, expected, dataset=DATASET)
    if len(lines) != int(count.columns[0]):
        raise DatasetError(
            f"{DATASET}: {source} should list {count.columns[0]} images, as its first line says. "
            f"It lists {len(lines)}, so it is cut off or was edited. Copy it again."
        )
    return lines


def _image_folder(folder: Path, below: list[str]) -> Path:
    """The first place that holds one of the top folders of the list (WOMEN, MEN)."""
    tops = sorted({path.partition("/")[0] for path in below})
    for place in IMAGE_FOLDERS:
        if any((folder / place / top).exists() for top in tops):
            return folder / place
    raise DatasetError(
        f"{DATASET}: {folder} should hold {EXPECTED}. No image folder holds {' or '.join(tops)}, "
        "which the list names. Unpack the images there."
    )
