"""Drawn glyphs in the layouts of Stanford Online Products and of In-shop Clothes Retrieval.

``python tests/lab/datasets/stand_ins.py FOLDER CLASSES`` writes both data sets, with so many seen
and unseen classes, and their settings: ``sop-like``, ``inshop-like`` and ``stand-ins.toml``.
"""

import io
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from image_trees import write_lines, write_partition
from PIL import Image

from nearsure.lab.datasets.glyphs import glyphs
from nearsure.lab.datasets.images import LabelledImages, Pixels

FEWEST, MOST = 2, 12
SETTINGS = """\
[dataset]
image_size = 32

[model]
backbone = "small-cnn"
trained = "all"
embedding_size = 128

[training]
epochs = 6
classes_per_batch = 64
images_per_class = 2
learning_rate = 2e-3
proxy_learning_rate = 2e-2
smallest_crop = 0.7
flip = false
proxies_from_class_means = false
"""
SUPER_CLASSES = ("bicycle", "cabinet", "chair", "coffee_maker")


def jpeg_of(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


def classes_of(
    images: LabelledImages, n_classes: int | None, draw: Callable[[], int]
) -> Iterator[list[Pixels]]:
    """Some images of each class."""
    rows = sorted(range(len(images)), key=images.labels.__getitem__)
    by_class = groupby(rows, key=images.labels.__getitem__)
    for _, members in [(label, list(rows)) for label, rows in by_class][:n_classes]:
        yield [images.read(row) for row in members[: draw()]]


def write_sop_like(folder: Path, *, n_classes: int | None = None, seed: int = 0) -> Path:
    """Products of 2 to 12 photos, listed as in the archive.

    Parameters
    ----------
    folder : Path
        Is made.
    n_classes : int, optional
        Of either list; by default all glyphs.
    seed : int
        Of the numbers of photos, and of the glyphs.
    """
    rng, number, product = np.random.default_rng(seed), 0, 0
    split = glyphs(seed=seed, images_per_class=MOST)
    for name, part in (("Ebay_train.txt", split.train), ("Ebay_test.txt", split.queries)):
        lines = ["image_id class_id super_class_id path"]
        for members in classes_of(part, n_classes, lambda: int(rng.integers(FEWEST, MOST + 1))):
            product += 1
            kind = product % len(SUPER_CLASSES)
            for place, pixels in enumerate(members):
                number += 1
                path = f"{SUPER_CLASSES[kind]}_final/{110_000_000_000 + product}_{place}.JPG"
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(jpeg_of(pixels))
                lines.append(f"{number} {product} {kind + 1} {path}")
        write_lines(folder / name, lines)
    return folder


def write_inshop_like(folder: Path, *, n_classes: int | None = None, seed: int = 0) -> Path:
    """Items with photos to learn from, or with queries and a gallery, listed as in the archive."""
    rng, item = np.random.default_rng(seed), 0
    split = glyphs(seed=seed, images_per_class=MOST)
    listed: list[tuple[str, str, str]] = []
    for is_train, part in ((True, split.train), (False, split.queries)):
        for members in classes_of(part, n_classes, lambda: int(rng.integers(FEWEST, MOST + 1))):
            item += 1
            sex, name = ("WOMEN", "MEN")[item % 2], f"id_{item:08d}"
            for place, pixels in enumerate(members):
                path = f"img/{sex}/Dresses/{name}/{place + 1:02d}_1_front.jpg"
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(jpeg_of(pixels))
                # Every item of the test has both; the gallery has as many or one less.
                status = "train" if is_train else ("query", "gallery")[place % 2]
                listed.append((path, name, status))
    # As in the archive: train, queries, gallery.
    order = {status: place for place, status in enumerate(("train", "query", "gallery"))}
    listed.sort(key=lambda row: order[row[2]])
    write_partition(folder / "Eval" / "list_eval_partition.txt", listed)
    return folder


if __name__ == "__main__":
    target, most = Path(sys.argv[1]), int(sys.argv[2])
    write_sop_like(target / "sop-like", n_classes=most)
    write_inshop_like(target / "inshop-like", n_classes=most)
    (target / "stand-ins.toml").write_text(SETTINGS, encoding="utf-8")
