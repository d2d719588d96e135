"""`corrupt`: what it refuses, its severities, and that it depends on its arguments alone."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import product
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from photographs import Pixels, peak_signal_to_noise, photographs

from nearsure.errors import InvalidInputError
from nearsure.robustness import (
    CORRUPTIONS,
    SEVERITIES,
    corrupt,
    corruption_rng,
    corruption_sheet,
    severity_constants,
)
from nearsure.robustness.constants import PUBLISHED

IMAGE = np.zeros((32, 32, 3), np.uint8)
FLOATS = np.linspace(0, 1, 32 * 32 * 3).reshape(32, 32, 3)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (FLOATS, r"Got float64 instead, with values in \[0, 1\].*np\.uint8\(np\.rint\(255 \* im"),
        (FLOATS.astype(np.float32) * 4 - 2, r"from -2 to 2, which are out of the range \[0, 1\]"),
        (255 * FLOATS, r"from 0 to 255, which are out of the range"),
        (np.zeros((0, 4, 3)), r"Got float64 instead, and no pixels"),
        (IMAGE.astype(np.int64), r"must be of type uint8.*Got int64 instead\."),
        (IMAGE.astype(bool), r"Got bool instead"),
        (IMAGE[:, :, 0], r"shape \(32, 32\) instead, a grey image: .*np\.stack\(\[image\] \* 3"),
        (IMAGE[:, :, :1], r"shape \(32, 32, 1\) instead, a grey image: .*np\.repeat\(image, 3"),
        (np.zeros((32, 32, 4), np.uint8), r"an alpha channel: .*image\[:, :, :3\]"),
        (np.zeros((3, 32, 32), np.uint8), r"channels first: use np\.moveaxis\(image, 0, -1\)"),
        (np.zeros((8, 32, 32, 3), np.uint8), r"a batch: corrupt one image at a time"),
        (np.zeros((32, 32, 2), np.uint8), r"Got the shape \(32, 32, 2\) instead\."),
        (np.zeros((0, 32, 3), np.uint8), r"at least 16 pixels.*0 x 32"),
        (np.zeros((15, 32, 3), np.uint8), r"at least 16 pixels.*15 x 32"),
        (np.zeros((32, 15, 3), np.uint8), r"at least 16 pixels.*32 x 15"),
        ([[[0, 0, 0]]], r"must be an array of uint8.*Got list instead: .*np\.asarray"),
    ],
)
def test_images(image: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidInputError, match=message):
        corrupt(image, "fog", 1, rng())
    with pytest.raises(InvalidInputError, match=message):
        corruption_sheet(image, 0)


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, 3.0, True, "3", None, np.float64(2)])
def test_severities(severity: Any) -> None:  # noqa: ANN401
    message = r"'severity' parameter must be a whole number from 1 to 5\. Got .* instead"
    with pytest.raises(InvalidInputError, match=message):
        corrupt(IMAGE, "fog", severity, rng())
    with pytest.raises(InvalidInputError, match=message):
        corruption_rng(0, 0, "fog", severity)


def test_whole_numbers_of_numpy_are_severities() -> None:
    level: Any = np.int64(3)
    np.testing.assert_array_equal(
        corrupt(IMAGE, "snow", level, rng()), corrupt(IMAGE, "snow", 3, rng())
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gausian_noise", "gaussian_noise"),
        ("Motion Blur", "motion_blur"),
        ("jpeg_compresion", "jpeg_compression"),
        ("elastic", "elastic_transform"),
        ("rain", None),
        (3, None),
    ],
)
def test_names(name: Any, meant: str | None) -> None:  # noqa: ANN401
    with pytest.raises(InvalidInputError, match=r"'name' parameter must be one of") as caught:
        corrupt(IMAGE, name, 1, rng())
    message = str(caught.value)
    assert all(repr(known) in message for known in CORRUPTIONS)
    assert f"Got {name!r} instead." in message
    assert (f"Did you mean {meant!r}?" in message) if meant else ("Did you mean" not in message)


@pytest.mark.parametrize(
    ("generator", "remedy"),
    [
        (7, r"pass np\.random\.default_rng\(7\)"),
        (None, r"pass np\.random\.default_rng\(seed\)"),
        (True, r"pass np\.random\.default_rng\(seed\)"),
        (np.random.RandomState(0), r"pass np\.random\.default_rng\(seed\)"),
        (np.random, r"pass np\.random\.default_rng\(seed\)"),
    ],
)
def test_generators(generator: Any, remedy: str) -> None:  # noqa: ANN401
    with pytest.raises(
        InvalidInputError, match=r"'rng' parameter must be a numpy Generator.*" + remedy
    ):
        corrupt(IMAGE, "contrast", 1, generator)


@pytest.mark.parametrize("value", [-1, 1.5, "1", None, True])
@pytest.mark.parametrize("argument", ["seed", "image"])
def test_numbers_of_a_stream(argument: str, value: Any) -> None:  # noqa: ANN401
    arguments = {"seed": 0, "image": 0} | {argument: value}
    with pytest.raises(InvalidInputError, match=rf"'{argument}' parameter must be a whole number"):
        corruption_rng(name="fog", severity=1, **arguments)


def test_missing_packages_are_named_only_when_needed() -> None:
    program = """
