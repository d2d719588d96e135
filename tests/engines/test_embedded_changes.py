"""Changes of the embedded engine: whole or not at all, and readers meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Found
from nearsure.engines.embedded import FaissEngine, IndexSettings, approximate
from nearsure.engines.embedded.approximate import load_rows
from nearsure.engines.embedded.base import FaissRows, ReadersAndWriter
from nearsure.index.rows import FEW_RECENT, RowIds

APPROXIMATE = ("hnsw", "ivf")
N = 1500


def made_points(n: int = N) -> AnyArray:
    random = np.random.default_rng(3)
    centres = random.normal(size=(30, 8))
    vectors = centres[np.arange(n) % 30] + 0.2 * random.normal(size=(n, 8))
    return vectors.astype(np.float32)


def made_engine(index: str, n: int = N) -> FaissEngine:
    settings = IndexSettings(hnsw_ef_search=32, ivf_probes=8)
    return FaissEngine.from_points(
        made_points(n), labels=np.arange(n) % 30, index=index, settings=settings
    )


def same(one: Found, other: Found) -> bool:
    return bool(
        (one.ids == other.ids).all()
        and (one.sq_distances == other.sq_distances).all()
        and np.array_equal(np.asarray(one.labels), np.asarray(other.labels))
    )


@pytest.mark.parametrize("index", APPROXIMATE)
def test_a_class_that_left_does_not_hide_the_others(index: str) -> None:
    engine, points = made_engine(index), made_points()
    gone = np.arange(0, N, 30)  # one whole cluster of 50
    engine.remove(gone)
    left = np.setdiff1d(np.arange(N), gone)
    found = engine.search(points[gone], 40)
    assert (found.counts == 40).all()
    assert np.isin(found.ids, left).all()
    true = ((points[gone, None].astype(float) - points[left].astype(float)) ** 2).sum(axis=2)
    kth = np.sort(true, axis=1)[:, 39:40]
    assert (found.sq_distances <= kth * (1 + 1e-6)).mean() > 0.9


@pytest.mark.parametrize("index", APPROXIMATE)
@pytest.mark.parametrize("n_gone", [200, 299, 301, 1490, N])
def test_however_many_leave(index: str, n_gone: int) -> None:
    engine, points = made_engine(index), made_points()
    order = np.random.default_rng(n_gone).permutation(N)
    engine.remove(order[:n_gone])
    left = np.sort(order[n_gone:])
    assert engine.size() == len(left)
    found = engine.search(points[:50], 20)
    assert (found.counts == min(20, len(left))).all()
    assert np.isin(found.ids[found.ids >= 0], left).all()
    scanned = [portion.ids for portion in engine.scan()]
    np.testing.assert_array_equal(np.concatenate([np.empty(0, np.int64), *scanned]), left)
    if len(left):
        own = engine.search(points[left], 1)
        assert (own.ids[:, 0] == left).mean() > 0.99
        assert own.labels is not None
        assert (own.labels[:, 0] == own.ids[:, 0] % 30).all()


@pytest.mark.parametrize("index", APPROXIMATE)
def test_nothing_is_left_of_an_addition_that_fails(
    index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, more = made_engine(index), made_points(2 * N)[N:] + np.float32(0.01)
    queries = np.concatenate([made_points()[:50], more[:50]])
    before = engine.search(queries, 10)
    rows: FaissRows = engine._storage._rows  # type: ignore[union-attr]

    class Failing:
        """An index that is interrupted when half of the points are in."""

        def __getattr__(self, name: str) -> object:
            return getattr(whole, name)

        def __setattr__(self, name: str, value: object) -> None:
            setattr(whole, name, value)

        def add(self, vectors: AnyArray) -> None:
            whole.add(vectors[: len(vectors) // 2])
            raise KeyboardInterrupt

    whole = rows.index
    monkeypatch.setattr(rows, "index", Failing())
    with pytest.raises(KeyboardInterrupt):
        engine.add(more, np.arange(N, 2 * N), np.zeros(N, np.int64))
    monkeypatch.setattr(rows, "index", whole)
    assert engine.size() == N
    found = engine.search(queries, 10)
    assert found.ids.max() < N
    if index == "ivf":  # a graph is walked on other ways now
        assert same(found, before)
    engine.add(more, np.arange(N, 2 * N), np.zeros(N, np.int64))
    assert engine.size() == 2 * N
    assert (engine.search(more, 1).ids[:, 0] == np.arange(N, 2 * N)).mean() > 0.99
    restored = FaissEngine.from_state(*engine.to_state())
    assert same(restored.search(queries, 10), engine.search(queries, 10))


@pytest.mark.parametrize("index", APPROXIMATE)
def test_an_index_made_anew_is_whole_or_not_there(
    index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, queries = made_engine(index), made_points()[:50]
    before = engine.search(queries, 10)

    def interrupted(*_: object) -> FaissRows:
        # Others read while a new index is made.
        with ThreadPoolExecutor(1) as pool:
            assert same(pool.submit(engine.search, queries, 10).result(timeout=10), before)
        raise KeyboardInterrupt

    monkeypatch.setattr(approximate, "load_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.remove(np.arange(N // 2))
    assert engine.size() == N
    assert same(engine.search(queries, 10), before)
    monkeypatch.setattr(approximate, "load_rows", load_rows)
    engine.remove(np.arange(N // 2))
    assert engine.search(queries, 10).ids.min() >= N // 2


def test_progress_is_told_and_may_stop_a_load() -> None:
    told: list[int] = []
    FaissEngine.from_points(made_points(), labels=np.arange(N), index="hnsw", progress=told.append)
    assert told == [N]

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FaissEngine.from_points(made_points(), labels=np.arange(N), index="ivf", progress=stop)


def test_a_writer_waits_for_readers_and_readers_for_the_writer() -> None:
    lock, events = ReadersAndWriter(), list[str]()
    reading, claimed, finished = Event(), Event(), Event()

    def read_long() -> None:
        with lock.reading():
            reading.set()
            claimed.wait(10)
            events.append("first reader done")

    def write() -> None:
        reading.wait(10)
        with lock.changing:
            with lock.alone():
                events.append("written")
            finished.set()

    def read_late() -> None:
        while not lock._is_claimed:
            reading.wait(0.001)
        claimed.set()
        with lock.reading():
            events.append("late reader")

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(job) for job in (read_long, write, read_late)]
        for job in jobs:
            job.result(timeout=20)
    assert events == ["first reader done", "written", "late reader"]
    assert finished.is_set()


@pytest.mark.parametrize("start", [np.arange(5), np.array([9, 3, 5, 1, 7]), np.arange(5) * 10])
def test_rows_of_ids_as_a_dictionary_has_them(start: AnyArray) -> None:
    ids, expected = RowIds(start), {own: row for row, own in enumerate(start.tolist())}
    random, n_rows = np.random.default_rng(0), 5
    for n_more in (1, 3, FEW_RECENT, 2, 5000, 1):
        more = random.choice(20_000, n_more, replace=False) - 5000
        ids.append(more)
        expected |= {own: n_rows + place for place, own in enumerate(more.tolist())}
        n_rows += n_more
        asked = np.append(random.integers(-6000, 16_000, 500), start)
        assert ids.last_rows(asked).tolist() == [expected.get(own, -1) for own in asked.tolist()]
    assert len(ids) == len(ids.values) == n_rows


def test_ids_that_are_rows_take_no_memory() -> None:
    ids = RowIds(np.arange(1000))
    ids.append(np.arange(1000, 1500))
    assert ids.are_rows
    assert ids.last_rows(np.array([1499, 1500, -1])).tolist() == [1499, -1, -1]
    ids.append(np.array([5]))
    assert not ids.are_rows
    assert ids.last_rows(np.array([5, 6])).tolist() == [1500, 6]
