"""The contract on Qdrant's local mode and, where NEARSURE_QDRANT_URL names one, on a server."""

import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from contract import ClassifierContract, EngineContract
from contract_base import EngineTests
from contract_points import DIMENSION, Points, points_for
from qdrant_client import QdrantClient, models

from nearsure.engines.contract import Effort, Engine
from nearsure.engines.hits import SPARE_CANDIDATES
from nearsure.engines.qdrant import URL_VARIABLE, QdrantEngine
from nearsure.errors import (
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    PartialGalleryError,
)

NOTHING: Mapping[str, Any] = MappingProxyType({})
SERVER = os.environ.get(URL_VARIABLE)
_numbers = count()


class LocalEngines(EngineTests):
    """Each gallery in a folder of its own, as local mode takes one client at a time."""

    takes_negative_ids = False
    building = NOTHING
    searching = NOTHING

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.address = str(tmp_path)
        self.place_of: dict[int, str] = {}

    def new_engine(self, dimension: int) -> Engine:
        folder = f"{self.address}/{next(_numbers)}"
        engine = QdrantEngine.create(dimension, folder, **self.building, **self.searching)
        self.place_of[id(engine)] = folder
        return engine

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return QdrantEngine(self.place_of[id(engine)], **self.searching)


class TestLocal(LocalEngines, EngineContract):
    pass


class TestNamedVectors(LocalEngines, EngineContract):
    building = MappingProxyType({"labels": "text"})
    searching = MappingProxyType({"vector_name": "embedding", "label_field": "sku"})


class TestTextUnderCosine(LocalEngines, EngineContract):
    building = MappingProxyType({"ids": "text", "labels": "text", "metric": "cosine"})

    def test_all_is_there_after_a_restart(self, engine: Engine, points: Points) -> None:
        """Local mode scales the given vectors anew, in single precision, when it is opened."""
        reopened = self.reopen(engine)
        assert reopened is not None
        assert reopened.fingerprint() == engine.fingerprint()
        assert reopened.capabilities == engine.capabilities
        self.check_held(reopened, points)
        reopened.close()


class TestClassifier(LocalEngines, ClassifierContract):
    building = MappingProxyType({"labels": "text"})
    n_histories = 4


class ServerEngines(EngineTests):
    """Collections of a server, which are deleted again."""

    takes_negative_ids = False
    address = SERVER
    building = NOTHING
    searching: Mapping[str, Any] = MappingProxyType({"exact": True})

    @pytest.fixture(autouse=True)
    def _server(self) -> None:
        if SERVER is None:
            pytest.skip(f"{URL_VARIABLE} names no server of Qdrant")
        self.place_of: dict[int, str] = {}

    def new_engine(self, dimension: int) -> Engine:
        return self.create(dimension, self.searching)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, {"exact": False, "ef": 64})

    def create(self, dimension: int, searching: Mapping[str, Any]) -> Engine:
        name = f"test {uuid4()}"
        engine = QdrantEngine.create(dimension, collection=name, **self.building, **searching)
        self.place_of[id(engine)] = name
        return engine

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return QdrantEngine(collection=self.place_of[id(engine)], **self.searching)

    def discard(self, engine: Engine) -> None:
        engine.close()
        with QdrantEngine(collection=self.place_of[id(engine)]) as opened:
            opened._client.delete_collection(opened._collection)


class TestServer(ServerEngines, EngineContract):
    pass


class TestServerGraph(ServerEngines, EngineContract):
    building = MappingProxyType({"ids": "text", "labels": "text", "metric": "cosine"})
    searching = MappingProxyType({"exact": False})


class TestServerClassifier(ServerEngines, ClassifierContract):
    building = MappingProxyType({"labels": "text"})
    n_histories = 4


