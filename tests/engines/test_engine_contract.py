"""The contract's tests on the plainest engine, so that they are known to be passable."""

from collections.abc import Iterator
from time import sleep

import numpy as np
import pytest
from contract import ClassifierContract, EngineContract
from contract_points import DIMENSION, points_for
from numpy_engine import NumpyEngine

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine, Fingerprint, Found, Stored
from nearsure.engines.shards import ShardedEngine
from nearsure.errors import InvalidInputError


class TestNumbers(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, largest_k=100)

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, NumpyEngine)
        engine.close()
        return NumpyEngine(engine.dimension, largest_k=100, store=engine.store)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return NumpyEngine(dimension, metric="cosine")


class TestText(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, ids="text", labels="text")


class TestCosineWithoutLabels(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, labels=None, metric="cosine")


# The mistakes that adapters make, each caught by the test that is there for it.


class Roots(NumpyEngine):
    def search(self, queries: AnyArray, k: int) -> Found:
        found = super().search(queries, k)
        return Found(np.sqrt(found.sq_distances), found.ids, found.counts, found.labels)


class SinglePrecision(NumpyEngine):
    """|q|^2 + |z|^2 - 2 q z, which cancels far from the origin."""

    def search(self, queries: AnyArray, k: int) -> Found:
        found = super().search(queries, k)
        vectors = np.array([self.fetch(ids).vectors for ids in found.ids], np.float32)
        queries = queries.astype(np.float32)
        products = np.einsum("nkm,nm->nk", vectors, queries)
        squares = (vectors**2).sum(axis=2) + (queries**2).sum(axis=1)[:, None]
        sq_distances = np.maximum(squares - 2 * products, 0).astype(np.float64)
        return Found(np.sort(sq_distances, axis=1), found.ids, found.counts, found.labels)


class FewerThanAsked(NumpyEngine):
    def search(self, queries: AnyArray, k: int) -> Found:
        found = super().search(queries, min(k, 40))
        behind = ((0, 0), (0, k - found.ids.shape[1]))
        return Found(
            np.pad(found.sq_distances, behind, constant_values=np.inf),
            np.pad(found.ids, behind, constant_values=-1),
            found.counts,
            None if found.labels is None else np.pad(found.labels, behind, constant_values=-1),
        )


class TiesAsTheyCome(NumpyEngine):
    def search(self, queries: AnyArray, k: int) -> Found:
        found = super().search(queries, k)
        order = np.lexsort((-found.ids, found.sq_distances), axis=1)
        ids = np.take_along_axis(found.ids, order, axis=1)
        return Found(found.sq_distances, ids, found.counts, found.labels)


class OneByOne(NumpyEngine):
    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        for i in range(len(ids)):
            one = slice(i, i + 1)
            super().add(vectors[one], ids[one], None if labels is None else labels[one])

    def remove(self, ids: AnyArray) -> None:
        for i in range(len(ids)):
            super().remove(ids[i : i + 1])


class Upserts(NumpyEngine):
    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        there = [own for own in ids.tolist() if own in self.store]
        super().remove(np.array(there, np.int64))
        super().add(vectors, ids, labels)


class ForgivesUnknown(NumpyEngine):
    def remove(self, ids: AnyArray) -> None:
        super().remove(np.array([own for own in ids.tolist() if own in self.store], np.int64))


class FetchesInItsOwnOrder(NumpyEngine):
    def fetch(self, ids: AnyArray) -> Stored:
        return super().fetch(np.sort(ids))


class ScansAsAdded(NumpyEngine):
    def scan(self) -> Iterator[Stored]:
        yield self._stored(np.array(list(self.store), np.int64))


class IdsAsFloats(NumpyEngine):
    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        super().add(vectors, ids.astype(np.float64).astype(np.int64), labels)


class RebuildsInFrontOfReaders(NumpyEngine):
    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        whole, self.store = self.store, {}
        sleep(0.02)
        self.store = whole
        super().add(vectors, ids, labels)


class CountsInItsFingerprint(NumpyEngine):
    def fingerprint(self) -> Fingerprint:
        return {"engine": "numpy", "points": self.size()}


class TellsItsAddress(NumpyEngine):
    def fingerprint(self) -> Fingerprint:
        return {"engine": "numpy", "uri": "proto://host"}


class ForgetsWhenClosedAgain(NumpyEngine):
    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            self.store.clear()
        self.is_closed = True


CAUGHT = [
    (Roots, "test_neighbours_are_those_of_naive_search"),
    (SinglePrecision, "test_far_from_the_origin"),
    (FewerThanAsked, "test_neighbours_are_those_of_naive_search"),
    (TiesAsTheyCome, "test_exact_duplicates_are_in_the_order_of_ids"),
    (OneByOne, "test_an_id_that_is_there_adds_nothing"),
    (OneByOne, "test_an_unknown_id_removes_nothing"),
    (Upserts, "test_an_id_that_is_there_adds_nothing"),
    (ForgivesUnknown, "test_an_unknown_id_removes_nothing"),
    (FetchesInItsOwnOrder, "test_fetched_in_the_order_asked"),
    (ScansAsAdded, "test_scanned_in_order_and_whole"),
    (IdsAsFloats, "test_large_and_negative_ids"),
    (RebuildsInFrontOfReaders, "test_readers_and_writers_at_once"),
    (CountsInItsFingerprint, "test_fingerprint"),
    (TellsItsAddress, "test_fingerprint"),
    (ForgetsWhenClosedAgain, "test_closing_twice_loses_nothing"),
]


@pytest.mark.parametrize(
    ("broken", "test"), CAUGHT, ids=[f"{engine.__name__}-{test}" for engine, test in CAUGHT]
)
def test_a_mistake_is_caught(broken: type[NumpyEngine], test: str) -> None:
    class Suite(EngineContract):
        def new_engine(self, dimension: int) -> Engine:
            return broken(dimension)

        def reopen(self, engine: Engine) -> Engine:
            assert isinstance(engine, NumpyEngine)
            return NumpyEngine(engine.dimension, store=engine.store)

    suite = Suite()
    engine = suite.new_engine(DIMENSION)
    given: dict[str, object] = {"engine": engine}
    method = getattr(suite, test)
    wanted = method.__code__.co_varnames[: method.__code__.co_argcount]
    if "points" in wanted:
        points = points_for(engine, 320)
        engine.add(points.vectors, points.ids, points.labels)
        given["points"] = points
    if "k" in wanted:
        given |= {"k": 60, "record_property": lambda *_: None}
    with pytest.raises((AssertionError, InvalidInputError, pytest.fail.Exception)):
        method(**given)


# What a classifier says through the plainest engine, and through several of them.


class TestClassifierOnNumbers(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension)

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, NumpyEngine)
        return NumpyEngine(engine.dimension, store=engine.store)


class TestClassifierOnText(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, ids="text", labels="text")


class TestClassifierOnCosineWithoutLabels(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, labels=None, metric="cosine")


class TestClassifierOnShards(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return ShardedEngine([NumpyEngine(dimension, labels="text") for _ in range(3)])

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return ShardedEngine([NumpyEngine(dimension, labels="text") for _ in range(2)])
