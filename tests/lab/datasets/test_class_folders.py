from pathlib import Path

import numpy as np
import pytest
from image_trees import write_class_folders, write_images

from nearsure.errors import DatasetError
from nearsure.lab.datasets.class_folders import load_class_folders
from nearsure.lab.datasets.images import ImageSplit

FIVE = {"b": 2, "a": 3, "e": 2, "C": 2, "d": 4}


def load(root: Path) -> ImageSplit:
    return load_class_folders(root, dataset="letters")


def test_the_first_half_is_seen_and_the_rest_unseen(tmp_path: Path) -> None:
    split = load(write_class_folders(tmp_path, FIVE))
    assert split.dataset == "letters"
    assert split.train.classes == ("C", "a")
    assert split.queries.classes == ("b", "d", "e")
    assert split.train.names == ("C/0.jpg", "C/1.jpg", "a/0.jpg", "a/1.jpg", "a/2.jpg")
    assert split.gallery is None


def test_each_name_reads_its_own_file(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 2, "b": 2})
    write_images(tmp_path, ["b/0.jpg"], grey=250)
    queries = load(tmp_path).queries
    greys = {name: int(np.mean(queries.read(i))) for i, name in enumerate(queries.names)}
    assert greys == {"b/0.jpg": 250, "b/1.jpg": 128}


def test_train_and_test_folders_are_the_split(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "train", {"x": 2, "y": 2, "z": 1})
    write_class_folders(tmp_path / "test", {"a": 3, "b": 1})
    (tmp_path / "README.txt").write_text("about")
    split = load_class_folders(tmp_path, dataset="letters", drop_single_images=True)
    assert split.train.classes == ("x", "y")
    assert split.queries.names == ("test/a/0.jpg", "test/a/1.jpg", "test/a/2.jpg")
    assert split.queries.read(0).shape == (2, 3, 3)
    with pytest.raises(DatasetError, match="One image only: z"):
        load(tmp_path)


def test_train_and_test_beside_others_are_classes(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"train": 2, "test": 2, "bus": 2})
    assert load(tmp_path).queries.classes == ("test", "train")


def test_train_and_test_may_not_share_a_class(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "train", {"x": 2, "y": 2})
    write_class_folders(tmp_path / "test", {"y": 2, "z": 2})
    with pytest.raises(DatasetError, match="must be disjoint: y"):
        load(tmp_path)


def test_suffixes_of_any_case_count_and_notes_do_not(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 2, "b": 1})
    write_images(tmp_path, ["b/x.JPG", "b/y.Png", "b/z.jpeg", "b/w.tiff", "b/v.webp"])
    for name in ("Thumbs.db", ".DS_Store", ".hidden.jpg", "notes.txt", "labels.XML"):
        (tmp_path / "b" / name).write_text("")
    for name in (".git", "__MACOSX"):
        (tmp_path / name).mkdir()
    queries = load(tmp_path).queries
    assert queries.names == ("b/0.jpg", "b/v.webp", "b/w.tiff", "b/x.JPG", "b/y.Png", "b/z.jpeg")


def test_single_images_are_dropped_after_the_split(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 1, "b": 2, "c": 2, "d": 1, "e": 2})
    with pytest.raises(DatasetError, match=r"One image only: a.*drop_single_images"):
        load(tmp_path)
    split = load_class_folders(tmp_path, dataset="letters", drop_single_images=True)
    assert split.train.classes == ("b",)
    assert split.queries.classes == ("c", "e")


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    write_class_folders(tmp_path, FIVE)
    (tmp_path / "void").mkdir()
    with pytest.raises(DatasetError, match=r"class folder .*void holds no image"):
        load(tmp_path)


@pytest.mark.parametrize("strange", ["0.jpg.part", "picture.heic", "vectors.npy", "noname"])
def test_a_file_that_is_no_image_is_named(tmp_path: Path, strange: str) -> None:
    write_class_folders(tmp_path, FIVE)
    (tmp_path / "d" / strange).write_text("")
    with pytest.raises(DatasetError, match=f"should hold images.*Got {strange}"):
        load(tmp_path)


def test_folders_in_a_class_are_refused(tmp_path: Path) -> None:
    write_class_folders(tmp_path, FIVE)
    write_images(tmp_path, ["d/more/0.jpg"])
    with pytest.raises(DatasetError, match=r"not folders. Got more"):
        load(tmp_path)


def test_images_beside_the_class_folders_are_refused(tmp_path: Path) -> None:
    write_class_folders(tmp_path, FIVE)
    write_images(tmp_path, ["loose.jpg"])
    with pytest.raises(DatasetError, match=r"outside of any class folder: loose\.jpg"):
        load(tmp_path)


def test_roots_without_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a folder for each class.*it does not exist"):
        load(tmp_path / "absent")
    (tmp_path / "archive.zip").write_bytes(b"")
    with pytest.raises(DatasetError, match="it is a file, not a folder"):
        load(tmp_path / "archive.zip")
    with pytest.raises(DatasetError, match="It holds no folder"):
        load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="it is empty"):
        load(tmp_path / "empty")
    write_class_folders(tmp_path / "one", {"a": 4})
    with pytest.raises(DatasetError, match=r"two class folders or more.*Got a alone"):
        load(tmp_path / "one")
