"""A corrupted image depends on the arguments alone: not on order, thread, process or history."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import product

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from photographs import photographs

from nearsure.robustness import CORRUPTIONS, SEVERITIES, corrupt, corruption_rng

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
