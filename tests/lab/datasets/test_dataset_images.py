"""Labelled images: lists of them, and files that are decoded or refused."""

import io
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from image_trees import jpeg, write_class_folders
from PIL import Image, ImageOps

from nearsure.errors import BrokenImageError, DatasetError, MissingExtraError
from nearsure.lab.datasets import images as image_file
from nearsure.lab.datasets.images import (
    ImageSplit,
    LabelledImages,
    Pixels,
    find_broken,
    first_few,
    read_image,
    refuse_broken,
    skip_broken,
    split_by_class,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "picture"


def save(image: Image.Image, path: Path, kind: str, **options: object) -> Path:
    image.save(path, kind, **options)
    return path


def colours(height: int = 4, width: int = 5) -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_colours_come_as_they_were_saved(path: Path, kind: str) -> None:
    expected = colours()
    options = {"lossless": True} if kind == "WEBP" else {}
    pixels = read_image(save(Image.fromarray(expected), path, kind, **options))
    assert pixels.dtype == np.uint8
    assert pixels.flags.writeable
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1)])
def test_one_pixel_wide_or_high_keeps_its_shape(path: Path, size: tuple[int, int]) -> None:
    expected = colours(*size)
    np.testing.assert_array_equal(
        read_image(save(Image.fromarray(expected), path, "PNG")), expected
    )


def test_grey_is_the_same_in_all_three(path: Path) -> None:
    grey = colours()[:, :, 0]
    pixels = read_image(save(Image.fromarray(grey), path, "PNG"))
    np.testing.assert_array_equal(pixels, np.stack([grey] * 3, axis=2))


def test_one_bit_is_black_and_white(path: Path) -> None:
    bits = np.array([[True, False], [False, True], [True, True]])
    pixels = read_image(save(Image.fromarray(bits), path, "PNG"))
    np.testing.assert_array_equal(pixels[:, :, 1], np.where(bits, 255, 0))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_to_the_nearest_of_8_bits(path: Path, kind: str) -> None:
    values = np.linspace(0, 65535, 1000).astype(np.uint16).reshape(20, 50)
    pixels = read_image(save(Image.fromarray(values), path, kind))
    expected = np.rint(values / 65535 * 255)
    for channel in range(3):
        np.testing.assert_array_equal(pixels[:, :, channel], expected)


def test_32_bit_grey_holds_16_bits_or_is_refused(path: Path) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.int32)
    pixels = read_image(save(Image.fromarray(values), path, "TIFF"))
    assert pixels[0, :, 0].tolist() == [0, 1, 128, 255]
    save(Image.fromarray(values + 1), path, "TIFF")
    with pytest.raises(BrokenImageError, match="32-bit numbers from 1 to 65536"):
        read_image(path)
    save(Image.fromarray(values - 1), path, "TIFF")
    with pytest.raises(BrokenImageError, match="32-bit numbers from -1 to 65534"):
        read_image(path)


def test_floating_point_is_refused(path: Path) -> None:
    save(Image.fromarray(np.zeros((2, 2), dtype=np.float32)), path, "TIFF")
    with pytest.raises(BrokenImageError, match="floating-point"):
        read_image(path)


def test_alpha_is_laid_on_white(path: Path) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 256, (30, 40, 4), dtype=np.uint8)
    values[0, 0, 3], values[0, 1, 3] = 0, 255
    pixels = read_image(save(Image.fromarray(values, "RGBA"), path, "PNG"))
    share = values[:, :, 3:] / 255
    np.testing.assert_array_equal(
        pixels, np.rint(values[:, :, :3] * share + 255 * (1 - share)).astype(np.uint8)
    )
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 1].tolist() == values[0, 1, :3].tolist()


def test_grey_with_alpha_is_laid_on_white(path: Path) -> None:
    values = np.array([[[0, 255], [0, 0], [0, 51]]], dtype=np.uint8)
    pixels = read_image(save(Image.fromarray(values, "LA"), path, "PNG"))
    assert pixels[0].tolist() == [[0, 0, 0], [255, 255, 255], [204, 204, 204]]


