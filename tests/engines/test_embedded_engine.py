"""FaissEngine: its contract, its answers, its changes."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
from contract import EngineContract

from nearsure.arrays import AnyArray, FloatArray
from nearsure.engines.contract import Engine, Found
from nearsure.engines.embedded import FaissEngine, IndexSettings, approximate, chosen_index, hnsw
from nearsure.engines.embedded.approximate import load_rows
from nearsure.engines.embedded.base import FaissRows, ReadersAndWriter
from nearsure.engines.embedded.exact import LARGEST_EXACT
from nearsure.engines.embedded.hnsw import Copies
from nearsure.errors import InvalidInputError
from nearsure.index.rows import FEW_RECENT, RowIds


class TestExact(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "exact")

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, FaissEngine)
        engine.close()
        return FaissEngine.from_state(*engine.to_state())

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return FaissEngine(dimension, "exact", metric="cosine")


class TestHnsw(TestExact):
    @pytest.fixture(autouse=True)
    def _a_graph_is_searched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # So few points would all be looked at otherwise.
        monkeypatch.setattr(hnsw, "SPARE_CANDIDATES", 8)

    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "hnsw", settings=IndexSettings(hnsw_ef_search=32))

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return FaissEngine(dimension, "hnsw", settings=IndexSettings(hnsw_ef_search=33))


class TestIvf(TestExact):
    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "ivf", settings=IndexSettings(ivf_probes=5))

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return FaissEngine(dimension, "ivf", settings=IndexSettings(ivf_probes=6))


class TestCosine(TestExact):
    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "hnsw", metric="cosine")


APPROXIMATE = ("hnsw", "ivf")


@pytest.fixture(scope="module")
def cloud() -> AnyArray:
    """4,000 vectors in 80 clusters."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(80, 16))
    vectors = centres[np.arange(4000) % 80] + 0.3 * random.normal(size=(4000, 16))
    made: AnyArray = vectors.astype(np.float32)
    return made


def naive(queries: AnyArray, vectors: AnyArray) -> FloatArray:
    """Squared distances of all pairs, one query at a time."""
    points = vectors.astype(np.float64)
    return np.array([((points - query.astype(np.float64)) ** 2).sum(axis=1) for query in queries])


def recall(engine: FaissEngine, queries: AnyArray, vectors: AnyArray, k: int) -> float:
    """Share of what was found that is as near as the true k-th, every distance checked."""
    found, true = engine.search(queries, k), naive(queries, vectors)
    assert (found.counts == k).all()
    assert all(len(set(row)) == k for row in found.ids.tolist())
    own = np.take_along_axis(true, found.ids, axis=1)
    np.testing.assert_allclose(found.sq_distances, own, rtol=1e-6, atol=1e-12)
    kth = np.sort(true, axis=1)[:, k - 1 : k]
    return float((own <= kth * (1 + 1e-6)).mean())


def engine_of(vectors: AnyArray, index: str, **settings: int) -> FaissEngine:
    return FaissEngine.from_points(
        vectors, labels=np.arange(len(vectors)), index=index, settings=IndexSettings(**settings)
    )


@pytest.mark.parametrize("index", APPROXIMATE)
@pytest.mark.parametrize("k", [1, 50, 300])
def test_nearly_all_neighbours_are_found(cloud: AnyArray, index: str, k: int) -> None:
    assert recall(engine_of(cloud, index), cloud[:60] + np.float32(0.1), cloud, k) > 0.97


@pytest.mark.parametrize("index", APPROXIMATE)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_far_from_the_origin(cloud: AnyArray, index: str, precision: type) -> None:
    vectors: AnyArray = (cloud[:1000].astype(np.float64) + 1000.0).astype(precision)
    queries = cloud[:30].astype(np.float64) + 1000.1
    assert recall(engine_of(vectors, index), queries, vectors, 20) > 0.97


@pytest.mark.parametrize("index", APPROXIMATE)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_single_precision_comes_out_as_it_went_in(
    cloud: AnyArray, index: str, offset: float
) -> None:
    vectors = cloud[:500] + np.float32(offset)
    fetched = engine_of(vectors, index).fetch(np.arange(500)).vectors
    assert fetched is not None
    np.testing.assert_array_equal(fetched, vectors)
    assert fetched.dtype == (np.float32 if offset == 0 else np.float64)


@pytest.mark.parametrize("index", APPROXIMATE)
@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_vectors_of_any_size(cloud: AnyArray, index: str, size: float) -> None:
    vectors = cloud[:500] * size
    engine = engine_of(vectors, index)
    found, true = engine.search(vectors[:20] * 1.1, 10), naive(vectors[:20] * 1.1, vectors)
    own = np.take_along_axis(true, found.ids, axis=1)
    np.testing.assert_allclose(found.sq_distances, own, rtol=3e-6)


@pytest.mark.parametrize("index", APPROXIMATE)
def test_what_single_precision_cannot_hold_is_refused(cloud: AnyArray, index: str) -> None:
    engine = engine_of(cloud[:100], index)
    huge = np.full((2, 16), 1e30)
    with pytest.raises(InvalidInputError, match="single precision"):
        engine.add(huge, np.array([200, 201]), np.array([0, 0]))
    with pytest.raises(InvalidInputError, match="single precision"):
        engine.search(huge, 3)
    assert engine.size() == 100


@pytest.mark.parametrize("index", APPROXIMATE)
def test_points_added_in_portions_are_all_found(cloud: AnyArray, index: str) -> None:
    engine = FaissEngine(16, index)
    ends = [1, 2, 5, 40, 300, 900, 2000, 4000]
    for first, last in zip([0, *ends[:-1]], ends, strict=True):
        rows = np.arange(first, last)
        engine.add(cloud[rows], rows, rows)
    assert recall(engine, cloud[:200], cloud, 20) > 0.97
    assert (engine.search(cloud, 1).ids[:, 0] == np.arange(4000)).mean() > 0.995


