"""A change in several places is made in all of them, or in none."""

from collections.abc import Callable
from functools import partial

import pytest

from nearsure.engines.shards import Step, UndoableChanges, in_parallel
from nearsure.errors import EngineUnavailableError, NearsureError, PartialGalleryError


def refuse() -> None:
    raise NearsureError("No room.")


def interrupt() -> None:
    raise KeyboardInterrupt


class Places:
    """Sets that a value is put into and taken from."""

    def __init__(self, n: int) -> None:
        self.places: list[set[str]] = [set() for _ in range(n)]
        self.is_away = False

    def step(self, i: int, do: Callable[[], None] | None = None) -> Step:
        return Step(do or (lambda: self.places[i].add("book")), lambda: self.take_back(i))

    def take_back(self, i: int) -> None:
        if self.is_away and i == 0:
            raise EngineUnavailableError("Place 0 is away.")
        self.places[i].discard("book")


def test_made_in_all() -> None:
    places = Places(3)
    UndoableChanges().make([places.step(i) for i in range(3)])
    assert places.places == [{"book"}] * 3


@pytest.mark.parametrize(
    ("failure", "error"), [(refuse, NearsureError), (interrupt, KeyboardInterrupt)]
)
def test_made_in_none(failure: Callable[[], None], error: type[BaseException]) -> None:
    places = Places(3)
    with pytest.raises(error):
        UndoableChanges().make([places.step(0), places.step(1, failure), places.step(2)])
    assert places.places == [set()] * 3


def test_what_cannot_be_taken_back_is_remembered() -> None:
    places, changes = Places(3), UndoableChanges()
    places.is_away = True
    with pytest.raises(PartialGalleryError, match="Place 0 is away") as caught:
        changes.make([places.step(0), places.step(1, refuse), places.step(2)])
    assert str(caught.value.__cause__) == "Place 0 is away."
    assert str(caught.value.__context__) == "No room."
    # What can be taken back is, and the rest when the place is back.
    assert places.places == [{"book"}, set(), set()]
    for call in (changes.settle, lambda: changes.make([places.step(1)])):
        with pytest.raises(PartialGalleryError):
            call()
    assert places.places[1] == set()
    places.is_away = False
    changes.make([places.step(1)])
    assert places.places == [set(), {"book"}, set()]


def test_results_come_in_the_order_of_calls() -> None:
    assert in_parallel([partial(pow, i, 2) for i in range(5)]) == [0, 1, 4, 9, 16]
    assert in_parallel([]) == []
