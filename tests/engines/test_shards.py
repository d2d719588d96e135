"""Several engines as one: the same answers, the same contract, and faults that leave no part."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import pytest
from contract import EngineContract
from contract_base import assert_same_answer, expected_scan, scanned
from contract_points import DIMENSION, Points, clusters, ids_for, labels_for, points_for
from numpy_engine import NumpyEngine

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Capabilities, Engine
from nearsure.engines.shards import ShardedEngine, Step, UndoableChanges, in_parallel, shard_of
from nearsure.errors import (
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
    NearsureError,
    PartialGalleryError,
)

N_SHARDS = 3


class TestNumbersInShards(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        self.shards = [NumpyEngine(dimension, largest_k=100 + i) for i in range(N_SHARDS)]
        return ShardedEngine(self.shards)

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        stores = [shard.store for shard in self.shards]
        return ShardedEngine(
            [NumpyEngine(engine.dimension, largest_k=100, store=store) for store in stores]
        )

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return ShardedEngine([NumpyEngine(dimension), NumpyEngine(dimension)])


class TestTextInShards(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return ShardedEngine(
            [NumpyEngine(dimension, ids="text", labels="text") for _ in range(N_SHARDS)]
        )


class TestCosineShardsWithoutLabels(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return ShardedEngine(
            [NumpyEngine(dimension, labels=None, metric="cosine") for _ in range(N_SHARDS)]
        )


class FaultyEngine(NumpyEngine):
    """Goes away before a change, or after it and before it could say so; or stays away."""

    fault: Literal["before", "after"] | None = None
    stays_away = False

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        self._change(lambda: NumpyEngine.add(self, vectors, ids, labels))

    def remove(self, ids: AnyArray) -> None:
        self._change(lambda: NumpyEngine.remove(self, ids))

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        self._change(lambda: NumpyEngine.relabel(self, ids, labels))

    def _known(self, ids: AnyArray) -> AnyArray:
        if self.stays_away and self.fault is None:
            raise EngineUnavailableError("The engine is away.")
        return super()._known(ids)

    def _change(self, change: Callable[[], None]) -> None:
        fault, self.fault = self.fault, None
        if fault == "after" or not (fault or self.stays_away):
            stays_away, self.stays_away = self.stays_away, False
            change()
            self.stays_away = stays_away
        if fault is not None or self.stays_away:
            raise EngineUnavailableError("The engine went away.")


@pytest.fixture
def shards() -> list[FaultyEngine]:
    return [FaultyEngine(DIMENSION, labels="text") for _ in range(N_SHARDS)]


@pytest.fixture
def sharded(shards: list[FaultyEngine]) -> ShardedEngine:
    return ShardedEngine(shards)


@pytest.fixture
def points(sharded: ShardedEngine) -> Points:
    points = points_for(sharded, 200)
    sharded.add(points.vectors, points.ids, points.labels)
    return points


def test_answers_are_those_of_one_engine(sharded: ShardedEngine, points: Points) -> None:
    one = NumpyEngine(DIMENSION, labels="text")
    copies = points_for(sharded, 40, first=1000)
    copies = Points(copies.ids, points.vectors[:40].copy(), copies.labels)
    one.add(points.vectors, points.ids, points.labels)
    one.add(copies.vectors, copies.ids, copies.labels)
    sharded.add(copies.vectors, copies.ids, copies.labels)
    queries = np.concatenate([clusters(30, seed=1)[0], points.vectors[:10]])
    for k in (1, 7, 100, 500):
        ours, theirs = sharded.search(queries, k), one.search(queries, k)
        np.testing.assert_array_equal(ours.sq_distances, theirs.sq_distances)
        assert_same_answer(ours, theirs)
    assert scanned(sharded) == scanned(one)


def test_every_shard_holds_a_share(shards: list[FaultyEngine], points: Points) -> None:
    assert sum(shard.size() for shard in shards) == len(points)
    for i, shard in enumerate(shards):
        assert set(shard.store) == set(points.ids[shard_of(points.ids, N_SHARDS) == i].tolist())


@pytest.mark.parametrize("stride", [1, 2, 3, 1000, 2**40])
def test_ids_of_any_pattern_spread_evenly(stride: int) -> None:
    numbers = np.arange(6000) * stride
    for ids in (numbers, -numbers, numbers.astype(str)):
        counts = np.bincount(shard_of(ids, 3), minlength=3)
        # Six standard deviations of a fair division.
        assert np.abs(counts - 2000).max() < 6 * np.sqrt(6000 * 2 / 9)


def test_integers_are_mixed_as_published() -> None:
    # The first number of SplitMix64 from the seed 0 is the mixture of its increment.
    increment = np.array([0x9E3779B97F4A7C15], np.uint64).view(np.int64)
    assert shard_of(increment, 2**32).tolist() == [0xE220A8397B1DCDAF % 2**32]


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("call", ["add", "remove", "relabel"])
def test_a_change_that_fails_in_one_shard_is_taken_back(
    sharded: ShardedEngine,
    shards: list[FaultyEngine],
    points: Points,
    fault: Literal["before", "after"],
    call: str,
) -> None:
    for shard in shards:
        shard.fault = fault
        with pytest.raises(EngineUnavailableError, match="went away"):
            change(sharded, points, call)
        check_unchanged(sharded, points)
    change(sharded, points, call)
    assert scanned(sharded) != expected_scan(points)


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("call", ["add", "remove", "relabel"])
def test_a_part_is_never_taken_for_whole(
    sharded: ShardedEngine,
    shards: list[FaultyEngine],
    points: Points,
    fault: Literal["before", "after"],
    call: str,
) -> None:
    shards[1].fault, shards[1].stays_away = fault, True
    with pytest.raises(PartialGalleryError, match="when the shard is back"):
        change(sharded, points, call)
    for use in (
        sharded.size,
        lambda: sharded.search(points.vectors[:1], 1),
        lambda: sharded.fetch(points.ids[:1]),
        lambda: list(sharded.scan()),
        lambda: change(sharded, points, "add"),
        lambda: change(sharded, points, "remove"),
        lambda: change(sharded, points, "relabel"),
    ):
        with pytest.raises(PartialGalleryError):
            use()
    shards[1].stays_away = False
    check_unchanged(sharded, points)
    change(sharded, points, call)
    assert scanned(sharded) != expected_scan(points)


def change(engine: Engine, points: Points, call: str) -> None:
    if call == "add":
        more = points_for(engine, 30, seed=2, first=1000)
        engine.add(more.vectors, more.ids, more.labels)
    elif call == "remove":
        engine.remove(points.ids[:30])
    else:
        labels = labels_for(engine, list(range(50, 80)))
        assert labels is not None
        engine.relabel(points.ids[:30], labels)


def check_unchanged(engine: Engine, points: Points) -> None:
    assert engine.size() == len(points)
    assert scanned(engine) == expected_scan(points)
    np.testing.assert_array_equal(engine.fetch(points.ids).vectors, points.vectors)


def test_an_id_of_two_shards(
    sharded: ShardedEngine, shards: list[FaultyEngine], points: Points
) -> None:
    home = int(shard_of(points.ids[:1], N_SHARDS)[0])
    label = labels_for(sharded, [0])
    shards[(home + 1) % N_SHARDS].add(points.vectors[:1], points.ids[:1], label)
    with pytest.raises(GalleryMismatchError, match=f"Got the id {points.ids[0]} in two"):
        sharded.search(points.vectors[:1], 5)
    with pytest.raises(GalleryMismatchError, match=f"Got {points.ids[0]}"):
        scanned(sharded)


@pytest.mark.usefixtures("points")
def test_shards_in_another_order(shards: list[FaultyEngine]) -> None:
    with pytest.raises(GalleryMismatchError, match="in the order in which they were filled"):
        scanned(ShardedEngine(shards[::-1]))
    with pytest.raises(GalleryMismatchError, match="Shard 0 of 2"):
        scanned(ShardedEngine(shards[:2]))


def test_a_division_of_ones_own() -> None:
    def by_range(ids: AnyArray, n_shards: int) -> IntArray:
        return (ids * n_shards // 60).astype(np.int64)

    shards = [NumpyEngine(DIMENSION) for _ in range(N_SHARDS)]
    sharded = ShardedEngine(shards, placement=by_range)
    points = points_for(sharded, 60)
    sharded.add(points.vectors, points.ids, points.labels)
    assert [sorted(shard.store) for shard in shards] == np.arange(60).reshape(3, 20).tolist()
    check_unchanged(sharded, points)
    with pytest.raises(InvalidInputError, match="from 0 to 2"):
        sharded.fetch(ids_for(sharded, [60]))


def test_capabilities_are_what_all_can_do() -> None:
    engines = [NumpyEngine(3, largest_k=k) for k in (None, 40, 30)]
    assert ShardedEngine(engines).capabilities == engines[2].capabilities
    assert ShardedEngine(engines[:1]).capabilities.largest_k is None
    engines[0].capabilities = Capabilities(exact=False, holds_labels=True, labels="integer")
    assert not ShardedEngine(engines).capabilities.exact


def test_shards_must_be_alike() -> None:
    engine = NumpyEngine(3)
    for other in (
        NumpyEngine(4),
        NumpyEngine(3, ids="text"),
        NumpyEngine(3, labels="text"),
        NumpyEngine(3, metric="cosine"),
    ):
        with pytest.raises(GalleryMismatchError, match="engines must be of one"):
            ShardedEngine([engine, other])
    with pytest.raises(InvalidInputError, match="at least one"):
        ShardedEngine([])
    with pytest.raises(InvalidInputError, match="distinct"):
        ShardedEngine([engine, engine])


def test_nothing_asked_is_nothing_done(sharded: ShardedEngine, points: Points) -> None:
    assert len(sharded.fetch(points.ids[:0]).ids) == 0
    sharded.remove(points.ids[:0])
    check_unchanged(sharded, points)


# A change in several places is made in all of them, or in none.


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
