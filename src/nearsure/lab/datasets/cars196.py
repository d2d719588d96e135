"""CARS196: cars of 196 models; the first 98 are seen, the last 98 unseen."""

import os
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from nearsure.errors import DatasetError
from nearsure.lab.datasets.class_folders import read_official_folders
from nearsure.lab.datasets.images import (
    ImageSplit,
    LabelledImages,
    list_images,
    require_folder,
    require_parts,
    split_by_class,
)

DATASET = "CARS196"
N_CLASSES = 196
N_SEEN_CLASSES = 98
PARTS = ("cars_annos.mat", "car_ims/")
EXPECTED = (
    f"either {' and '.join(PARTS)}, or {N_CLASSES} class folders like AM General Hummer SUV 2000"
)


def load_cars196(root: str | os.PathLike[str], *, drop_single_images: bool = False) -> ImageSplit:
    """Read CARS196, as metric learning has it or as class folders.

    The classes of ``cars_annos.mat`` are in the order of their numbers, class folders in the order
    of their names. The makes are alphabetical in both, and class 98 is the last Eagle: the 98 seen
    classes are the same.

    Parameters
    ----------
    root : path
        What holds ``cars_annos.mat`` and ``car_ims``, or a folder of the 196 class folders.
    drop_single_images : bool
        Leave out classes of one image, in place of an error.

    Returns
    -------
    ImageSplit
        Classes 1 to 98 to learn from, 99 to 196 to be tested on.

    Raises
    ------
    DatasetError
        If the files are not those of CARS196, or some are missing.

    References
    ----------
    Krause, Stark, Deng, Fei-Fei: 3D Object Representations for Fine-Grained Categorization.
    ICCV workshops, 2013.
    """
    folder = require_folder(root, dataset=DATASET, expected=EXPECTED)
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
    source = folder / "cars_annos.mat"
    classes, paths, numbers = _annotations(source)
    if len(set(classes)) != N_CLASSES or set(numbers) != set(range(1, N_CLASSES + 1)):
        raise DatasetError(
            f"{DATASET}: {source} should name {N_CLASSES} classes and list images of each, by "
            f"numbers from 1 to {N_CLASSES}. Got {len(set(classes))} names, and images of "
            f"{len(set(numbers))} classes instead."
        )
    labels = [classes[number - 1] for number in numbers]
    return classes, list_images(folder, paths, labels, dataset=DATASET, source=source)


def _annotations(source: Path) -> tuple[list[str], list[str], list[int]]:
    """Names of the classes; path and class number of every image."""
    try:
        file = loadmat(source, squeeze_me=True, variable_names=["annotations", "class_names"])
        classes = [str(name) for name in np.atleast_1d(file["class_names"])]
        annotations = np.atleast_1d(file["annotations"])
        paths = [str(path) for path in annotations["relative_im_path"]]
        numbers = [int(number) for number in annotations["class"]]
    except MemoryError:
        raise  # says nothing about the file
    except Exception as error:  # scipy meets broken bytes with errors of every kind
        raise DatasetError(
            f"{DATASET}: {source} should be a MATLAB file with class_names and annotations, each "
            f"with relative_im_path and class. It cannot be read as that: {error}. Copy it again."
        ) from error
    return classes, paths, numbers
