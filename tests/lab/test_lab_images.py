"""Images of a run: checked and drawn, cropped, and on a contact sheet."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_images import CLASSES, SEEN, settings, write_tree

from nearsure.errors import BrokenImageError, DatasetError
from nearsure.lab.config import DatasetSettings
from nearsure.lab.datasets.glyphs import glyphs
from nearsure.lab.datasets.images import ImageSplit, LabelledImages, Pixels
from nearsure.lab.images import (
    GAP,
    central_view,
    contact_sheet,
    prepare_images,
    random_view,
    refuse_other_pixels,
    tuning_split,
)


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


STEP = 2  # grey levels a pixel
SIZE = 32


def gradients(height: int, width: int) -> Pixels:
    """Red grows to the right, green downwards; blue is 7 everywhere."""
    image = np.full((height, width, 3), 7, np.uint8)
    image[:, :, 0] = STEP * np.arange(width)
    image[:, :, 1] = STEP * np.arange(height)[:, None]
    return image


def extent(levels: Pixels) -> tuple[float, float]:
    """Where a crop begins and how far it reaches, in pixels, along a gradient; away from edges."""
    places = np.arange(4, SIZE - 4)
    slope, start = np.polyfit(places + 0.5, levels[4:-4] / STEP + 0.5, 1)
    return float(start), float(slope * SIZE)


def crop_of(view: Pixels) -> tuple[tuple[float, float], tuple[float, float]]:
    """Left and width, top and height."""
    return extent(view[SIZE // 2, :, 0]), extent(view[:, SIZE // 2, 1])


def test_the_central_view_is_the_largest_central_square() -> None:
    (left, width), (top, height) = crop_of(central_view(gradients(60, 100), SIZE))
    assert (left, width, top, height) == pytest.approx((20, 60, 0, 60), abs=0.5)
    (left, width), (top, height) = crop_of(central_view(gradients(101, 60), SIZE))
    assert (left, width, top, height) == pytest.approx((0, 60, 20.5, 60), abs=0.5)


def test_a_square_of_the_right_size_is_shown_as_it_is() -> None:
    image = gradients(SIZE, SIZE)
    np.testing.assert_array_equal(central_view(image, SIZE), image)
    whole = random_view(image, SIZE, np.random.default_rng(0), smallest_crop=1, flip=False)
    np.testing.assert_array_equal(whole, image)


@pytest.mark.parametrize("shape", [(100, 120), (120, 90), (110, 110)])
@pytest.mark.parametrize("smallest_crop", [0.2, 0.7])
def test_random_crops_cover_at_least_the_share(
    shape: tuple[int, int], smallest_crop: float
) -> None:
    image = gradients(*shape)
    shares, aspects = [], []
    for seed in range(60):
        view = random_view(
            image, SIZE, np.random.default_rng(seed), smallest_crop=smallest_crop, flip=False
        )
        assert view.shape == (SIZE, SIZE, 3)
        assert view.dtype == np.uint8
        assert (view[:, :, 2] == 7).all()
        (left, width), (top, height) = crop_of(view)
        assert min(left, top) > -0.5
        assert left + width < shape[1] + 0.5
        assert top + height < shape[0] + 0.5
        shares.append(width * height / (shape[0] * shape[1]))
        aspects.append(width / height)
    assert min(shares) > 0.98 * smallest_crop
    # Not always the same crop, and the whole range of shares is used.
    assert min(shares) < smallest_crop + 0.1
    assert max(shares) > 0.85
    assert min(aspects) > 0.98 * 3 / 4
    assert max(aspects) < 1.02 * 4 / 3
    assert max(aspects) - min(aspects) > 0.2


def test_an_elongated_image_shows_its_largest_square_where_no_crop_fits() -> None:
    image = gradients(40, 120)
    lefts = []
    for seed in range(20):
        view = random_view(image, SIZE, np.random.default_rng(seed), smallest_crop=0.9, flip=False)
        (left, width), (top, height) = crop_of(view)
        assert (width, top, height) == pytest.approx((40, 0, 40), abs=0.7)
        lefts.append(left)
    assert max(lefts) - min(lefts) > 40


def test_the_generator_alone_decides() -> None:
    image = gradients(80, 90)

    def view(seed: int) -> Pixels:
        return random_view(image, SIZE, np.random.default_rng(seed), smallest_crop=0.3, flip=True)

    np.testing.assert_array_equal(view(3), view(3))
    assert not np.array_equal(view(3), view(4))


@pytest.mark.parametrize("flip", [True, False])
def test_half_of_the_views_are_mirrored_or_none(*, flip: bool) -> None:
    image = gradients(50, 50)
    views = [
        random_view(image, SIZE, np.random.default_rng(seed), smallest_crop=0.5, flip=flip)
        for seed in range(400)
    ]
    mirrored = sum(int(view[0, 0, 0]) > int(view[0, -1, 0]) for view in views)
    # Five standard deviations of 400 tosses are 50.
    assert abs(mirrored - 200) < 50 if flip else mirrored == 0
    assert all(int(view[0, 0, 1]) < int(view[-1, 0, 1]) for view in views)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 3)])
def test_the_thinnest_images_work(shape: tuple[int, int]) -> None:
    image = np.full((*shape, 3), 9, np.uint8)
    views = [central_view(image, 16)]
    views += [
        random_view(image, 16, np.random.default_rng(seed), smallest_crop=0.4, flip=True)
        for seed in range(30)
    ]
    for view in views:
        np.testing.assert_array_equal(view, np.full((16, 16, 3), 9))


SHOWN_SIZE = 16


def images() -> LabelledImages:
    """Six classes of grey, four images each; the value tells the class, and which image it is."""
    labels = tuple(str(i // 4) for i in range(24))
    return LabelledImages(
        tuple(f"image {i}" for i in range(24)),
        labels,
        lambda i: np.full((SHOWN_SIZE, SHOWN_SIZE, 3), 10 + i, np.uint8),
    )


def test_a_row_holds_different_images_of_one_class() -> None:
    sheet = contact_sheet(images(), classes=3, images_per_class=4, size=SHOWN_SIZE, seed=0)
    side = SHOWN_SIZE + GAP
    assert sheet.shape == (3 * side + GAP, 4 * side + GAP, 3)
    values = sheet[GAP::side, GAP::side, 0].astype(int) - 10
    assert np.array_equal(np.sort(values, axis=1), values.min(axis=1, keepdims=True) + np.arange(4))
    assert len(set(values.min(axis=1).tolist())) == 3
    assert np.all(values.min(axis=1) % 4 == 0)


def test_the_seed_chooses() -> None:
    def sheet(seed: int) -> list[int]:
        shown = contact_sheet(images(), classes=2, images_per_class=2, size=SHOWN_SIZE, seed=seed)
        return shown.ravel().tolist()

    assert sheet(0) == sheet(0)
    assert sheet(0) != sheet(1)
