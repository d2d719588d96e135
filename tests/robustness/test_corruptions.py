"""Each corruption does what it is called, and as much as another implementation."""

import colorsys
from collections.abc import Iterator

import cv2
import numpy as np
import pytest
from photographs import Pixels, peak_signal_to_noise, photographs
from scipy import stats

from nearsure.robustness import CORRUPTIONS, SEVERITIES, corrupt, corruption_rng, severity_constants
from nearsure.robustness.corruptions import (
    QUANTILE_BITS,
    STYLES,
    _poisson_quantiles,
    frost_texture,
    frost_window,
    pixel_sources,
    plasma,
)


def even(level: int, size: int = 64) -> Pixels:
    return np.full((size, size, 3), level, np.uint8)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("size", [32, 64, 224])
def test_gaussian_noise_has_its_deviation(severity: int, size: int) -> None:
    deviation = 255 * severity_constants("gaussian_noise", severity, size)["deviation"]
    noisy = corrupt(even(128, size), "gaussian_noise", severity, np.random.default_rng(1))
    inside = noisy[(noisy > 0) & (noisy < 255)].astype(float) - 128
    # Of what was not cut off at black or white, whose deviation is known too.
    cut = stats.truncnorm(-127.5 / deviation, 126.5 / deviation, scale=deviation)
    assert inside.std() == pytest.approx(cut.std(), rel=0.05)
    assert abs(inside.mean()) < 5 * deviation / len(inside) ** 0.5 + 1


@pytest.mark.parametrize("photons", [3, 12, 60, 500])
@pytest.mark.parametrize("grey", [0, 1, 60, 128, 255])
def test_shot_noise_is_poisson(photons: int, grey: int) -> None:
    outcomes = _poisson_quantiles(photons).reshape(256, -1)[grey]
    mean = photons * grey / 255
    counts = np.arange(photons + 1)
    expected = stats.poisson(mean).pmf(counts)
    expected[-1] = stats.poisson(mean).sf(photons - 1)  # brighter than white is white
    levels = np.rint(255 * counts / photons).astype(int)
    by_level = np.bincount(levels, expected, minlength=256)
    found = np.bincount(outcomes, minlength=256) / len(outcomes)
    # Each end of a level's share is rounded to half a cell; levels hold two counts at most.
    assert np.abs(found - by_level).max() <= 1.01 / (1 << QUANTILE_BITS)


def test_impulses_are_black_and_white_and_as_many_as_said() -> None:
    amount = severity_constants("impulse_noise", 5, 224)["amount"]
    image = even(100, 224)
    noisy = corrupt(image, "impulse_noise", 5, np.random.default_rng(0))
    assert set(np.unique(noisy)) == {0, 100, 255}
    for level in (0, 255):
        assert np.mean(noisy == level) == pytest.approx(amount / 2, rel=0.03)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    "name",
    [
        "defocus_blur",
        "glass_blur",
        "motion_blur",
        "zoom_blur",
        "contrast",
        "elastic_transform",
        "pixelate",
    ],
)
def test_an_even_image_has_nothing_to_blur_move_or_flatten(name: str, severity: int) -> None:
    # The published disks of severity 4 and 5 at 224 pixels are one part in a hundred too bright.
    for size in (16, 32, 64) if name == "defocus_blur" else (16, 32, 64, 224):
        image = even(200, size)
        damaged = corrupt(image, name, severity, np.random.default_rng(severity))
        np.testing.assert_array_equal(damaged, image)


@pytest.mark.parametrize("reach", [1, 2, 3, 4])
def test_glass_hands_colours_on_like_a_walk_over_the_pixels(reach: int) -> None:
    height, width = 23, 19
    sources = pixel_sources(height, width, reach, np.random.default_rng(reach))
    inner = [
        row * width + column
        for row in range(reach + 1, height - reach + 1)
        for column in range(reach + 1, width - reach + 1)
    ]
    draws = np.random.default_rng(reach).integers(0, 4 * reach**2, len(inner), np.uint8)
    walked = np.arange(height * width)
    for pixel, draw in reversed(list(zip(inner, draws.tolist(), strict=True))):
        down, right = divmod(draw, 2 * reach)
        walked[pixel] = walked[pixel + (down - reach) * width + right - reach]
    np.testing.assert_array_equal(sources, walked)


def test_motion_is_one_sided_and_at_most_45_degrees() -> None:
    image = even(0, 65)
    image[32, 32] = 255
    for seed in range(20):
        blurred = corrupt(image, "motion_blur", 5, np.random.default_rng(seed))[:, :, 0]
        rows, columns = np.nonzero(blurred)
        assert columns.max() == 32
        assert columns.min() < 28
        assert np.all(np.abs(rows - 32) <= 32 - columns)


def test_zoom_keeps_the_middle_and_smears_the_rim() -> None:
    image = even(0, 65)
    image[32, 32] = image[2, 32] = 255
    blurred = corrupt(image, "zoom_blur", 5, np.random.default_rng(0))[:, :, 0]
    assert blurred[32, 32] > 2 * blurred[2, 32]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_lifts_the_value_and_keeps_hue_and_saturation(severity: int) -> None:
    lift = severity_constants("brightness", severity, 32)["lift"]
    rng = np.random.default_rng(severity)
    image = rng.integers(0, 256, (32, 32, 3), np.uint8)
    image[0, :4] = [[0, 0, 0], [255, 255, 255], [0, 0, 255], [1, 0, 0]]
    brighter = corrupt(image, "brightness", severity, rng)
    for old, new in zip(image.reshape(-1, 3)[:300], brighter.reshape(-1, 3), strict=False):
        hue, saturation, value = colorsys.rgb_to_hsv(*(old / 255))
        expected = 255 * np.array(colorsys.hsv_to_rgb(hue, saturation, min(value + lift, 1)))
        np.testing.assert_allclose(new, expected, atol=0.5 + 1e-9)


