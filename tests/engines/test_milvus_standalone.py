"""A standalone server, where one is installed: the contract, and what happens when it dies."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from unittest import mock

import numpy as np
import pytest
from contract_base import expected_scan, scanned
from contract_changing import ChangingTests
from contract_lifetime import LifetimeTests
from contract_names import NamesTests
from contract_points import DIMENSION, Points, clusters, points_for
from contract_searching import SearchingTests
from milvus_contract import ReusedCollections, bring_into_index, name_of
from milvus_server import StandaloneServer, standalone_server

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Found
from nearsure.engines.milvus import MilvusEngine
from nearsure.errors import EngineAccessError, EngineUnavailableError, PartialGalleryError

QUERIES = clusters(20, seed=1)[0]


@pytest.fixture(scope="module")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneServer]:
    with standalone_server(tmp_path_factory.mktemp("milvus") / "server") as server:
        yield server


class StandaloneEngines(ReusedCollections):
    @pytest.fixture(autouse=True)
    def _address(self, milvus: StandaloneServer) -> None:
        self.address = milvus.uri


class TestFlat(StandaloneEngines, ChangingTests):
    """Of the rest of the contract, what a server could do otherwise than a file."""

    test_fetched = LifetimeTests.test_fetched_in_the_order_asked
    test_scanned = LifetimeTests.test_scanned_in_order_and_whole
    test_a_restart = LifetimeTests.test_all_is_there_after_a_restart
    test_readers_and_writers = LifetimeTests.test_readers_and_writers_at_once
    test_shows_no_secret = LifetimeTests.test_shows_no_secret

    test_neighbours = SearchingTests.test_neighbours_are_those_of_naive_search
    test_k_beyond_the_points = SearchingTests.test_k_beyond_the_points_gives_them_all
    test_nothing = SearchingTests.test_nothing_is_found_in_nothing
    test_duplicates = SearchingTests.test_exact_duplicates_are_in_the_order_of_ids
    test_k_out_of_range = SearchingTests.test_k_out_of_range


class IndexedEngines(StandaloneEngines):
    """Enough points that a server indexes them, which takes 1024."""

    @pytest.fixture
    def indexed(self, engine: MilvusEngine) -> Points:
        points = points_for(engine, 2000)
        engine.add(points.vectors, points.ids, points.labels)
        bring_into_index(engine)
        described = engine._points.ask("describe_index", engine._layout.vector_field)
        # Rows that were deleted before count until they are cleared away.
        assert described["indexed_rows"] >= len(points)
        assert described["pending_index_rows"] == 0
        return points


class TestTextInGraph(IndexedEngines, NamesTests):
    building = MappingProxyType(
        {"ids": "text", "labels": "text", "metric": "cosine", "index": "hnsw"}
    )
    searching = MappingProxyType({"ef": 4})

    def test_in_the_index(
        self,
        engine: MilvusEngine,
        indexed: Points,
        record_property: Callable[[str, object], None],
    ) -> None:
        """Where an ef below the candidates is an error."""
        recall = self.check(engine, indexed, QUERIES, 60)
        record_property("recall at 60", recall)
        assert recall >= self.least_recall


class TestListsWithoutLabels(IndexedEngines):
    building = MappingProxyType({"labels": None, "index": "ivf", "nlist": 64})
    searching = MappingProxyType({"nprobe": 1, "refine": False})
    relative_tolerance = 3e-5

    def test_in_the_index(self, engine: MilvusEngine, indexed: Points) -> None:
        """Lists that are too short show that they were looked at."""
        assert engine._points._search(QUERIES, 200, engine._settings).counts.max() < 200
        assert (engine.search(QUERIES, 200).counts == 200).all()
        assert self.check(engine, indexed, QUERIES, 10) < 1
        thorough = self.open(name_of(engine), {"nprobe": 64, "refine": False})
        assert self.check(thorough, indexed, QUERIES, 10) == 1
        thorough.close()


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
        monkeypatch.setattr("nearsure.engines.milvus.points.LARGEST_PORTION", 100)
        first, then = points_for(gallery, 300), points_for(gallery, 300, seed=1, first=300)
        gallery.add(first.vectors, first.ids, first.labels)
        gallery.finish_index()
        gallery.add(then.vectors, then.ids, then.labels)
        gallery.remove(first.ids[:100])
        kept = first.take(slice(100, None))
        assert kept.labels is not None
        gallery.relabel(kept.ids[:50], kept.labels[:50])
        left = kept.and_also(then)
        assert scanned(gallery) == expected_scan(left)
        assert gallery.size() == 500
        self.check(gallery, left, QUERIES, 10)

    def test_a_load_that_is_taken_back(
        self, gallery: MilvusEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nearsure.engines.milvus.points.ATOMIC_BYTES", 20_000)
        points = points_for(gallery, 500)

        def fail(n_added: int) -> None:
            raise KeyboardInterrupt(n_added)

        with pytest.raises(KeyboardInterrupt):
            gallery.add(points.vectors, points.ids, points.labels, progress=fail)
        with pytest.raises(PartialGalleryError):
            gallery.size()
        gallery.remove(points.ids)
        assert gallery.size() == 0

    def test_killed_during_load_fit_and_scoring(
        self, gallery: MilvusEngine, milvus: StandaloneServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the middle of a load, inside a search of a fit, while another scores."""
        monkeypatch.setattr("nearsure.engines.milvus.points.ATOMIC_BYTES", 20_000)
        bystander = self.new_engine(DIMENSION)
        few, points = points_for(bystander, 200, seed=1), points_for(gallery, 1000)
        bystander.add(few.vectors, few.ids, few.labels)
        classifier = NEDClassifier(engine=bystander)
        killed, search = threading.Event(), bystander.search

        def search_and_kill(queries: AnyArray, k: int) -> Found:
            milvus.kill()
            killed.set()
            return search(queries, k)

        def fit() -> None:
            with mock.patch.object(bystander, "search", search_and_kill):
                classifier.fit_engine()

        def score() -> None:
            while True:
                search(few.vectors, 3)

        def kill_in_the_middle(n_added: int) -> None:
            if n_added > 500 and not fits:
                fits.append(pool.submit(fit))
                assert killed.wait(60)

        fits: list[Future[None]] = []
        with ThreadPoolExecutor() as pool:
            scoring = pool.submit(score)
            with pytest.raises(EngineUnavailableError):
                gallery.add(points.vectors, points.ids, points.labels, progress=kill_in_the_middle)
            for at_work in (scoring, *fits):
                with pytest.raises(EngineUnavailableError):
                    at_work.result()
        assert len(fits) == 1
        milvus.start()
        self.check_held(bystander, few)
        classifier.fit_engine()
        assert np.mean(classifier.predict(few.vectors) == few.labels) > 0.9
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


def test_a_server_that_says_nothing_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, started = tmp_path / "runner.py", tmp_path / "started"
    runner.write_text(
        f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    for name, value in {
        "ENVIRONMENT": Path(sys.prefix),
        "RUNNER": runner,
        "ANSWERING_SECONDS": 1,
        "STOPPING_SECONDS": 0.1,
    }.items():
        monkeypatch.setattr(f"milvus_server.{name}", value)
    with pytest.raises(TimeoutError):
        StandaloneServer(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
