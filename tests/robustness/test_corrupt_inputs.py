"""What is refused, and that the message says why and what to do."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from nearsure.errors import InvalidInputError
from nearsure.robustness import CORRUPTIONS, corrupt, corruption_rng, corruption_sheet

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
        assert missing in str(error) and "pip install 'nearsure[robust]'" in str(error), error
    else:
        raise SystemExit(f"corrupted without {missing}")
    del sys.modules[missing]
corrupt(np.zeros((32, 32, 3), np.uint8), "fog", 1, np.random.default_rng(0))
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)  # noqa: S603
