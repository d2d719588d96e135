"""Stanford Online Products: many products with a few photos each; the split is the authors'."""

import os
from pathlib import Path

from nearsure.errors import DatasetError
from nearsure.lab.datasets.images import (
    ImageSplit,
    LabelledImages,
    bad_line,
    list_images,
    read_list,
    require_folder,
    require_parts,
)

DATASET = "Stanford Online Products"
COLUMNS = ("image_id", "class_id", "super_class_id", "path")
LISTS = ("Ebay_train.txt", "Ebay_test.txt")
EXPECTED = (
    f"{' and '.join(LISTS)} (there or in Stanford_Online_Products/), "
    "and the images in folders like bicycle_final"
)


def load_products(root: str | os.PathLike[str], *, drop_single_images: bool = False) -> ImageSplit:
    """Read Stanford Online Products as its archive unpacks.

    Parameters
    ----------
    root : path
        The unpacked archive, or the folder that holds it.
    drop_single_images : bool
        Leave out products of one image, in place of an error.

    Returns
    -------
    ImageSplit
        The products of ``Ebay_train.txt`` to learn from, those of ``Ebay_test.txt`` to be tested
        on. Labels are class ids. The whole data set has 11,318 and 11,316 products; other numbers
        are allowed.

    Raises
    ------
    DatasetError
        If a list does not parse, names images that are absent, or shares products with the other.

    References
    ----------
    Song, Xiang, Jegelka, Savarese: Deep Metric Learning via Lifted Structured Feature Embedding.
    CVPR, 2016.
    """
    folder = require_folder(root, dataset=DATASET, expected=EXPECTED)
    if (folder / "Stanford_Online_Products").is_dir():
        folder /= "Stanford_Online_Products"
    require_parts(folder, LISTS, dataset=DATASET)
    train, queries = (_read_list_of(folder, name) for name in LISTS)
    if drop_single_images:
        train, queries = train.without_single_images(), queries.without_single_images()
    return ImageSplit(DATASET, train, queries)


def _read_list_of(folder: Path, name: str) -> LabelledImages:
    source = folder / name
    _check_header(source)
    paths: list[str] = []
    labels: list[str] = []
    for line in read_list(source, COLUMNS, dataset=DATASET, n_lines_before=1):
        *numbers, path = line.columns
        if not all(number.isdecimal() for number in numbers):
            raise bad_line(line, f"'{' '.join(COLUMNS)}', three numbers first", dataset=DATASET)
        paths.append(path)
        labels.append(numbers[1])
    return list_images(folder, paths, labels, dataset=DATASET, source=source)


def _check_header(source: Path) -> None:
    first = next(read_list(source, ("header",), dataset=DATASET), None)
    if first is None:
        raise DatasetError(f"{DATASET}: {source} is empty. Unpack the archive again.")
    if tuple(first.columns[0].split()) != COLUMNS:
        raise bad_line(first, f"'{' '.join(COLUMNS)}'", dataset=DATASET)
