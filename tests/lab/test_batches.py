"""Batches: balanced, determined by seed and step, and made one ahead."""

import threading

import numpy as np
import pytest

from nearsure.arrays import IntArray
from nearsure.errors import InvalidInputError
from nearsure.lab.training import balanced_rows, read_ahead, view_generator

CODES = np.random.default_rng(0).permutation(np.repeat([3, 5, 6, 8, 9], [10, 7, 5, 2, 3]))


def rows_at(step: int, *, seed: int = 0, codes: IntArray = CODES) -> IntArray:
    return balanced_rows(codes, classes_per_batch=3, images_per_class=4, seed=seed, step=step)


def test_every_batch_has_so_many_images_of_so_many_classes() -> None:
    for step in range(50):
        codes = CODES[rows_at(step)].reshape(3, 4)
        assert (codes == codes[:, :1]).all()  # images of one class stand together
        assert len(set(codes[:, 0])) == 3


def test_no_image_is_twice_in_a_batch_unless_its_class_is_small() -> None:
    repeated = set()
    for step in range(50):
        for rows in rows_at(step).reshape(3, 4):
            if len(set(rows.tolist())) < 4:
                repeated.add(int(CODES[rows[0]]))
    assert repeated == {8, 9}  # of two and three images


def test_seed_and_step_alone_determine_a_batch() -> None:
    backwards = [rows_at(step) for step in reversed(range(5))][::-1]
    for step in range(5):
        np.testing.assert_array_equal(rows_at(step), backwards[step])
    batches = {rows_at(step, seed=seed).tobytes() for step in range(20) for seed in range(3)}
    assert len(batches) == 60


def test_every_image_is_reached_and_classes_are_equally_frequent() -> None:
    seen = np.concatenate([rows_at(step) for step in range(500)])
    assert set(seen.tolist()) == set(range(len(CODES)))
    shares = np.unique(CODES[seen], return_counts=True)[1] / len(seen)
    # A class is in 3/5 of 500 batches: four standard deviations are 0.03 of a fifth each.
    np.testing.assert_allclose(shares, 1 / 5, atol=0.03)


def test_more_classes_than_there_are_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"exceed the 2 classes .* Got 3 instead"):
        rows_at(0, codes=np.array([0, 0, 1, 1]))


def test_views_have_randomness_of_their_own() -> None:
    def first(seed: int, step: int, position: int) -> float:
        return float(view_generator(seed, step, position).random())

    assert first(1, 2, 3) == first(1, 2, 3)
    places = [(s, t, p) for s in range(3) for t in range(3) for p in range(3)]
    assert len({first(*place) for place in places}) == 27


@pytest.mark.parametrize("steps", [range(7), range(3, 7), range(5, 5), range(1)])
def test_read_ahead_keeps_the_order(steps: range) -> None:
    assert list(read_ahead(lambda step: step**2, steps)) == [step**2 for step in steps]


def test_the_next_is_made_while_one_is_used() -> None:
    made = [threading.Event() for _ in range(3)]
    batches = read_ahead(lambda step: made[step].set(), range(3))
    next(batches)
    assert made[1].wait(timeout=60)
    assert not made[2].is_set()
    batches.close()  # type: ignore[attr-defined]


def test_an_exception_arrives_at_its_step() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise OSError("broken image")
        return step

    batches = read_ahead(make, range(5))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(OSError, match="broken image"):
        next(batches)


def test_nothing_is_made_after_the_consumer_stops() -> None:
    made: list[int] = []
    threads = threading.active_count()
    batches = read_ahead(made.append, range(1000))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert made == [0, 1]
    assert threading.active_count() == threads
