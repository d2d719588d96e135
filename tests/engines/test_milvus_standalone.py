"""A standalone server, where one is installed: the contract, and what happens when it dies."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import numpy as np
import pytest
from contract import EngineContract
from contract_base import expected_scan, scanned
from contract_names import NamesTests
from contract_points import DIMENSION, Points, clusters, points_for
from contract_searching import SearchingTests
from milvus_contract import ReusedCollections
from milvus_server import StandaloneServer, standalone_server

from nearsure.engines.milvus import MilvusEngine
from nearsure.errors import EngineAccessError, EngineUnavailableError, PartialGalleryError


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneServer]:
    with standalone_server(tmp_path_factory.mktemp("milvus") / "server") as server:
        yield server


class StandaloneEngines(ReusedCollections):
    @pytest.fixture(autouse=True)
    def _address(self, milvus: StandaloneServer) -> None:
        self.address = milvus.uri


class TestFlat(StandaloneEngines, EngineContract):
    pass


class TestTextInGraph(StandaloneEngines, NamesTests):
    building = MappingProxyType(
        {"ids": "text", "labels": "text", "metric": "cosine", "index": "hnsw"}
    )


class TestListsWithoutLabels(StandaloneEngines, SearchingTests):
    building = MappingProxyType({"labels": None, "index": "ivf", "nlist": 4})
    searching = MappingProxyType({"nprobe": 4, "refine": False})
    relative_tolerance = 3e-5


class TestFaults(StandaloneEngines):
    @pytest.fixture
    def gallery(self, engine: MilvusEngine) -> MilvusEngine:
        return engine

    def test_a_wrong_token(self, gallery: MilvusEngine) -> None:
        del gallery
        for token in ("root:hunter2", "hunter2", None):
            with pytest.raises(EngineAccessError) as raised:
                MilvusEngine(self.address, token=token)
            assert "hunter2" not in str(raised.value)
            assert raised.value.__context__ is None

    def test_scanned_over_several_segments(
        self, gallery: MilvusEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was written to disk is read by other code than what came after."""
        monkeypatch.setattr("nearsure.engines.milvus.reading.LARGEST_PORTION", 100)
        first, then = points_for(gallery, 300), points_for(gallery, 300, seed=1, first=300)
        gallery.add(first.vectors, first.ids, first.labels)
        gallery._connection.ask("flush", gallery._collection.name)
        gallery.add(then.vectors, then.ids, then.labels)
        gallery.remove(first.ids[:100])
        kept = first.take(slice(100, None))
        assert kept.labels is not None
        gallery.relabel(kept.ids[:50], kept.labels[:50])
        left = kept.and_also(then)
        assert scanned(gallery) == expected_scan(left)
        assert gallery.size() == 500
        self.check(gallery, left, clusters(20, seed=1)[0], 10)

    def test_a_load_that_is_undone(
        self, gallery: MilvusEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nearsure.engines.milvus.writing.ATOMIC_BYTES", 20_000)
        points = points_for(gallery, 500)

        def fail(n_added: int) -> None:
            raise KeyboardInterrupt(n_added)

        with pytest.raises(KeyboardInterrupt):
            gallery.add(points.vectors, points.ids, points.labels, progress=fail)
        with pytest.raises(PartialGalleryError):
            gallery.size()
        gallery.undo_load()
        assert gallery.size() == 0

    def test_killed_during_load_and_scoring(
        self, gallery: MilvusEngine, milvus: StandaloneServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nearsure.engines.milvus.writing.ATOMIC_BYTES", 20_000)
        bystander = self.new_engine(DIMENSION)
        few, points = points_for(bystander, 50, seed=1), points_for(gallery, 1000)
        bystander.add(few.vectors, few.ids, few.labels)

        def score() -> None:
            while True:
                self.check(bystander, few, few.vectors, 3)

        def kill_in_the_middle(n_added: int) -> None:
            if n_added > 500:
                milvus.kill()

        with ThreadPoolExecutor() as pool:
            scoring = pool.submit(score)
            with pytest.raises(EngineUnavailableError):
                gallery.add(points.vectors, points.ids, points.labels, progress=kill_in_the_middle)
            with pytest.raises(EngineUnavailableError):
                scoring.result()
        milvus.start()
        self.check_held(bystander, few)
        for use in _uses(gallery, points):
            with pytest.raises(PartialGalleryError, match="add"):
                use()
        gallery.add(points.vectors, points.ids, points.labels)
        assert gallery.size() == 1000
        np.testing.assert_array_equal(gallery.fetch(points.ids).vectors, points.vectors)
        self.check(gallery, points, few.vectors, 10)
        self.discard(bystander)


def _uses(gallery: MilvusEngine, points: Points) -> list[Callable[[], object]]:
    return [
        gallery.size,
        lambda: gallery.search(points.vectors[:1], 1),
        lambda: gallery.fetch(points.ids[:1]),
        lambda: next(gallery.scan()),
        lambda: gallery.remove(points.ids[:1]),
    ]