import sys
import numpy as np
sys.modules["cv2"] = sys.modules["PIL"] = None
from nearsure.errors import MissingExtraError
from nearsure.robustness import corrupt, severity_constants
severity_constants("fog", 1, 32)
for missing in ("cv2", "PIL"):
    try:
        corrupt(np.zeros((32, 32, 3), np.uint8), "fog", 1, np.random.default_rng(0))
    except MissingExtraError as error:
        assert missing in str(error) and "pip install 'nearsure[train]'" in str(error), error
    else:
        raise SystemExit(f"corrupted without {missing}")
    del sys.modules[missing]
corrupt(np.zeros((32, 32, 3), np.uint8), "fog", 1, np.random.default_rng(0))
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)  # noqa: S603


# Steps, numbered by the lower severity, at which the published constants do not raise the damage
# to pixels:
# - glass blur trades a wider blur for fewer or shorter shuffles, at 160 pixels also from 4 to 5,
#   as the reach of both is rounded to 3;
# - frost from 3 to 4 weakens the image and leaves the frost as strong, so that bright images come
#   nearer to what they were;
# - motion blur from 3 to 4 at 32 pixels has the same bell, only cut off later;
# - the elastic transform of small images bends more and more, but shifts the whole image less and
#   less, which weighs more.
NOT_RISING = {
    (224, "glass_blur"): {1, 3},
    (224, "frost"): {3},
    (160, "glass_blur"): {1, 3, 4},
    (64, "glass_blur"): {1, 3},
    (64, "elastic_transform"): {1, 2, 3, 4},
    (32, "glass_blur"): {1, 2, 4},
    (32, "frost"): {3},
    (32, "motion_blur"): {3},
    (32, "elastic_transform"): {1, 2, 3, 4},
}
WITHOUT_CHANCE = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
}


@pytest.mark.parametrize("size", [224, 160, 64, 32])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_damage_rises_with_severity(name: str, size: int) -> None:
    draws = 1 if name in WITHOUT_CHANCE else 3
    ratios = [
        np.mean(
            [
                # The same draws at every severity, so that only the strength differs.
                peak_signal_to_noise(clean, corrupt(clean, name, level, np.random.default_rng(key)))
                for draw in range(draws)
                for key, clean in enumerate(photographs(size), 100 * draw)
            ]
        )
        for level in SEVERITIES
    ]
    not_rising = {level for level in SEVERITIES[:-1] if ratios[level] >= ratios[level - 1]}
    assert not_rising == NOT_RISING.get((size, name), set())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_published_sizes_take_published_rows(name: str) -> None:
    published = PUBLISHED[name]
    for size, rows in ((32, published.at_32), (64, published.at_64), (224, published.at_224)):
        for severity, row in zip(SEVERITIES, rows, strict=True):
            constants = severity_constants(name, severity, size)
            assert tuple(constants) == published.names
            assert tuple(constants.values()) == row