def test_what_a_server_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough candidates for all neighbours, and no more vectors in a request than it takes."""
    engine = QdrantEngine.create(DIMENSION, ":memory:", ef=7)
    points = points_for(engine, 60)
    engine.add(points.vectors, points.ids, points.labels)
    assert engine.effort is None
    # As if it were no local mode, which compares every point.
    monkeypatch.setattr(engine, "_is_exact", False)
    monkeypatch.setattr(engine, "_sends_parameters", True)
    ask = engine._client.query_batch_points
    asked: list[list[int | None]] = []

    def note(collection: str, requests: list[models.QueryRequest]) -> Any:  # noqa: ANN401
        asked.append([request.params.hnsw_ef for request in requests if request.params])
        # Local mode warns of what it does not heed.
        return ask(collection, [one.model_copy(update={"params": None}) for one in requests])

    monkeypatch.setattr(engine._client, "query_batch_points", note)
    assert engine.effort == Effort("ef", 7, 2**16)
    engine.search(points.vectors[:2], 5)
    engine.search_with_effort(points.vectors[:2], 5, 2**16)
    assert asked == [[5 + SPARE_CANDIDATES] * 2, [2**16] * 2]
    asked.clear()
    monkeypatch.setattr(engine, "batch", 25)
    engine.search(points.vectors, 1)
    assert list(map(len, asked)) == [25, 25, 10]
    with pytest.raises(InvalidInputError, match="ef must be at least 1"):
        QdrantEngine.create(2, ":memory:", ef=0)


def test_requests_hold_as_many_numbers_as_a_server_takes() -> None:
    for dimension, portion, batch in ((128, 8192, 64), (2**14, 64, 1), (2**16, 16, 1)):
        with QdrantEngine.create(dimension, ":memory:") as engine:
            assert (engine.portion, engine.batch) == (portion, batch)


def test_its_own_distance_is_the_root() -> None:
    engine = QdrantEngine.create(2, ":memory:")
    engine.add(np.array([[3.0, 4.0]]), np.array([7]), np.array([0]))
    assert engine._client.query_points("gallery", [0.0, 0.0]).points[0].score == 5
    assert engine.search(np.zeros((1, 2)), 1).sq_distances[0, 0] == 25


def test_a_collection_of_somebody_else() -> None:
    """UUIDs are ids, other fields of the payload stay, and a missing label is an error."""
    client = QdrantClient(":memory:")
    euclid = models.VectorParams(size=2, distance=models.Distance.EUCLID)
    client.create_collection("products", vectors_config=euclid)
    names = sorted(str(uuid4()) for _ in range(3))
    payloads: list[dict[str, Any]] = [{"sku": "a", "price": 1}, {"sku": "b"}, {"price": 3}]
    vectors = [[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]
    client.upsert("products", models.Batch(ids=[*names], vectors=vectors, payloads=payloads))
    engine = QdrantEngine(client, collection="products", label_field="sku")
    assert (engine.capabilities.ids, engine.capabilities.labels) == ("text", "text")
    with pytest.raises(GalleryMismatchError, match="NULL"):
        engine.fetch(np.array(names))
    engine.relabel(np.array(names), np.array(["a", "c", "c"]))
    assert np.concatenate([part.ids for part in engine.scan()]).tolist() == names
    found = engine.search(np.zeros((1, 2)), 3)
    assert found.ids.tolist() == [names]
    assert found.labels is not None
    assert found.labels.tolist() == [["a", "c", "c"]]
    kept = [record.payload for record in client.retrieve("products", names)]
    assert kept == [{"sku": "a", "price": 1}, {"sku": "c"}, {"sku": "c", "price": 3}]
    engine.close()
    assert client.count("products").count == 3  # the client stays open


def test_a_load_of_several_requests_that_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = QdrantEngine.create(DIMENSION, ":memory:")
    engine.portion = 10
    points = points_for(engine, 25)
    upsert, n_requests = engine._client.upsert, count()

    def fail_at_the_second(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        if next(n_requests) == 1:
            raise RuntimeError("closed")
        return upsert(*arguments, **options)

    monkeypatch.setattr(engine._client, "upsert", fail_at_the_second)
    with pytest.raises(EngineUnavailableError):
        engine.add(points.vectors, points.ids, points.labels)
    for ask in (engine.size, lambda: engine.search(points.vectors, 1), lambda: list(engine.scan())):
        with pytest.raises(PartialGalleryError, match="Repeat add"):
            ask()
    with pytest.raises(PartialGalleryError):
        engine.remove(points.ids[:3])
    engine.add(points.vectors, points.ids, points.labels)
    assert engine.size() == 25


def test_a_negative_id_in_a_late_request_is_refused_before_the_first() -> None:
    engine = QdrantEngine.create(DIMENSION, ":memory:")
    engine.portion = 10
    points = points_for(engine, 25)
    wrong = points.ids.copy()
    wrong[-1] = -1
    with pytest.raises(InvalidInputError, match="0 or more"):
        engine.add(points.vectors, wrong, points.labels)
    assert engine.size() == 0
    engine.add(points.vectors, points.ids, points.labels)
    assert engine.size() == 25


# The client leaves its lock file open when it refuses a folder that another has open.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_galleries_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(InvalidInputError, match=URL_VARIABLE):
        QdrantEngine()
    with pytest.raises(GalleryNotFoundError, match="create"):
        QdrantEngine(str(tmp_path))
    with QdrantEngine.create(2, str(tmp_path)) as engine:
        with pytest.raises(EngineUnavailableError, match="one at a time"):
            QdrantEngine(str(tmp_path))
        with pytest.raises(InvalidInputError, match="already"):
            QdrantEngine.create(2, engine._client)
    dot = models.VectorParams(size=2, distance=models.Distance.DOT)
    client = QdrantClient(":memory:")
    client.create_collection("products", vectors_config=dot)
    with pytest.raises(GalleryMismatchError, match="Euclid or Cosine"):
        QdrantEngine(client, collection="products")
    with pytest.raises(EngineUnavailableError, match="reached"):
        QdrantEngine("http://127.0.0.1:9", timeout=2)
