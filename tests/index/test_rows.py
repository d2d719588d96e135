"""A table of points against a dictionary: ids found, added, deleted, relabelled."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError
from nearsure.index.rows import PointTable


def _ids(kind: str, numbers: AnyArray) -> AnyArray:
    return numbers if kind == "integer" else np.array([f"id-{n}" for n in numbers.tolist()])


@pytest.mark.parametrize("kind", ["integer", "text"])
def test_agrees_with_a_dictionary_through_many_changes(kind: str) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(60)[:30] - 20
    table = PointTable(_ids(kind, numbers), numbers * 7)
    expected = dict(zip(_ids(kind, numbers).tolist(), (numbers * 7).tolist(), strict=True))
    for step in range(20):
        new = np.arange(100 + 3 * step, 103 + 3 * step)
        table.append(_ids(kind, new), new)
        expected |= dict(zip(_ids(kind, new).tolist(), new.tolist(), strict=True))
        gone = np.array(rng.choice(list(expected), 2, replace=False))
        table.mark_deleted(table.rows_of(gone))
        for own in gone.tolist():
            del expected[own]
        changed = np.array(rng.choice(list(expected), 4, replace=False))
        table.relabel(table.rows_of(changed), np.arange(4) + step)
        expected |= dict(zip(changed.tolist(), range(step, step + 4), strict=True))
        asked = np.array(list(expected))[rng.integers(0, len(expected), (5, 3))]
        assert table.labels[table.rows_of(asked)].tolist() == [
            [expected[own] for own in row] for row in asked
        ]
    assert table.n_alive == len(expected)
    ids, labels = table.by_id()
    assert ids.tolist() == sorted(expected)
    assert labels.tolist() == [expected[own] for own in sorted(expected)]


def test_an_unknown_id_is_an_error_that_names_it() -> None:
    table = PointTable(np.array([1, 2]), np.array([0, 0]))
    with pytest.raises(InvalidInputError, match="7"):
        table.rows_of(np.array([1, 7]))
    with pytest.raises(InvalidInputError):
        PointTable(np.empty(0, np.int64), np.empty(0, np.int64)).rows_of(np.array([1]))


def test_longer_strings_are_kept_whole() -> None:
    table = PointTable(np.array(["a", "b"]), np.array([0, 1]))
    table.append(np.array(["a longer one"]), np.array([2]))
    assert table.find(np.array([["a longer one", "a long"], ["b", "a"]])).tolist() == [
        [2, -1],
        [1, 0],
    ]
    table.append(np.array(["c"]), np.array([3]))
    assert table.by_id()[0].tolist() == ["a", "a longer one", "b", "c"]


@pytest.mark.parametrize("deleted", [False, True])
def test_readers_meet_nothing_half_done_while_points_are_added(*, deleted: bool) -> None:
    for _ in range(10):
        table = PointTable(np.arange(20_000), np.arange(20_000))
        if deleted:
            table.mark_deleted(np.array([7]))
        done = Event()

        def read(table: PointTable = table, done: Event = done) -> None:
            asked = np.array([[5, 19_999]])
            while not done.is_set():
                assert table.labels[table.rows_of(asked)].tolist() == asked.tolist()
                ids, labels = table.by_id()
                assert len(ids) == len(labels)

        with ThreadPoolExecutor(2) as readers:
            reading = [readers.submit(read) for _ in range(2)]
            # The first of these ids follows no row: all of them are sorted for the first time.
            for new in range(30_000, 30_020):
                table.append(np.array([new]), np.array([new]))
            done.set()
            for each in reading:
                each.result()


def test_a_table_that_was_empty_finds_what_was_added() -> None:
    table = PointTable(np.empty(0, np.int64), np.empty(0, np.int64))
    table.append(np.array([7]), np.array([70]))
    assert table.find(np.array([7, 8])).tolist() == [0, -1]


def test_an_id_that_was_removed_and_came_back_is_found_in_its_new_row() -> None:
    table = PointTable(np.array([9, 5, 7]), np.array([0, 1, 2]))
    table.mark_deleted(table.rows_of(np.array([5])))
    table.append(np.array([5, 8]), np.array([3, 4]))
    assert table.labels[table.rows_of(np.array([[5, 9], [8, 7]]))].tolist() == [[3, 0], [4, 2]]
