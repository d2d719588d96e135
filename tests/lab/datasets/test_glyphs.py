"""Glyphs: which characters, how they are drawn, and that nothing but the name decides a picture."""

import pickle
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nearsure.arrays import FloatArray
from nearsure.errors import DatasetError, MissingExtraError
from nearsure.lab.datasets.glyphs import (
    TEST_ALPHABETS,
    TRAIN_ALPHABETS,
    fonts_of_characters,
    glyphs,
    smooth_noise,
    text_fonts,
)
from nearsure.lab.datasets.images import ImageSplit, LabelledImages, Pixels

# The module, not the function of its name that the package offers.
glyph_alphabets = import_module("nearsure.lab.datasets.glyphs")
IMAGES = 18


@pytest.fixture(scope="module")
def split() -> ImageSplit:
    return glyphs(images_per_class=IMAGES)


def rows_of(images: LabelledImages, character: str) -> list[int]:
    start = f"U+{ord(character):04X} "
    return [row for row, label in enumerate(images.labels) if label.startswith(start)]


def mean_picture(images: LabelledImages, character: str) -> FloatArray:
    pictures = [images.read(row)[:, :, 0] for row in rows_of(images, character)]
    mean: FloatArray = np.mean(pictures, axis=0)
    return mean


def darkness(picture: Pixels) -> FloatArray:
    ink = np.median(picture[:, :, 0]) - picture[:, :, 0].astype(np.float64)
    return np.where(ink < 60, 0.0, ink)


def test_there_are_a_thousand_classes_and_several_hundred_on_either_side(split: ImageSplit) -> None:
    train, queries = len(split.train.classes), len(split.queries.classes)
    assert train + queries >= 1000
    assert train >= 600
    assert 400 <= queries <= 600


def test_every_class_has_the_images_that_were_asked_for(split: ImageSplit) -> None:
    for part in (split.train, split.queries):
        assert set(Counter(part.labels).values()) == {IMAGES}
        assert len(set(part.names)) == len(part)


def test_no_alphabet_is_in_both_parts(split: ImageSplit) -> None:
    train = {code for codes in TRAIN_ALPHABETS.values() for code in codes}
    test = {code for codes in TEST_ALPHABETS.values() for code in codes}
    assert not train & test
    assert not set(split.train.classes) & set(split.queries.classes)


def test_names_and_labels_say_the_character_and_its_font(split: ImageSplit) -> None:
    rows = rows_of(split.train, "A")
    assert {split.train.labels[row] for row in rows} == {"U+0041 LATIN CAPITAL LETTER A"}
    assert "U+0041/DejaVuSans-Bold/0" in {split.train.names[row] for row in rows}


def test_every_font_of_a_character_is_used_once_before_any_is_used_twice(
    split: ImageSplit,
) -> None:
    holders = fonts_of_characters(TEST_ALPHABETS, text_fonts())
    for character in "ΩЖԱ←":
        names = [split.queries.names[row] for row in rows_of(split.queries, character)]
        uses = Counter(name.split("/")[1] for name in names)
        assert set(uses) == {font.name for font in holders[ord(character)]}
        assert max(uses.values()) - min(uses.values()) <= 1


def test_few_images_are_not_all_of_one_family() -> None:
    few = glyphs(images_per_class=4).queries
    families = [
        len({few.names[row].split("/")[1][:9] for row in range(start, start + 4)})
        for start in range(0, len(few), 4)
    ]
    assert np.mean(families) > 1.5


def test_blank_characters_and_combining_marks_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    latin_and_braille = {"Latin": range(0x20, 0x370), "Braille": range(0x2800, 0x2900)}
    monkeypatch.setattr(glyph_alphabets, "TRAIN_ALPHABETS", latin_and_braille)
    holders = fonts_of_characters(latin_and_braille, text_fonts())
    space, delete, soft_hyphen, combining_acute, braille_blank = 0x20, 0x7F, 0xAD, 0x301, 0x2800
    assert {ord("A"), ord("."), braille_blank + 1} <= set(holders)
    assert not {space, delete, soft_hyphen, combining_acute, braille_blank} & set(holders)


def test_a_picture_is_grey_with_dark_ink_on_light_ground(split: ImageSplit) -> None:
    for row in np.random.default_rng(0).integers(len(split.train), size=200):
        picture = split.train.read(int(row))
        assert picture.shape == (32, 32, 3)
        assert picture.dtype == np.uint8
        assert (picture == picture[:, :, :1]).all()
        assert np.median(picture) > 180, split.train.names[row]
        assert 4 < np.count_nonzero(darkness(picture)) < 512, split.train.names[row]


def test_ink_lies_in_the_middle_and_hardly_touches_the_border(split: ImageSplit) -> None:
    rows = np.random.default_rng(1).integers(len(split.queries), size=400).tolist()
    ink = np.sum([darkness(split.queries.read(row)) for row in rows], axis=0)
    down, across = np.indices(ink.shape)
    assert abs((ink * down).sum() / ink.sum() - 15.5) < 1.5
    assert abs((ink * across).sum() / ink.sum() - 15.5) < 1.5
    assert ink[1:-1, 1:-1].sum() > 0.99 * ink.sum()