@given(
    name=st.sampled_from(CORRUPTIONS),
    severity=st.sampled_from(SEVERITIES),
    size=st.integers(1, 2000),
)
def test_constants_lie_between_their_published_neighbours(
    name: str, severity: int, size: int
) -> None:
    below = next((known for known in (224, 64, 32) if known <= size), 32)
    above = next((known for known in (32, 64, 224) if known >= size), 224)
    at = severity_constants(name, severity, size)
    low, high = (severity_constants(name, severity, known) for known in (below, above))
    for key in at.keys() - PUBLISHED[name].proportional:
        value, ends = at[key], sorted((low[key], high[key]))
        assert ends[0] - 1e-12 <= value <= ends[1] + 1e-12
        assert isinstance(value, int) or key not in PUBLISHED[name].integers


@pytest.mark.parametrize(
    ("name", "severity", "size", "constants"),
    [
        # As printed in the programs that made CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C.
        ("gaussian_noise", 5, 32, (0.10,)),
        ("gaussian_noise", 5, 64, (0.18,)),
        ("gaussian_noise", 5, 224, (0.38,)),
        ("shot_noise", 1, 224, (60,)),
        ("impulse_noise", 5, 224, (0.27,)),
        ("contrast", 1, 224, (0.4,)),
        ("contrast", 5, 224, (0.05,)),
        ("brightness", 5, 224, (0.5,)),
        ("pixelate", 5, 32, (0.65,)),
        ("pixelate", 5, 224, (0.25,)),
        ("jpeg_compression", 1, 32, (80,)),
        ("jpeg_compression", 5, 224, (7,)),
        ("fog", 1, 224, (1.5, 2)),
    ],
)
def test_constants_are_the_published_ones(
    name: str, severity: int, size: int, constants: tuple[float, ...]
) -> None:
    assert tuple(severity_constants(name, severity, size).values()) == constants


def test_elastic_constants_are_never_mixed() -> None:
    for size, known in ((20, 32), (33, 32), (63, 64), (110, 64), (130, 224), (160, 224)):
        for severity in SEVERITIES:
            mixed = dict(severity_constants("elastic_transform", severity, size))
            pure = dict(severity_constants("elastic_transform", severity, known))
            assert mixed.pop("amplitude") == pytest.approx(pure.pop("amplitude") * size / known)
            assert mixed == pure


def test_elastic_constants_of_large_images_are_the_published_ones() -> None:
    large, published = (severity_constants("elastic_transform", 3, size) for size in (500, 224))
    assert large == published


def _ramp(size: int) -> Pixels:
    """Grey levels that rise from left to right by one a 240th of the side."""
    row = np.linspace(8, 248, size, endpoint=False)
    return np.repeat(np.tile(np.rint(row).astype(np.uint8), (size, 1))[:, :, None], 3, axis=2)


@pytest.mark.parametrize("severity", [1, 5])
def test_elastic_displacement_is_a_fraction_of_the_side(severity: int) -> None:
    """On a ramp a displacement is a change of the grey level, whatever the size."""
    deviations = []
    for size in (224, 160, 130):
        clean = _ramp(size)
        changes = [
            corrupt(clean, "elastic_transform", severity, np.random.default_rng(draw)).astype(float)
            - clean
            for draw in range(6)
        ]
        inner = slice(size // 8, -size // 8)
        deviations.append(np.std([change[inner, inner, 0] for change in changes]))
    assert deviations == pytest.approx([deviations[0]] * 3, rel=0.05)


def test_geometric_middle_of_two_sizes_takes_the_mean() -> None:
    """Linear in the logarithm: 120 is the middle between 64 and 224."""
    ends = [severity_constants("gaussian_noise", 5, size)["deviation"] for size in (64, 224)]
    middle = severity_constants("gaussian_noise", 5, round((64 * 224) ** 0.5))["deviation"]
    assert middle == pytest.approx(np.mean(ends), abs=0.001)


def test_constants_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        severity_constants("fog", 1, 32)["weight"] = 9  # type: ignore[index]


@pytest.mark.parametrize("size", [0, -3, 2.5, "64", None])
def test_size_must_be_a_number_of_pixels(size: object) -> None:
    with pytest.raises(InvalidInputError, match=r"'size' parameter must be a whole number"):
        severity_constants("fog", 1, size)  # type: ignore[arg-type]


# The backward order, with an image that another process can make without the tests' files.
PROGRAM = """
from hashlib import sha256
import numpy as np
from nearsure.robustness import CORRUPTIONS, corrupt, corruption_rng
for name in CORRUPTIONS[::-1]:
    image = np.random.default_rng(4).integers(0, 256, (70, 50, 3), np.uint8)
    print(sha256(corrupt(image, name, 3, corruption_rng(9, 1, name, 3)).tobytes()).hexdigest())
"""


def digest(name: str, severity: int, number: int) -> str:
    image = photographs(64)[number]
    damaged = corrupt(image, name, severity, corruption_rng(2, number, name, severity))
    return sha256(damaged.tobytes()).hexdigest()


def test_order_and_threads_change_nothing() -> None:
    tasks = list(product(CORRUPTIONS, SEVERITIES, range(2)))
    forward = [digest(*task) for task in tasks]
    assert [digest(*task) for task in reversed(tasks)] == forward[::-1]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda task: digest(*task), tasks)) == forward


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_threads_and_random_state_of_opencv_change_nothing(name: str) -> None:
    image = photographs(224)[0]
    threads = cv2.getNumThreads()
    results = []
    try:
        for count in (1, 4):
            cv2.setNumThreads(count)
            cv2.setRNGSeed(count)
            results.append(corrupt(image, name, 5, corruption_rng(0, 0, name, 5)))
    finally:
        cv2.setNumThreads(threads)
    np.testing.assert_array_equal(results[0], results[1])


