import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from image_trees import (
    bird_classes,
    shop_rows,
    write_cars196,
    write_class_folders,
    write_cub200,
    write_images,
    write_lines,
    write_partition,
    write_products,
)

from nearsure.errors import DatasetError
from nearsure.lab.datasets.cars196 import load_cars196
from nearsure.lab.datasets.cub200 import load_cub200
from nearsure.lab.datasets.images import ImageSplit
from nearsure.lab.datasets.in_shop import load_in_shop
from nearsure.lab.datasets.products import load_products

BIRDS = bird_classes()
# In an order of their own: numbers count, not names.
CARS = [f"Car {i * 11 % 196}" for i in range(1, 197)]
CAR_NUMBERS = [1 + i * 5 % 196 for i in range(2 * 196)]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (load_cub200, "image_class_labels.txt, classes.txt, images/"),
        (load_cars196, "cars_annos.mat and car_ims/"),
        (load_products, "Ebay_train.txt and Ebay_test.txt"),
        (load_in_shop, "list_eval_partition.txt"),
    ],
)
def test_a_root_that_is_not_there_is_told_with_what_was_expected(
    tmp_path: Path, load: Callable[[Path], ImageSplit], expected: str
) -> None:
    with pytest.raises(DatasetError, match=f"absent: .*{expected}.* But it does not exist"):
        load(tmp_path / "absent")
    with pytest.raises(DatasetError, match="it is empty"):
        load(tmp_path)
    (tmp_path / "archive.tgz").write_bytes(b"x")
    with pytest.raises(DatasetError, match="must be unpacked first"):
        load(tmp_path / "archive.tgz")


# CUB-200-2011


@pytest.mark.parametrize("inner", ["", "CUB_200_2011"])
def test_cub200_is_the_same_as_lists_and_as_class_folders(tmp_path: Path, inner: str) -> None:
    folder = write_cub200(tmp_path / inner, BIRDS)
    for split in (load_cub200(tmp_path), load_cub200(folder / "images")):
        assert split.train.classes == tuple(BIRDS[:100])
        assert split.queries.classes == tuple(BIRDS[100:])
        assert split.train.names[:3] == ("001.Bird_1/0.jpg", "001.Bird_1/1.jpg", "002.Bird_2/0.jpg")
        assert len(split.train) == len(split.queries) == 200
        assert split.queries.read(199).shape == (2, 3, 3)


def test_cub200_needs_all_its_parts(tmp_path: Path) -> None:
    write_cub200(tmp_path, BIRDS)
    (tmp_path / "classes.txt").unlink()
    with pytest.raises(DatasetError, match=r"half unpacked.*Missing: classes\.txt\."):
        load_cub200(tmp_path)


@pytest.mark.parametrize("n_classes", [3, 199, 201])
def test_cub200_has_200_classes(tmp_path: Path, n_classes: int) -> None:
    write_cub200(tmp_path, bird_classes(n_classes))
    with pytest.raises(DatasetError, match=f"should name 200 classes. Got {n_classes} classes"):
        load_cub200(tmp_path)
    with pytest.raises(DatasetError, match=f"200 class folders.*Got {n_classes} class folders"):
        load_cub200(tmp_path / "images")