def test_low_marks_stay_below_high_marks_and_small_ones_stay_smaller(split: ImageSplit) -> None:
    low, high = (255 - mean_picture(split.train, mark) for mark in ("_", "¯"))
    rows = np.arange(32)
    low, high = low - low.min(), high - high.min()
    assert (low.sum(axis=1) * rows).sum() / low.sum() > (
        (high.sum(axis=1) * rows).sum() / high.sum() + 8
    )
    dot, capital = (
        np.mean([np.count_nonzero(darkness(split.train.read(row))) for row in rows])
        for rows in (rows_of(split.train, "."), rows_of(split.train, "O"))
    )
    assert dot < capital / 2


def test_pictures_are_the_same_in_any_order_in_threads_and_after_pickling(
    split: ImageSplit,
) -> None:
    rows = np.random.default_rng(2).integers(len(split.queries), size=64).tolist()
    one_by_one = {row: split.queries.read(row) for row in rows}
    with ThreadPoolExecutor(4) as pool:
        for row, picture in zip(rows[::-1], pool.map(split.queries.read, rows[::-1]), strict=True):
            np.testing.assert_array_equal(picture, one_by_one[row])
    # A process that is not forked gets the reader pickled.
    sent = pickle.loads(pickle.dumps(split.queries.read))  # noqa: S301
    np.testing.assert_array_equal(sent(rows[0]), one_by_one[rows[0]])


def test_a_picture_depends_on_its_name_not_on_how_many_there_are(split: ImageSplit) -> None:
    more = glyphs(images_per_class=IMAGES + 5).queries
    row = 1000
    same = more.names.index(split.queries.names[row])
    assert same != row
    np.testing.assert_array_equal(more.read(same), split.queries.read(row))


def test_seeds_fonts_and_variants_give_other_pictures(split: ImageSplit) -> None:
    other = glyphs(seed=1, images_per_class=IMAGES).train
    name = split.train.names[500]
    assert (other.read(other.names.index(name)) != split.train.read(500)).any()
    rows = rows_of(split.train, "Q")
    assert len({split.train.read(row).tobytes() for row in rows}) == len(rows)


def test_the_size_changes_the_resolution_not_the_character() -> None:
    small = glyphs(images_per_class=2, image_size=32).queries
    large = glyphs(images_per_class=2, image_size=64).queries
    row = rows_of(small, "Ж")[0]
    picture = large.read(row)
    assert picture.shape == (64, 64, 3)
    halved = picture[:, :, 0].reshape(32, 2, 32, 2).mean(axis=(1, 3))
    assert np.corrcoef(halved.ravel(), small.read(row)[:, :, 0].ravel())[0, 1] > 0.9


def test_look_alikes_are_nearer_than_other_characters(split: ImageSplit) -> None:
    alike = [("Α", "А"), ("Ο", "О"), ("Ο", "Օ"), ("Ρ", "Р"), ("Τ", "Т"), ("Χ", "Х"), ("ο", "о")]  # noqa: RUF001
    means = {letter: mean_picture(split.queries, letter) for pair in alike for letter in pair}
    pairs = {(a, b): np.square(means[a] - means[b]).mean() for a in means for b in means if a < b}
    unlike = [
        distance
        for (a, b), distance in pairs.items()
        if {a, b} <= set("ΑΡΤΧО")  # noqa: RUF001
    ]
    for a, b in alike:
        assert pairs[min(a, b), max(a, b)] < min(unlike)


def test_neighbours_in_pixels_are_often_right_and_often_wrong(split: ImageSplit) -> None:
    classes = np.random.default_rng(3).choice(split.queries.classes, size=60, replace=False)
    rows = np.flatnonzero(np.isin(split.queries.labels, classes))
    labels = np.array(split.queries.labels)[rows]
    pixels = np.stack([split.queries.read(int(row))[:, :, 0].ravel() for row in rows]) / 255
    likeness = np.asarray(np.corrcoef(pixels))
    np.fill_diagonal(likeness, -1)
    accuracy = (labels[likeness.argmax(axis=1)] == labels).mean()
    assert 0.25 < accuracy < 0.9


def test_an_installation_without_fonts_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = SimpleNamespace(get_data_path=lambda: str(tmp_path))
    monkeypatch.setattr(glyph_alphabets, "require", lambda *_, **__: bare)
    with pytest.raises(DatasetError, match=r"Got 0 in .* install matplotlib"):
        glyphs()


@pytest.mark.parametrize("package", ["matplotlib", "PIL"])
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"{package}.ImageFont", raising=False)
    with pytest.raises(MissingExtraError, match=rf"needs {package}, .*nearsure\[train\]"):
        glyphs()


def test_smooth_noise_has_unit_variance_everywhere_and_is_smooth() -> None:
    fields = smooth_noise(np.random.default_rng(4), size=24, correlation=0.2, fields=4000)
    assert fields.shape == (4000, 24, 24)
    np.testing.assert_allclose(fields.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(fields.var(axis=0), 1, atol=0.15)
    # The correlation of noise filtered by a Gaussian of width s is a Gaussian of width s * sqrt 2.
    for lag in (2, 5, 10):
        measured = (fields[:, :, 12 - lag // 2] * fields[:, :, 12 - lag // 2 + lag]).mean()
        assert measured == pytest.approx(np.exp(-((lag / 24 / 0.2) ** 2) / 4), abs=0.03)
