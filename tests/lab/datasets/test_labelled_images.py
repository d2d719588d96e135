import numpy as np
import pytest

from nearsure.errors import DatasetError
from nearsure.lab.datasets.images import (
    ImageSplit,
    LabelledImages,
    Pixels,
    first_few,
    split_by_class,
)


def labelled(labels: str) -> LabelledImages:
    """An image for each letter; image i of a list is filled with i."""

    def read(i: int) -> Pixels:
        return np.full((1, 1, 3), i, dtype=np.uint8)

    return LabelledImages(
        tuple(f"{label}{i}" for i, label in enumerate(labels)), tuple(labels), read
    )


def test_taken_images_keep_name_label_and_picture() -> None:
    rows = [4, 0, 2]
    images = labelled("aabbc").take(rows)
    rows.clear()
    assert len(images) == 3
    assert images.names == ("c4", "a0", "b2")
    assert images.labels == ("c", "a", "b")
    assert [int(images.read(i)[0, 0, 0]) for i in range(3)] == [4, 0, 2]
    again = images.take([2, 1])
    assert again.names == ("b2", "a0")
    assert [int(again.read(i)[0, 0, 0]) for i in range(2)] == [2, 0]


def test_classes_of_one_image_can_be_left_out() -> None:
    images = labelled("abacddd").without_single_images()
    assert images.names == ("a0", "a2", "d4", "d5", "d6")
    assert labelled("ca").classes == ("a", "c")


def test_a_split_is_made_by_class() -> None:
    split = split_by_class(labelled("abcabc"), dataset="letters", seen_classes=["a", "c"])
    assert split.train.names == ("a0", "c2", "a3", "c5")
    assert split.queries.names == ("b1", "b4")
    assert split.gallery is None


def test_dropping_moves_no_class_to_the_other_side() -> None:
    split = split_by_class(
        labelled("abbccd"), dataset="letters", seen_classes=["a", "b"], drop_single_images=True
    )
    assert split.train.classes == ("b",)
    assert split.queries.classes == ("c",)


@pytest.mark.parametrize(
    ("train", "queries", "gallery", "message"),
    [
        ("", "bb", None, "The train part of letters is empty"),
        ("aa", "", None, "The queries part of letters is empty"),
        ("aa", "bb", "", "The gallery part of letters is empty"),
        ("aacc", "bbcc", None, "must be disjoint: c in train and in queries"),
        ("aa", "bb", "aab", "must be disjoint: a in train and in gallery"),
        ("aac", "bb", None, "One image only: c"),
        ("aa", "bbcd", None, "One image only: c, d"),
        ("aac", "bb", "b", "train part of letters needs two images"),
        ("aa", "bcd", "bef", "must hold the class of every query.*Missing: c, d"),
    ],
)
def test_a_split_that_cannot_be_used_is_refused(
    train: str, queries: str, gallery: str | None, message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        ImageSplit(
            "letters",
            labelled(train),
            labelled(queries),
            None if gallery is None else labelled(gallery),
        )


def test_a_gallery_may_hold_single_images_and_classes_that_nobody_asks_for() -> None:
    with pytest.raises(DatasetError, match="One image only: b"):
        ImageSplit("letters", labelled("aa"), labelled("b"))
    split = ImageSplit("letters", labelled("aa"), labelled("b"), labelled("bc"))
    assert split.queries.names == ("b0",)
    assert split.gallery is not None
    assert split.gallery.names == ("b0", "c1")


def test_long_lists_are_cut() -> None:
    assert first_few(["a", "b", "c", "d", "e"]) == "a, b, c, d, e"
    assert first_few(["a", "b", "c", "d", "e", "f", "g"]) == "a, b, c, d, e and 2 more"