@pytest.mark.parametrize("transparency", [None, 1, b"\xff\x00"])
def test_palette_with_and_without_transparency(
    path: Path, transparency: int | bytes | None
) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    options = {} if transparency is None else {"transparency": transparency}
    pixels = read_image(save(image, path, "PNG", **options))
    second = [40, 50, 60] if transparency is None else [255, 255, 255]
    assert pixels[0].tolist() == [[10, 20, 30], second]


@pytest.mark.parametrize(
    ("values", "transparency"),
    [
        (np.array([[7, 9]], dtype=np.uint8), 9),
        (np.array([[7 * 257, 9 * 257]], dtype=np.uint16), 9 * 257),
        (np.array([[[7, 7, 7], [9, 9, 9]]], dtype=np.uint8), (9, 9, 9)),
    ],
)
def test_a_transparent_colour_is_white(
    path: Path, values: Pixels, transparency: int | tuple[int, int, int]
) -> None:
    pixels = read_image(save(Image.fromarray(values), path, "PNG", transparency=transparency))
    assert pixels[0].tolist() == [[7, 7, 7], [255, 255, 255]]


def test_cmyk_becomes_red_green_and_blue(path: Path) -> None:
    for inks, expected in [((0, 255, 255, 0), (255, 0, 0)), ((255, 0, 255, 0), (0, 255, 0))]:
        save(Image.new("CMYK", (8, 8), inks), path, "JPEG", quality=100)
        np.testing.assert_allclose(read_image(path), np.full((8, 8, 3), expected), atol=6)


def test_an_animation_gives_its_first_frame(path: Path) -> None:
    first, second = (Image.new("RGB", (4, 4), colour) for colour in ("red", "blue"))
    save(first, path, "GIF", save_all=True, append_images=[second])
    np.testing.assert_array_equal(read_image(path), np.full((4, 4, 3), (255, 0, 0)))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 10))
def test_the_picture_is_turned_as_exif_says(path: Path, kind: str, orientation: int) -> None:
    stored = Image.fromarray(colours(3, 5))
    exif = Image.Exif()
    exif[image_file.ORIENTATION_TAG] = orientation
    save(stored, path, kind, exif=exif)
    with Image.open(path) as image:
        image.load()
        upright = np.asarray(ImageOps.exif_transpose(image))
    pixels = read_image(path)
    np.testing.assert_array_equal(pixels, upright)
    assert pixels.shape == ((5, 3, 3) if orientation in {5, 6, 7, 8} else (3, 5, 3))


def test_orientation_6_puts_the_left_column_on_top(path: Path) -> None:
    # The value of a phone held upright: stored row 0 is the right side of what was seen.
    values = np.zeros((2, 3, 3), dtype=np.uint8)
    values[0] = 255
    exif = Image.Exif()
    exif[image_file.ORIENTATION_TAG] = 6
    pixels = read_image(save(Image.fromarray(values), path, "PNG", exif=exif))
    np.testing.assert_array_equal(pixels[:, :, 0], [[0, 255]] * 3)


def test_broken_exif_is_no_broken_picture_and_makes_no_noise(path: Path) -> None:
    data = jpeg()
    # A directory of 500 entries that the block is too short for.
    block = b"Exif\x00\x00II*\x00\x08\x00\x00\x00" + struct.pack("<H", 500) + b"\x12\x01\x03"
    segment = b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block
    path.write_bytes(data[:2] + segment + data[2:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_image(path).shape == (2, 3, 3)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of_size(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b""))


def saved(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(colours(50, 50)).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"<html>404</html>", "not an image of a kind that Pillow knows", id="html"),
        pytest.param(jpeg()[:2], "not an image of a kind that Pillow knows", id="two bytes"),
        pytest.param(saved("JPEG")[:1500], "truncated", id="cut jpeg"),
        pytest.param(saved("PNG")[:2000], "truncated", id="cut png"),
        pytest.param(saved("GIF")[:1000], "truncated", id="cut gif"),
        pytest.param(saved("BMP")[:2000], "truncated", id="cut bmp"),
        pytest.param(png_of_size(0, 4), "its header is broken", id="no width"),
        pytest.param(png_of_size(10_000, 10_000), "exceeds limit of 89478485", id="large"),
        pytest.param(png_of_size(100_000, 100_000), "exceeds limit of 178956970", id="huge"),
    ],
)
@pytest.mark.parametrize("filters", ["error", "ignore"])
def test_broken_files_are_named_with_the_reason(
    path: Path, data: bytes, reason: str, filters: str
) -> None:
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter(filters)  # type: ignore[arg-type]
        with pytest.raises(BrokenImageError) as caught:
            read_image(path)
    assert str(caught.value).startswith(f"{path} cannot be decoded: ")
    assert reason in str(caught.value)