def test_a_new_process_gives_the_same() -> None:
    image = np.random.default_rng(4).integers(0, 256, (70, 50, 3), np.uint8)
    here = [
        sha256(corrupt(image, name, 3, corruption_rng(9, 1, name, 3)).tobytes()).hexdigest()
        for name in CORRUPTIONS
    ]
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    there = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    assert there.stdout.split()[::-1] == here


def test_global_random_state_is_neither_read_nor_changed() -> None:
    before = np.random.get_state()  # noqa: NPY002
    try:
        np.random.seed(1)  # noqa: NPY002
        first = [digest(name, 3, 0) for name in CORRUPTIONS]
        drawn = np.random.random()  # noqa: NPY002
        np.random.seed(1)  # noqa: NPY002
        assert drawn == np.random.random()  # noqa: NPY002
        assert [digest(name, 3, 0) for name in CORRUPTIONS] == first
    finally:
        np.random.set_state(before)  # noqa: NPY002


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(CORRUPTIONS),
    severity=st.sampled_from(SEVERITIES),
    height=st.integers(16, 90),
    width=st.integers(16, 90),
    seed=st.integers(0, 99),
)
def test_any_shape_in_the_same_shape_out_and_input_untouched(
    name: str, severity: int, height: int, width: int, seed: int
) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    kept = image.copy()
    damaged = corrupt(image, name, severity, np.random.default_rng(seed))
    np.testing.assert_array_equal(image, kept)
    assert damaged.shape == image.shape
    assert damaged.dtype == np.uint8
    assert damaged.flags.writeable
    assert not np.shares_memory(damaged, image)


@pytest.mark.parametrize(("name", "severity"), list(product(CORRUPTIONS, SEVERITIES)))
def test_the_smallest_and_long_images(name: str, severity: int) -> None:
    for shape in ((16, 16, 3), (16, 61, 3), (61, 16, 3), (33, 600, 3)):
        image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        assert corrupt(image, name, severity, np.random.default_rng(0)).shape == shape


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_memory_layout_does_not_matter(name: str) -> None:
    image = photographs(64)[0]  # read-only
    layouts = (image[::-1, ::2], np.asfortranarray(image), image.transpose(1, 0, 2))
    for layout in layouts:
        results = [
            corrupt(pixels, name, 4, np.random.default_rng(3)) for pixels in (layout, layout.copy())
        ]
        np.testing.assert_array_equal(results[0], results[1])


def test_streams_are_all_different() -> None:
    keys = list(product((0, 1, 2**40), (0, 1, 7), CORRUPTIONS, SEVERITIES))
    firsts = {corruption_rng(*key).integers(2**63) for key in keys}
    assert len(firsts) == len(keys)