def test_contrast_draws_to_the_mean_of_each_channel() -> None:
    image = photographs(64)[0]
    means = image.reshape(-1, 3).mean(axis=0)
    factor = severity_constants("contrast", 2, 64)["factor"]
    flat = corrupt(image, "contrast", 2, np.random.default_rng(0))
    np.testing.assert_allclose(flat, means + factor * (image - means), atol=0.5 + 1e-9)


def test_plasma_goes_from_0_to_1_and_meets_itself() -> None:
    clouds = plasma(64, 2.0, np.random.default_rng(3))
    assert clouds.shape == (64, 64)
    assert (clouds.min(), clouds.max()) == (0, 1)
    for axis in (0, 1):
        inside = np.abs(np.diff(clouds, axis=axis)).max()
        seam = np.abs(np.take(clouds, 0, axis) - np.take(clouds, -1, axis)).max()
        assert seam <= inside


def test_fog_on_white_is_the_clouds() -> None:
    weight, decay = severity_constants("fog", 3, 64).values()
    foggy = corrupt(even(255), "fog", 3, np.random.default_rng(5))
    clouds = plasma(64, decay, np.random.default_rng(5))
    expected = 255 * (1 + weight * clouds) / (1 + weight)
    np.testing.assert_allclose(foggy[:, :, 1], expected, atol=0.51)


def test_fog_of_a_black_image_is_black() -> None:
    """The sum is darkened to the old maximum, which is zero."""
    assert not corrupt(even(0), "fog", 5, np.random.default_rng(0)).any()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_and_frost_only_lighten_what_is_dark(severity: int) -> None:
    for name in ("snow", "frost"):
        damaged = corrupt(even(20), name, severity, np.random.default_rng(severity))
        assert damaged.mean() > 25
        assert damaged.std() > 0.5


@pytest.mark.parametrize("number", range(len(STYLES)))
def test_frost_has_the_colours_of_its_style(number: int) -> None:
    window = frost_window(number)
    pixels = window.reshape(-1, 3)
    np.testing.assert_allclose(pixels.mean(axis=0), STYLES[number].mean, atol=2)
    np.testing.assert_allclose(pixels.std(axis=0), STYLES[number].deviation, atol=3)
    for scale, side in ((0.2, 32), (1.0, 224), (1.0, 700)):
        texture = frost_texture(number, scale, side)
        assert min(texture.shape[:2]) > side
        assert not texture.flags.writeable


oracle = pytest.importorskip("imagecorruptions")
similarity = pytest.importorskip("skimage.metrics").structural_similarity

DECIBELS = 0.5
# Our windows of frost are drawn, theirs are photographs: 0.3 dB apart in the mean of many draws.
WIDER = {"frost": 1.0}
SIMILARITY = 0.05

# As many as the chance of the draw asks for, and as few as the other package's time allows.
DRAWS = {
    "glass_blur": 4,
    "motion_blur": 16,
    "elastic_transform": 4,
    "snow": 24,
    "frost": 96,
    "fog": 96,
}
MOVES_PIXELS = (
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "elastic_transform",
    "pixelate",
)


@pytest.fixture(autouse=True)
def seeded_and_restored() -> Iterator[None]:
    """The other package draws from numpy's global state."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


def by_oracle(image: Pixels, name: str, severity: int, draw: int) -> Pixels:
    # These two ignore the global state and take a seed of their own.
    own_seed = {"seed": draw} if name in ("impulse_noise", "glass_blur") else {}
    return np.asarray(oracle.corrupt(image, severity, name, **own_seed), np.uint8)


def grey(image: Pixels) -> Pixels:
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_damage_is_that_of_the_oracle(name: str, severity: int) -> None:
    photos = photographs(224)
    ratios, similarities = [], []
    for draw in range(DRAWS.get(name, 2)):
        clean = photos[draw % len(photos)]
        ours = corrupt(clean, name, severity, corruption_rng(0, draw, name, severity))
        theirs = by_oracle(clean, name, severity, draw)
        ratios.append([peak_signal_to_noise(clean, damaged) for damaged in (ours, theirs)])
        if name in MOVES_PIXELS:
            similarities.append(
                [similarity(grey(clean), grey(damaged)) for damaged in (ours, theirs)]
            )
    our_ratio, their_ratio = np.mean(ratios, axis=0)
    assert our_ratio == pytest.approx(their_ratio, abs=WIDER.get(name, DECIBELS))
    if similarities:
        our_similarity, their_similarity = np.mean(similarities, axis=0)
        assert our_similarity == pytest.approx(their_similarity, abs=SIMILARITY)


@pytest.mark.parametrize(("name", "levels"), [("jpeg_compression", 0), ("pixelate", 1)])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_without_chance_images_are_the_same(name: str, levels: int, severity: int) -> None:
    for clean in photographs(224)[:3]:
        ours = corrupt(clean, name, severity, np.random.default_rng(0)).astype(int)
        assert np.abs(ours - by_oracle(clean, name, severity, 0)).max() <= levels


@pytest.mark.parametrize("name", ["defocus_blur", "brightness", "contrast"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_without_chance_only_the_rounding_differs(name: str, severity: int) -> None:
    """Ours is rounded, theirs is cut off: ours is the same or one level above."""
    for clean in photographs(224)[:2]:
        ours = corrupt(clean, name, severity, np.random.default_rng(0)).astype(int)
        above = ours - by_oracle(clean, name, severity, 0)
        assert above.min() >= 0
        assert above.max() <= 1
