"""Labels of an engine as class codes; labels that nobody has seen get the next codes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.gallery import LabelCodes

KINDS = {
    "text": np.array(["emu", "ant", "cat"]),
    "close integers": np.array([7, -2, 3]),
    "far integers": np.array([7, -(10**15), 10**15]),
}


@pytest.mark.parametrize("classes", KINDS.values(), ids=KINDS)
def test_codes_are_places_among_the_classes(classes: AnyArray) -> None:
    rng = np.random.default_rng(0)
    places = rng.integers(0, 3, (4, 5))
    assert (LabelCodes(classes).of(classes[places]) == places).all()


@pytest.mark.parametrize(
    ("classes", "new"),
    [
        (KINDS["text"], np.array(["zebra-with-a-long-name", "bee"])),
        (KINDS["close integers"], np.array([99, -50])),
        (KINDS["close integers"], np.array([10**17, 5])),
        (KINDS["far integers"], np.array([8, 9])),
    ],
)
def test_new_labels_come_behind_and_old_codes_stay(classes: AnyArray, new: AnyArray) -> None:
    codes = LabelCodes(classes)
    found = codes.of(np.concatenate([new, classes, new]))
    assert found[2:5].tolist() == [0, 1, 2]
    assert sorted(found[:2].tolist()) == [3, 4]
    assert found[:2].tolist() == found[5:].tolist()
    assert codes.classes[found[:2]].tolist() == new.tolist()


def test_many_threads_agree_about_new_labels() -> None:
    codes = LabelCodes(np.arange(5))

    def ask(seed: int) -> tuple[AnyArray, AnyArray]:
        labels = np.random.default_rng(seed).integers(0, 2000, 200)
        return labels, codes.of(labels)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(64)))
    assert len(np.unique(codes.classes)) == len(codes.classes)
    for labels, own in answers:
        assert (codes.classes[own] == labels).all()
