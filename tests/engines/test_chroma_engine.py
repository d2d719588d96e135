"""The contract on Chroma's embedded engine."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings
from contract import ClassifierContract, EngineContract
from contract_base import EngineTests
from contract_points import DIMENSION, points_for

from nearsure.engines.chroma import PATH_VARIABLE, ChromaEngine
from nearsure.engines.contract import Engine
from nearsure.errors import (
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    PartialGalleryError,
)

NOTHING: Mapping[str, Any] = MappingProxyType({})


class ChromaEngines(EngineTests):
    building = NOTHING

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.address = str(tmp_path)
        self.n_collections = 0

    def new_engine(self, dimension: int) -> Engine:
        return self.create(dimension, self.building)

    def create(self, dimension: int, building: Mapping[str, Any]) -> Engine:
        self.n_collections += 1
        name = f"gallery_{self.n_collections}"
        return ChromaEngine.create(dimension, self.address, collection=name, **building)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, {**self.building, "ef": 129})

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return ChromaEngine(self.address, collection="gallery_1")


class TestGraph(ChromaEngines, EngineContract):
    pass


class TestTextUnderCosine(ChromaEngines, EngineContract):
    building = MappingProxyType({"ids": "text", "labels": "text", "metric": "cosine"})


class TestClassifier(ChromaEngines, ClassifierContract):
    building = MappingProxyType({"labels": "text"})
    n_histories = 4


def test_its_own_distance_is_squared(tmp_path: Path) -> None:
    engine = ChromaEngine.create(2, str(tmp_path))
    engine.add(np.array([[3.0, 4.0]]), np.array([7]), np.array([0]))
    found = engine._collection.query(query_embeddings=np.zeros((1, 2), np.float32), n_results=1)
    assert found["distances"] == [[25.0]]
    assert engine.search(np.zeros((1, 2)), 1).sq_distances[0, 0] == 25


def test_a_gallery_without_labels_is_opened_again(tmp_path: Path) -> None:
    with ChromaEngine.create(2, str(tmp_path), labels=None) as engine:
        engine.add(np.eye(2), np.array([7, 8]))
    with ChromaEngine(str(tmp_path)) as engine:
        assert not engine.capabilities.holds_labels
        assert engine.search(np.array([[0.0, 2.0]]), 1).ids.tolist() == [[8]]
        engine.add(np.array([[5.0, 5.0]]), np.array([9]))
        assert engine.fetch(np.array([9])).labels is None


def test_a_collection_of_somebody_else(tmp_path: Path) -> None:
    """Ids are texts, other metadata stay, and a missing label is an error."""
    quiet = Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(tmp_path), settings=quiet)
    products = client.create_collection("products", embedding_function=None)
    with pytest.raises(GalleryMismatchError, match="dimension"):
        ChromaEngine(client, collection="products")
    vectors: Any = [[0.0, 0.0], [1.0, 0.0]]
    products.add(["a", "b"], vectors, [{"sku": 1, "price": 5}, {"price": 6}])
    engine = ChromaEngine(client, collection="products", label_field="sku")
    assert (engine.capabilities.ids, engine.capabilities.labels) == ("text", "integer")
    with pytest.raises(GalleryMismatchError, match="NULL"):
        engine.search(np.zeros((1, 2)), 2)
    engine.relabel(np.array(["a", "b"]), np.array([3, 4]))
    assert products.get()["metadatas"] == [{"sku": 3, "price": 5}, {"sku": 4, "price": 6}]
    engine.close()
    assert products.count() == 2  # the client stays open


def test_a_load_of_several_requests_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ChromaEngine.create(DIMENSION, str(tmp_path))
    engine.portion = 10
    points = points_for(engine, 25)
    put, n_requests = engine.put, count()

    def fail_at_the_second(*arguments: Any) -> None:  # noqa: ANN401
        if next(n_requests) == 1:
            raise KeyboardInterrupt
        put(*arguments)

    monkeypatch.setattr(engine, "put", fail_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        engine.add(points.vectors, points.ids, points.labels)
    with pytest.raises(PartialGalleryError, match="remove"):
        engine.fetch(points.ids[:1])
    engine.remove(points.ids)
    assert engine.size() == 0
    engine.add(points.vectors, points.ids, points.labels)
    assert engine.size() == 25


def test_galleries_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    with pytest.raises(InvalidInputError, match=PATH_VARIABLE):
        ChromaEngine()
    with pytest.raises(GalleryNotFoundError, match="create"):
        ChromaEngine(str(tmp_path))
    ChromaEngine.create(2, str(tmp_path)).close()
    with pytest.raises(InvalidInputError, match="already"):
        ChromaEngine.create(2, str(tmp_path))
    with pytest.raises(InvalidInputError, match="3-512"):
        ChromaEngine.create(2, str(tmp_path), collection="g")
