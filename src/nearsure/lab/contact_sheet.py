"""Many images at a glance."""

import numpy as np

from nearsure.errors import InvalidInputError
from nearsure.lab.datasets.labelled_images import LabelledImages, Pixels
from nearsure.lab.views import central_view

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
    labels, codes, counts = np.unique(images.labels, return_inverse=True, return_counts=True)
    large = np.flatnonzero(counts >= images_per_class)
    if len(large) < classes:
        raise InvalidInputError(
            f"classes must not exceed the {len(large)} classes that have {images_per_class} "
            f"images. Got {classes} of {len(labels)} instead."
        )
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