def test_cub200_counts_the_absent_images(tmp_path: Path) -> None:
    write_cub200(tmp_path, BIRDS)
    for path in (tmp_path / "images" / BIRDS[7]).iterdir():
        path.unlink()
    (tmp_path / "images" / BIRDS[7]).rmdir()
    (tmp_path / "images" / BIRDS[9] / "1.jpg").unlink()
    with pytest.raises(
        DatasetError,
        match=r"half unpacked: 3 of 400 images.*: 008\.Bird_8/0\.jpg, .*010\.Bird_10/1\.jpg\.",
    ):
        load_cub200(tmp_path)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("images.txt", "\n17 ", "\nx17 ", r"line 17 of .*images\.txt should read"),
        ("images.txt", "\n17 ", "\n16 ", r"line 17 of .*images\.txt should read"),
        ("images.txt", "\n17 009.Bird_9/0.jpg\n", "\n", "1 image numbers are in one of the two"),
        ("images.txt", "\n17 009.Bird_9/0.jpg", "\n17", r"line 17 .*'id image_name'. Got '17'"),
        ("images.txt", "009.Bird_9/0.jpg", "009.Bird_9/1.jpg", "lists images twice: 009"),
        ("images.txt", "009.Bird_9/0.jpg", "../009.Bird_9/0.jpg", "inside of its folder. Got .."),
        ("image_class_labels.txt", "\n17 9", "\n17 201", "class 201 is not in classes.txt"),
    ],
)
def test_cub200_lists_must_parse_and_agree(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    write_cub200(tmp_path, BIRDS)
    edit(tmp_path / file, old, new)
    with pytest.raises(DatasetError, match=message):
        load_cub200(tmp_path)


def test_cub200_lists_may_have_other_line_ends(tmp_path: Path) -> None:
    write_cub200(tmp_path, BIRDS)
    for name in ("images.txt", "classes.txt", "image_class_labels.txt"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_bytes(("\ufeff" + text.replace("\n", "\r\n") + "\r\n").encode())
    assert load_cub200(tmp_path).train.classes == tuple(BIRDS[:100])


def test_a_list_that_is_no_text_is_refused(tmp_path: Path) -> None:
    write_cub200(tmp_path, BIRDS)
    (tmp_path / "images.txt").write_bytes(b"1 \xff\xfe\x00\n")
    with pytest.raises(DatasetError, match=r"images\.txt is not a text file"):
        load_cub200(tmp_path)


# CARS196


def test_cars196_is_split_by_the_number_of_the_class(tmp_path: Path) -> None:
    split = load_cars196(write_cars196(tmp_path, CARS, CAR_NUMBERS))
    assert set(split.train.labels) == set(CARS[:98])
    assert set(split.queries.labels) == set(CARS[98:])
    for images in (split.train, split.queries):
        for name, label in zip(images.names, images.labels, strict=True):
            assert label == CARS[CAR_NUMBERS[int(name[8:14]) - 1] - 1]
    assert split.train.names[0] == "car_ims/000001.jpg"
    assert split.train.read(0).shape == (2, 3, 3)


def test_cars196_may_be_class_folders(tmp_path: Path) -> None:
    split = load_cars196(write_class_folders(tmp_path, dict.fromkeys(CARS, 2)))
    assert split.train.classes == tuple(sorted(CARS)[:98])
    assert split.queries.classes == tuple(sorted(CARS)[98:])


@pytest.mark.parametrize(
    ("classes", "numbers", "message"),
    [
        (CARS[:-1], CAR_NUMBERS, "Got 195 names, and images of 196 classes"),
        (CARS, [n for n in CAR_NUMBERS if n != 5], "Got 196 names, and images of 195 classes"),
        (CARS, [*CAR_NUMBERS, 197], "images of 197 classes"),
        (CARS, [1], "images of 1 classes"),
    ],
)
def test_cars196_has_196_classes(
    tmp_path: Path, classes: Sequence[str], numbers: Sequence[int], message: str
) -> None:
    write_cars196(tmp_path, classes, numbers)
    with pytest.raises(DatasetError, match=message):
        load_cars196(tmp_path)


def test_cars196_that_is_half_there_is_refused(tmp_path: Path) -> None:
    write_class_folders(tmp_path, dict.fromkeys(CARS[:5], 2))
    with pytest.raises(DatasetError, match=r"196 class folders.*Got 5 class folders"):
        load_cars196(tmp_path)
    folder = write_cars196(tmp_path / "official", CARS, CAR_NUMBERS)
    (folder / "car_ims" / "000003.jpg").unlink()
    with pytest.raises(DatasetError, match=r"1 of 392 images.*: car_ims/000003\.jpg"):
        load_cars196(folder)
    (folder / "cars_annos.mat").unlink()
    with pytest.raises(DatasetError, match=r"half unpacked.*Missing: cars_annos\.mat"):
        load_cars196(folder)


@pytest.mark.parametrize("keep", [0, 100, 1000])
def test_cars196_annotations_that_are_cut_off_are_refused(tmp_path: Path, keep: int) -> None:
    path = write_cars196(tmp_path, CARS, CAR_NUMBERS) / "cars_annos.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DatasetError, match=r"cars_annos\.mat should be a MATLAB file.*Copy it"):
        load_cars196(tmp_path)


# Stanford Online Products


@pytest.mark.parametrize("inner", ["", "Stanford_Online_Products"])
def test_products_are_split_as_listed(tmp_path: Path, inner: str) -> None:
    write_products(tmp_path / inner, {"11": 2, "12": 3}, {"13": 2, "14": 4})
    split = load_products(tmp_path)
    assert split.train.labels == ("11", "11", "12", "12", "12")
    assert split.queries.classes == ("13", "14")
    assert split.queries.names[1] == "bicycle_final/13_1.JPG"
    assert split.queries.read(5).shape == (2, 3, 3)


def test_products_of_one_image_are_an_error_or_dropped(tmp_path: Path) -> None:
    write_products(tmp_path, {"11": 1, "12": 3}, {"13": 2, "14": 1})
    with pytest.raises(DatasetError, match="One image only: 11"):
        load_products(tmp_path)
    split = load_products(tmp_path, drop_single_images=True)
    assert (split.train.classes, split.queries.classes) == (("12",), ("13",))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("Ebay_train.txt", "image_id class_id", "class_id image_id", "line 1 of .*should read"),
        ("Ebay_train.txt", "image_id class_id super_class_id path\n", "", "line 1 of .*train"),
        ("Ebay_test.txt", "7 14 1 ", "7 14 ", "line 4 of .*Ebay_test.txt should read"),
        ("Ebay_test.txt", "7 14 1 ", "7 x 1 ", "line 4 of .*three numbers first"),
        ("Ebay_test.txt", " 14 ", " 12 ", "must be disjoint: 12"),
        ("Ebay_test.txt", "14_0.JPG", "14_0.jpg", "1 of 4 images .*14_0.jpg"),
        ("Ebay_test.txt", "bicycle_final/14_0", "lamp_final/14_0", "half unpacked: 1 of 4"),
        ("Ebay_train.txt", "12_1", "12_0", "lists images twice: bicycle_final/12_0.JPG"),
    ],
)
def test_products_lists_must_parse_and_hold(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    write_products(tmp_path, {"11": 2, "12": 2}, {"13": 2, "14": 2})
    text = (tmp_path / file).read_text()
    edit(tmp_path / file, old, new)
    assert (tmp_path / file).read_text() != text
    with pytest.raises(DatasetError, match=message):
        load_products(tmp_path)


def test_products_without_a_list_or_with_an_empty_one_are_refused(tmp_path: Path) -> None:
    write_products(tmp_path, {"11": 2}, {"13": 2})
    (tmp_path / "Ebay_test.txt").write_text("")
    with pytest.raises(DatasetError, match=r"Ebay_test\.txt is empty"):
        load_products(tmp_path)
    write_lines(tmp_path / "Ebay_test.txt", ["image_id class_id super_class_id path"])
    with pytest.raises(DatasetError, match="The queries part of Stanford Online Products is empty"):
        load_products(tmp_path)
    (tmp_path / "Ebay_test.txt").unlink()
    with pytest.raises(DatasetError, match=r"half unpacked.*Missing: Ebay_test\.txt"):
        load_products(tmp_path)


# In-shop Clothes Retrieval


def write_shop(
    folder: Path, rows: Sequence[tuple[str, str, str]], *, lists: str = "", images: str = "img"
) -> Path:
    write_partition(folder / lists / "list_eval_partition.txt", rows)
    write_images(folder / images, [name.removeprefix("img/") for name, _, _ in rows])
    return folder


@pytest.mark.parametrize("lists", ["", "Eval"])
@pytest.mark.parametrize(
    "images", ["img", "Img", "Img/img", "img_highres", "Img/img_highres", "img_highres/img"]
)
def test_in_shop_is_found_wherever_it_was_unpacked(tmp_path: Path, lists: str, images: str) -> None:
    split = load_in_shop(write_shop(tmp_path, shop_rows(), lists=lists, images=images))
    parts = {"train": split.train, "query": split.queries, "gallery": split.gallery}
    for status, part in parts.items():
        assert part is not None
        rows = [row for row in shop_rows() if row[2] == status]
        assert part.names == tuple(name for name, _, _ in rows)
        assert part.labels == tuple(item for _, item, _ in rows)
        assert part.read(len(part) - 1).shape == (2, 3, 3)


def test_in_shop_names_read_their_own_files(tmp_path: Path) -> None:
    write_shop(tmp_path, shop_rows())
    bright = next(name for name, _, status in shop_rows() if status == "query")
    write_images(tmp_path, [bright], grey=250)
    queries = load_in_shop(tmp_path).queries
    assert [int(np.mean(queries.read(i))) for i in range(len(queries))] == [250, 128, 128]


def test_in_shop_train_items_of_one_image_are_an_error_or_dropped(tmp_path: Path) -> None:
    rows = [*shop_rows(), ("img/MEN/Shirts/id_9/0.jpg", "id_9", "train")]
    write_shop(tmp_path, rows)
    with pytest.raises(DatasetError, match="One image only: id_9"):
        load_in_shop(tmp_path)
    split = load_in_shop(tmp_path, drop_single_images=True)
    assert split.train.classes == ("id_1", "id_2")
    assert split.gallery is not None
    assert split.gallery.classes == ("id_3", "id_4", "id_5")


def test_in_shop_queries_must_be_in_the_gallery(tmp_path: Path) -> None:
    rows = [*shop_rows(), ("img/MEN/Shirts/id_9/0.jpg", "id_9", "query")]
    with pytest.raises(DatasetError, match=r"class of every query.*Missing: id_9"):
        load_in_shop(write_shop(tmp_path, rows))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("11\n", "12\n", "should list 12 images, as its first line says. It lists 11"),
        ("11\n", "", "line 1 of .*should read the number of images"),
        ("item_id evaluation", "evaluation", "line 2 of .*'image_name item_id evaluation_status'"),
        ("query", "valid", "line 8 of .*<train | query | gallery>.*Got 'img/MEN.*valid'"),
        ("img/MEN", "MEN", "line 8 of .*should read 'img/"),
        ("id_3        query", "id_1        query", "must be disjoint: id_1"),
        ("id_3/00_front", "id_3/07_front", "half unpacked: 1 of 11 .*id_3/07_front.jpg"),
        ("id_3/00_front", "id_3/01_front", "lists images twice"),
    ],
)
def test_in_shop_list_must_parse_and_hold(tmp_path: Path, old: str, new: str, message: str) -> None:
    write_shop(tmp_path, shop_rows())
    edit(tmp_path / "list_eval_partition.txt", old, new)
    pattern = message.replace("|", re.escape("|"))
    with pytest.raises(DatasetError, match=pattern):
        load_in_shop(tmp_path)


def test_in_shop_list_that_is_cut_off_is_refused_at_any_line(tmp_path: Path) -> None:
    path = write_shop(tmp_path, shop_rows()) / "list_eval_partition.txt"
    lines = path.read_text().splitlines()
    for n in range(len(lines)):
        write_lines(path, lines[:n])
        with pytest.raises(DatasetError, match="Copy it again"):
            load_in_shop(tmp_path)


def test_in_shop_without_list_or_images_is_refused(tmp_path: Path) -> None:
    write_partition(tmp_path / "list_eval_partition.txt", shop_rows())
    with pytest.raises(DatasetError, match="No image folder holds MEN or WOMEN"):
        load_in_shop(tmp_path)
    (tmp_path / "list_eval_partition.txt").rename(tmp_path / "other.txt")
    with pytest.raises(DatasetError, match=r"list_eval_partition\.txt is missing"):
        load_in_shop(tmp_path)