def test_absent_files_and_folders_are_broken_images(tmp_path: Path) -> None:
    with pytest.raises(BrokenImageError, match=r"absent\.jpg cannot be decoded: No such file"):
        read_image(tmp_path / "absent.jpg")
    with pytest.raises(BrokenImageError, match="cannot be decoded: "):
        read_image(tmp_path)


def test_any_cut_of_a_file_is_decoded_whole_or_refused(path: Path) -> None:
    whole = saved("PNG")
    path.write_bytes(whole)
    expected = read_image(path)
    n_refused = 0
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        try:
            np.testing.assert_array_equal(read_image(path), expected)
        except BrokenImageError:
            n_refused += 1
    assert n_refused > 50


def test_without_pillow_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_nothing(name: str) -> None:
        raise ModuleNotFoundError(name)

    path.write_bytes(jpeg())
    monkeypatch.setattr("nearsure.extras.import_module", import_nothing)
    with pytest.raises(MissingExtraError, match=r"Reading images needs PIL.*nearsure\[train\]"):
        read_image(path)


@pytest.fixture
def images(tmp_path: Path) -> LabelledImages:
    """Thirty images, of which every third is broken."""
    write_class_folders(tmp_path, {"a": 30})
    paths = [tmp_path / "a" / f"{i}.jpg" for i in range(30)]
    for broken in paths[::3]:
        broken.write_bytes(b"")
    names = tuple(f"a/{file.name}" for file in paths)
    return LabelledImages(names, ("a",) * 30, lambda i: read_image(paths[i]))


@pytest.mark.parametrize("batch", [1, 7, 1024])
def test_every_broken_image_is_found(
    images: LabelledImages, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(image_file, "BATCH", batch)
    broken = find_broken(images)
    assert list(broken) == [f"a/{i}.jpg" for i in range(0, 30, 3)]
    assert all("the file is empty" in message for message in broken.values())


def test_progress_sees_every_image(images: LabelledImages) -> None:
    seen: list[int] = []

    def progress(rows: Iterable[int]) -> Iterator[int]:
        for row in rows:
            seen.append(row)
            yield row

    find_broken(images, progress=progress)
    assert seen == list(range(30))


def test_other_errors_are_not_taken_for_broken_images() -> None:
    def read(_: int) -> Pixels:
        raise MemoryError

    with pytest.raises(MemoryError):
        find_broken(LabelledImages(("x",), ("a",), read))


def test_broken_images_are_listed_up_to_ten(images: LabelledImages) -> None:
    broken = find_broken(images)
    with pytest.raises(
        BrokenImageError, match=r"10 images of birds cannot.*skip_broken_images"
    ) as e:
        refuse_broken(broken, dataset="birds")
    assert str(e.value).count("the file is empty") == 10
    assert "more" not in str(e.value)
    broken |= {"x": "x is broken", "y": "y is broken"}
    with pytest.raises(BrokenImageError, match="12 images of birds") as e:
        refuse_broken(broken, dataset="birds")
    assert str(e.value).endswith("  and 2 more")
    assert "x is broken" not in str(e.value)
    refuse_broken({}, dataset="birds")


def test_broken_images_can_be_skipped(images: LabelledImages) -> None:
    whole = skip_broken(images, find_broken(images))
    assert whole.names == tuple(f"a/{i}.jpg" for i in range(30) if i % 3)
    assert find_broken(whole) == {}


def test_threads_leave_the_warning_filters_as_they_were(
    images: LabelledImages, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(warnings.filters)
    monkeypatch.setattr(image_file, "N_DECODED", 8)
    find_broken(images)
    path.write_bytes(png_of_size(10_000, 10_000))
    with pytest.raises(BrokenImageError):
        read_image(path)
    assert list(warnings.filters) == before


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
