"""The window over recent queries: each once, a bounded number, and what was found for them."""

from threading import Thread

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.neighbors import Neighbors
from nearsure.service.window import LONGEST_TEXT, MOST_WAITING, Look, QueryWindow


def vectors_of(numbers: range | list[int]) -> AnyArray:
    return np.array([[number, -number] for number in numbers], np.float32)


def found_for(vectors: AnyArray, k: int = 3, label: int = 0) -> Neighbors:
    """Neighbours whose distances tell which query they are of."""
    distances = np.abs(vectors[:, :1]).astype(np.float64) + np.arange(k)
    return Neighbors(distances, np.full(distances.shape, label))


def added(window: QueryWindow, numbers: range | list[int], model: int = 1) -> None:
    vectors = vectors_of(numbers)
    window.add(vectors, found_for(vectors), model)


def never_search(vectors: AnyArray) -> Neighbors:
    pytest.fail(f"{len(vectors)} queries were searched again")


def test_a_query_counts_once_however_often_it_comes() -> None:
    window = QueryWindow()
    for _ in range(3):
        added(window, [1, 2, 2, 3])
    added(window, [3, 4])
    assert len(window) == window.n_seen == 4
    kept = window.read()
    assert kept.keys == [0, 1, 2, 3]
    assert sorted(kept.vectors[:, 0].tolist()) == [1, 2, 3, 4]


def test_old_queries_leave_and_keys_are_not_used_again() -> None:
    window = QueryWindow(size=10)
    for number in range(25):
        added(window, [number])
        assert len(window) == min(number + 1, 10)
    assert window.read().keys == list(range(15, 25))
    added(window, [3])
    assert window.read().keys[-1] == 25
    assert len(window) == 10


def test_a_batch_is_cut_to_the_window_and_leaves_as_a_whole() -> None:
    window = QueryWindow(size=10)
    added(window, range(1000))
    assert window.read().vectors[:, 0].tolist() == list(range(990, 1000))
    for number in range(2000, 2009):
        added(window, [number])
        assert len(window) == 10 + number - 1999
    added(window, [2009])
    assert window.read().vectors[:, 0].tolist() == list(range(2000, 2010))


def test_what_was_found_is_kept_and_not_searched_again() -> None:
    window = QueryWindow()
    added(window, [7, 5])
    added(window, [5, 9])
    found = window.neighbors(1, never_search)
    assert found.sq_distances[:, 0].tolist() == [7, 5, 9]
    assert found.labels.shape == (3, 3)


def test_what_another_fit_has_found_is_searched_once() -> None:
    window, asked = QueryWindow(), []

    def search(vectors: AnyArray) -> Neighbors:
        asked.append(vectors[:, 0].tolist())
        return found_for(vectors, k=2, label=8)

    added(window, [7], model=1)
    added(window, [5, 6], model=2)
    found = window.neighbors(2, search)
    assert asked == [[7]]
    # As few neighbours as the shortest list has.
    assert found.sq_distances.tolist() == [[7, 8], [5, 6], [6, 7]]
    assert found.labels[:, 0].tolist() == [8, 0, 0]
    window.neighbors(2, never_search)


def test_a_person_recognises_a_query_as_long_as_it_is_there() -> None:
    window = QueryWindow(size=2)
    added(window, [1, 2])
    window.describe(vectors_of([1])[0], Look(name="one", text="x" * 1000))
    window.describe(vectors_of([5])[0], Look(name="nobody"))
    kept = window.read()
    assert kept.looks == [Look("one", "x" * LONGEST_TEXT), Look()]
    added(window, [3, 4])
    assert window.read().looks == [Look(), Look()]
    added(window, [1])
    assert window.read().looks[-1] == Look()


def test_an_empty_window_reads_as_empty() -> None:
    kept = QueryWindow().read()
    assert (kept.keys, kept.looks, len(kept.vectors)) == ([], [], 0)


def test_many_threads_lose_nothing() -> None:
    window = QueryWindow(size=300)

    def ask(start: int) -> None:
        for number in range(start, start + 200):
            added(window, [number, number + 1])
            window.describe(vectors_of([number])[0], Look(name=str(number)))
            window.read()

    threads = [Thread(target=ask, args=(1000 * place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert window.n_seen == 4 * 201
    kept = window.read()
    assert 300 <= len(window) <= 300 + 2 * MOST_WAITING
    assert kept.keys == list(range(window.n_seen - len(window), window.n_seen))
    named = [(look.name, row[0]) for look, row in zip(kept.looks, kept.vectors, strict=True)]
    assert all(name is None or float(name) == number for name, number in named)


def test_single_queries_are_taken_in_some_at_a_time() -> None:
    window = QueryWindow()
    told = []
    for number in range(2 * MOST_WAITING):
        vectors = vectors_of([number])
        told.append(window.add(vectors, found_for(vectors), model=1 + number // 40))
        if told[-1]:
            assert len(window) == number + 1
    assert [number for number, is_due in enumerate(told, 1) if is_due] == [
        MOST_WAITING,
        2 * MOST_WAITING,
    ]
    searched = []

    def search(vectors: AnyArray) -> Neighbors:
        searched.extend(vectors[:, 0].tolist())
        return found_for(vectors)

    found = window.neighbors(2, search)
    assert found.sq_distances[:, 0].tolist() == list(range(2 * MOST_WAITING))
    assert searched == list(range(40))