def test_cells_grow_with_the_points(cloud: AnyArray) -> None:
    engine = engine_of(cloud[:1], "ivf", ivf_probes=1)
    engine.add(cloud[1:], np.arange(1, 4000), np.arange(1, 4000))
    # One cell alone would be all points, and recall 1.
    assert 0.2 < recall(engine, cloud[:50], cloud, 20) < 1
    assert (engine.search(cloud, 1).ids[:, 0] == np.arange(4000)).mean() > 0.99


def test_cells_too_small_for_k_are_not_all_that_is_opened(cloud: AnyArray) -> None:
    engine = engine_of(cloud, "ivf", ivf_probes=1)
    assert recall(engine, cloud[:20], cloud, 3000) > 0.99


@pytest.mark.parametrize("n_copies", [3, 400])
def test_copies_do_not_hide_the_others(cloud: AnyArray, n_copies: int) -> None:
    n_kinds = 1200 // n_copies
    vectors = np.concatenate([np.repeat(cloud[:n_kinds], n_copies - 1, axis=0), cloud])
    vectors = vectors[np.random.default_rng(1).permutation(len(vectors))]
    engine = engine_of(vectors, "hnsw")
    assert recall(engine, cloud[500:700] + np.float32(0.2), vectors, 50) > 0.97
    found = engine.search(cloud[:3], n_copies)
    assert not found.sq_distances.any()
    np.testing.assert_array_equal(vectors[found.ids], np.repeat(cloud[:3, None], n_copies, axis=1))


def test_no_more_copies_are_looked_at_than_are_wanted() -> None:
    looked_at = []

    class Mask(np.ndarray[tuple[int], np.dtype[np.bool_]]):
        def __getitem__(self, row: int) -> bool:  # type: ignore[override]
            looked_at.append(row)
            return bool(super().__getitem__(row))

    is_alive = np.ones(5000, np.bool_).view(Mask)
    is_alive[0] = False
    copies = Copies(np.zeros(5000, np.int64))
    _, rows = copies.expanded(np.zeros((3, 1)), np.zeros((3, 1), np.int64), 4, is_alive)
    np.testing.assert_array_equal(rows, [[1, 2, 3, 4]] * 3)
    assert len(looked_at) == 3 * 5  # the dead one and four others, for each query


def test_copies_come_and_go(cloud: AnyArray) -> None:
    engine = engine_of(cloud[:200], "hnsw")
    engine.add(np.repeat(cloud[:1], 5, axis=0), np.array([905, 901, 903, 902, 904]), np.arange(5))
    assert engine.search(cloud[:1], 6).ids[0].tolist() == [0, 901, 902, 903, 904, 905]
    assert engine.search(cloud[:1], 6).labels is not None
    engine.remove(np.array([0, 903]))
    found = engine.search(cloud[:1], 5)
    assert found.ids[0, :4].tolist() == [901, 902, 904, 905]
    assert found.labels is not None
    assert found.labels[0, :4].tolist() == [1, 3, 4, 0]
    assert found.sq_distances[0, 4] > 0
    engine.remove(np.array([901, 902, 904, 905]))
    assert engine.search(cloud[:1], 1).sq_distances[0, 0] > 0
    engine.add(cloud[:1], np.array([0]), np.array([77]))
    assert engine.search(cloud[:1], 1).ids[0, 0] == 0
    np.testing.assert_array_equal(engine.fetch(np.array([0])).vectors, cloud[:1])


@pytest.mark.parametrize("index", ["exact", "hnsw", "ivf"])
def test_the_callers_arrays_stay_the_callers(cloud: AnyArray, index: str) -> None:
    vectors, ids, labels = cloud[:100].copy(), np.arange(100) + 7, np.arange(100)
    engine = FaissEngine.from_points(vectors, ids=ids, labels=labels, index=index)
    vectors[:], ids[:], labels[:] = 0, 0, 0
    found = engine.search(cloud[:100], 1)
    assert found.labels is not None
    np.testing.assert_array_equal(found.ids[:, 0], np.arange(100) + 7)
    np.testing.assert_array_equal(found.labels[:, 0], np.arange(100))
    assert not found.sq_distances.any()


def test_auto_chooses_and_says_so(cloud: AnyArray, caplog: pytest.LogCaptureFixture) -> None:
    assert chosen_index("auto", LARGEST_EXACT) == "exact"
    assert chosen_index("auto", LARGEST_EXACT + 1) == "hnsw"
    engine = FaissEngine(16)
    assert engine.index_type == "auto"
    assert not engine.capabilities.exact
    with caplog.at_level("INFO", "nearsure.engines"):
        engine.add(cloud[:10], np.arange(10), np.arange(10))
    assert engine.index_type == "exact"
    assert engine.capabilities.exact
    assert [record.getMessage() for record in caplog.records] == [
        "index 'exact' was chosen for 10 points"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dimension": 0}, "dimension"),
        ({"dimension": 3, "index": "lsh"}, "index must be one of"),
        ({"dimension": 3, "metric": "l1"}, "metric"),
    ],
)
def test_arguments_that_mean_nothing(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        FaissEngine(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["hnsw_links", "ivf_probes", "ivf_cells", "seed"])
def test_settings_that_mean_nothing(setting: str) -> None:
    with pytest.raises(InvalidInputError, match=setting):
        IndexSettings(**{setting: -1})


def test_an_array_of_one_dimension_is_no_gallery() -> None:
    with pytest.raises(InvalidInputError, match="shape"):
        FaissEngine.from_points(np.zeros(3), labels=[0, 0, 0])


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
