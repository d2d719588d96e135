"""Image data sets for metric learning, one file each."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from nearsure.lab.config import DatasetSettings
from nearsure.lab.datasets.cars196 import load_cars196
from nearsure.lab.datasets.class_folders import load_class_folders
from nearsure.lab.datasets.cub200 import load_cub200
from nearsure.lab.datasets.glyphs import glyphs
from nearsure.lab.datasets.images import ImageSplit
from nearsure.lab.datasets.in_shop import load_in_shop
from nearsure.lab.datasets.products import load_products

ON_DISK: dict[str, Callable[..., ImageSplit]] = {
    "cub200": load_cub200,
    "cars196": load_cars196,
    "sop": load_products,
    "inshop": load_in_shop,
    "class-folders": partial(load_class_folders, dataset="class-folders"),
}


def load_split(settings: DatasetSettings, *, seed: int) -> ImageSplit:
    """Find the images of a data set; none is read yet.

    Parameters
    ----------
    settings : DatasetSettings
        Which, and where.
    seed : int
        Of glyphs, which are drawn.
    """
    if settings.name == "glyphs":
        return glyphs(
            seed=seed, images_per_class=settings.images_per_class, image_size=settings.image_size
        )
    return ON_DISK[settings.name](
        settings.root or Path(), drop_single_images=settings.drop_single_images
    )
