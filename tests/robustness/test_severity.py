"""Severity: the published constants, what lies between them, and that damage rises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from photographs import peak_signal_to_noise, photographs

from nearsure.errors import InvalidInputError
from nearsure.robustness import CORRUPTIONS, SEVERITIES, corrupt, severity_constants
from nearsure.robustness.constants import PUBLISHED

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
    for key, value in at.items():
        ends = sorted((low[key], high[key]))
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
    for size, known in ((33, 32), (63, 64), (110, 64), (130, 224), (160, 224)):
        for severity in SEVERITIES:
            mixed = severity_constants("elastic_transform", severity, size)
            assert mixed == severity_constants("elastic_transform", severity, known)


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
