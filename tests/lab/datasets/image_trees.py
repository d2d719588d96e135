"""Small data sets in the layouts that their archives unpack to."""

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat


@cache
def jpeg(grey: int = 128) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (3, 2), (grey, grey, grey)).save(file, "JPEG", quality=95)
    return file.getvalue()


def write_images(folder: Path, paths: Iterable[str], grey: int = 128) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(jpeg(grey))


def write_class_folders(folder: Path, counts: Mapping[str, int]) -> Path:
    for label, count in counts.items():
        write_images(folder, [f"{label}/{i}.jpg" for i in range(count)])
    return folder


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def bird_classes(n: int = 200) -> list[str]:
    return [f"{i:03d}.Bird_{i}" for i in range(1, n + 1)]


def write_cub200(folder: Path, classes: Sequence[str]) -> Path:
    paths = [f"{label}/{i}.jpg" for label in classes for i in range(2)]
    write_images(folder / "images", paths)
    numbered = list(enumerate(paths, start=1))
    write_lines(folder / "images.txt", [f"{i} {path}" for i, path in numbered])
    write_lines(
        folder / "image_class_labels.txt",
        [f"{i} {classes.index(path.partition('/')[0]) + 1}" for i, path in numbered],
    )
    write_lines(folder / "classes.txt", [f"{i} {c}" for i, c in enumerate(classes, start=1)])
    return folder


def write_cars196(folder: Path, classes: Sequence[str], numbers: Sequence[int]) -> Path:
    paths = [f"car_ims/{i:06d}.jpg" for i in range(1, len(numbers) + 1)]
    write_images(folder, paths)
    fields = ["relative_im_path", "bbox_x1", "class", "test"]
    annotations = np.zeros((1, len(paths)), dtype=[(field, object) for field in fields])
    for i, (path, number) in enumerate(zip(paths, numbers, strict=True)):
        annotations[0, i] = (path, 1, number, 0)
    names = np.empty((1, len(classes)), dtype=object)
    names[0, :] = classes
    savemat(folder / "cars_annos.mat", {"annotations": annotations, "class_names": names})
    return folder


def write_products(folder: Path, train: Mapping[str, int], test: Mapping[str, int]) -> Path:
    number = 0
    for name, counts in (("Ebay_train.txt", train), ("Ebay_test.txt", test)):
        lines = ["image_id class_id super_class_id path"]
        for label, count in counts.items():
            for i in range(count):
                number += 1
                path = f"bicycle_final/{label}_{i}.JPG"
                write_images(folder, [path])
                lines.append(f"{number} {label} 1 {path}")
        write_lines(folder / name, lines)
    return folder


def shop_rows() -> list[tuple[str, str, str]]:
    """Name, item and status; one train item has one image."""
    rows = []
    for item, statuses in {
        "id_1": ["train", "train"],
        "id_2": ["train", "train", "train"],
        "id_3": ["query", "gallery"],
        "id_4": ["query", "query", "gallery"],
        "id_5": ["gallery"],
    }.items():
        sex = "MEN" if item == "id_3" else "WOMEN"
        rows += [
            (f"img/{sex}/Dresses/{item}/{i:02d}_front.jpg", item, status)
            for i, status in enumerate(statuses)
        ]
    return rows


def write_partition(path: Path, rows: Sequence[tuple[str, str, str]]) -> None:
    header = "image_name item_id evaluation_status"
    columns = [f"{name:<60}{item:<12}{status}" for name, item, status in rows]
    write_lines(path, [str(len(rows)), header, *columns])
