"""Images of a run: the broken are named in time, and tuning keeps away from unseen classes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_images import CLASSES, SEEN, settings, write_tree

from nearsure.errors import BrokenImageError, DatasetError
from nearsure.lab.config import DatasetSettings
from nearsure.lab.datasets.glyphs import glyphs
from nearsure.lab.datasets.images import ImageSplit, LabelledImages
from nearsure.lab.images import prepare_images, refuse_other_pixels, tuning_split


def prepare(root: Path, **dataset: object) -> ImageSplit:
    run = settings(root, dataset=dataset)
    return prepare_images(run.dataset, seed=0, cache=root.parent / "cache")


def break_image(path: Path) -> bytes:
    content = path.read_bytes()
    path.write_bytes(content[:100])
    return content


def test_all_images_of_a_sound_tree_are_there(tmp_path: Path) -> None:
    split = prepare(write_tree(tmp_path / "tree"))
    assert (split.train.classes, split.queries.classes) == (SEEN, CLASSES[4:])
    assert (len(split.train), len(split.queries)) == (12, 12)


def test_broken_images_are_named_and_named_again_from_the_cache(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    for name in ("b/1.png", "g/0.png"):
        break_image(root / name)
    for _ in range(2):
        with pytest.raises(BrokenImageError, match="2 images of class-folders cannot") as caught:
            prepare(root)
        assert str(root / "b" / "1.png") in str(caught.value)
        assert str(root / "g" / "0.png") in str(caught.value)


def test_an_image_that_was_copied_again_is_no_longer_broken(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    content = break_image(root / "b" / "1.png")
    with pytest.raises(BrokenImageError):
        prepare(root)
    (root / "b" / "1.png").write_bytes(content)
    assert len(prepare(root).train) == 12


def test_broken_images_are_skipped_if_that_is_said(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    for name in ("b/1.png", "g/0.png"):
        break_image(root / name)
    split = prepare(root, skip_broken_images=True)
    assert "b/1.png" not in split.train.names
    assert "g/0.png" not in split.queries.names
    assert (len(split.train), len(split.queries)) == (11, 11)
    last = split.train.names.index("d/2.png")
    whole = prepare(write_tree(tmp_path / "sound" / "tree"))
    np.testing.assert_array_equal(split.train.read(last), whole.train.read(11))


def test_a_class_of_one_readable_image_is_dropped_if_that_is_said(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", n_images=2)
    for name in ("a/0.png", "h/1.png"):
        break_image(root / name)
    with pytest.raises(DatasetError, match="One image only: a"):
        prepare(root, skip_broken_images=True)
    split = prepare(root, skip_broken_images=True, drop_single_images=True)
    assert (split.train.classes, split.queries.classes) == (CLASSES[1:4], CLASSES[4:7])


def test_other_pixels_under_the_same_names_are_noticed(tmp_path: Path) -> None:
    cache, root = tmp_path / "runs", write_tree(tmp_path / "tree")
    split = prepare_images(settings(root).dataset, seed=0, cache=cache)
    refuse_other_pixels(split, cache)
    refuse_other_pixels(split, cache)
    Image.new("RGB", (32, 32), "red").save(root / "e" / "1.png")
    with pytest.raises(DatasetError, match=r"queries images .* but other pixels"):
        refuse_other_pixels(split, cache)
    refuse_other_pixels(split, tmp_path / "another")


def test_tuning_contains_no_unseen_class_and_does_not_open_one(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    break_image(root / "g" / "0.png")  # of an unseen class
    split = prepare(root, part="tuning")
    assert (split.train.classes, split.queries.classes) == (("a", "b", "c"), ("d",))


def test_tuning_leaves_a_gallery_alone() -> None:
    def refuse(_: int) -> np.ndarray:
        raise AssertionError("an image was opened")

    def images(*labels: str) -> LabelledImages:
        names = tuple(f"{label}{i}" for i, label in enumerate(labels))
        return LabelledImages(names, labels, refuse)

    split = tuning_split(ImageSplit("x", images(*"aabbccddee"), images("u"), images("u", "v", "w")))
    assert split.gallery is None
    assert split.train.classes + split.queries.classes == tuple("abcde")
    assert split.train.classes == tuple("abc")


def test_glyphs_are_drawn_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def few(**options: int) -> ImageSplit:
        split = glyphs(**options)

        def counted(images: LabelledImages) -> LabelledImages:
            def read(i: int) -> np.ndarray:
                drawn.append(i)
                return images.read(i)

            return LabelledImages(images.names[:6], images.labels[:6], read)

        return ImageSplit("few", counted(split.train), counted(split.queries))

    monkeypatch.setattr("nearsure.lab.datasets.glyphs", few)
    wanted = DatasetSettings(name="glyphs", image_size=16, images_per_class=2)
    first, again = (prepare_images(wanted, seed=3, cache=tmp_path) for _ in range(2))
    assert len(drawn) == 12
    plain = glyphs(seed=3, image_size=16, images_per_class=2)
    for split in (first, again):
        for row in range(6):
            np.testing.assert_array_equal(split.train.read(row), plain.train.read(row))
            np.testing.assert_array_equal(split.queries.read(row), plain.queries.read(row))
