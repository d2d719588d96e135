"""The damage of all 75 pairs of corruption and severity is that of `imagecorruptions`.

The random numbers differ, so images cannot be compared one by one. What must agree is the damage:
the mean peak signal-to-noise ratio against the clean image, and for what moves pixels about, where
that ratio says little, the mean structural similarity too. The bands hold what is left of the
chance of the draw (a standard error of up to 0.4 dB for frost, 0.2 dB for fog and motion blur, less
for the others) and rounding, where the other package cuts off fractions; a wrong constant moves
most corruptions by far more: one severity to the next is 0.5 to 5 dB apart.
"""

from collections.abc import Iterator

import cv2
import numpy as np
import pytest
from photographs import Pixels, peak_signal_to_noise, photographs

from nearsure.robustness import CORRUPTIONS, SEVERITIES, corrupt, corruption_rng

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
