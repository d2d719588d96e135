"""The contract on tables of LanceDB."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from contract import ClassifierContract, EngineContract
from contract_base import N_POINTS, EngineTests
from contract_lifetime import LifetimeTests
from contract_points import DIMENSION, Points, points_for
from contract_searching import SearchingTests

from nearsure.engines.contract import Effort, Engine
from nearsure.engines.lance import URI_VARIABLE, LanceEngine
from nearsure.errors import (
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
)

NOTHING: Mapping[str, Any] = MappingProxyType({})


class LanceEngines(EngineTests):
    building = NOTHING
    searching = NOTHING

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.address = str(tmp_path)
        self.n_tables = 0

    def new_engine(self, dimension: int) -> Engine:
        self.n_tables += 1
        name = f"gallery_{self.n_tables}"
        return LanceEngine.create(
            dimension, self.address, table=name, **self.building, **self.searching
        )

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return LanceEngine(self.address, table="gallery_1", **self.searching)


class TestFlat(LanceEngines, EngineContract):
    pass


class TestTextUnderCosine(LanceEngines, EngineContract):
    building = MappingProxyType({"ids": "text", "labels": "text", "metric": "cosine"})


class TestClassifier(LanceEngines, ClassifierContract):
    building = MappingProxyType({"labels": "text"})
    n_histories = 4


class TestIndex(LanceEngines):
    """What is different with an index; points lie in it when they are searched."""

    searching = MappingProxyType({"nprobe": 3, "ef": 64})
    index: Mapping[str, Any] = MappingProxyType({"index": "ivf", "nlist": 8})
    test_neighbours = SearchingTests.test_neighbours_are_those_of_naive_search
    test_many_queries = SearchingTests.test_many_queries_are_divided
    test_effort = SearchingTests.test_more_effort_finds_no_less
    test_a_restart = LifetimeTests.test_all_is_there_after_a_restart

    @pytest.fixture
    def points(self, engine: Engine) -> Points:
        assert isinstance(engine, LanceEngine)
        points = points_for(engine, N_POINTS)
        engine.add(points.vectors, points.ids, points.labels)
        engine.create_index(**self.index)
        return points

    def test_it_says_so(self, engine: Engine, points: Points) -> None:
        assert not engine.capabilities.exact
        assert engine.fingerprint()["index"] in {"IVF_FLAT", "IVF_HNSW_FLAT"}
        exact = LanceEngine(self.address, table="gallery_1", exact=True)
        assert exact.fingerprint() != engine.fingerprint()
        assert self.check(exact, points, points.vectors[:20], 10) == 1

    def test_lists_with_few_points_are_not_all(self, engine: Engine, points: Points) -> None:
        k = len(points) - 5
        assert (engine.search(points.vectors[:3], k).counts == k).all()


class TestGraph(TestIndex):
    index = MappingProxyType({"index": "hnsw"})


class TestGraphUnderCosine(TestIndex):
    building = MappingProxyType({"ids": "text", "labels": "text", "metric": "cosine"})
    index = MappingProxyType({"index": "hnsw"})


@pytest.mark.parametrize(("index", "name"), [("ivf", "nprobe"), ("hnsw", "ef")])
def test_an_effort_beyond_the_usual_limit_is_the_limit(
    tmp_path: Path, index: Literal["ivf", "hnsw"], name: str
) -> None:
    def with_effort(value: int) -> LanceEngine:
        uri = str(tmp_path)
        return LanceEngine(uri, nprobe=value) if name == "nprobe" else LanceEngine(uri, ef=value)

    engine = LanceEngine.create(DIMENSION, str(tmp_path))
    points = points_for(engine, 300)
    engine.add(points.vectors, points.ids, points.labels)
    assert engine.effort is None
    engine.create_index(index, nlist=4)
    for value, largest in ((7, 2**16), (2**16 + 1, 2**16 + 1)):
        opened = with_effort(value)
        assert opened.effort == Effort(name, value, largest)
        # As many candidates as are asked for, however little the effort; and all of its lists.
        for effort in (1, largest):
            found = opened.search_with_effort(points.vectors[:3], 290, effort)
            assert found.counts.tolist() == [290] * 3
    with pytest.raises(InvalidInputError, match=f"{name} must be at least 1"):
        with_effort(0)


def test_its_own_distance_is_squared(tmp_path: Path) -> None:
    engine = LanceEngine.create(2, str(tmp_path))
    engine.add(np.array([[3.0, 4.0]]), np.array([7]), np.array([0]))
    # The interface of tables does not say that a search for vectors has a distance.
    search: Any = engine._table.search([0.0, 0.0], "embedding")
    hit = search.distance_type("l2").to_list()[0]
    assert hit["_distance"] == 25
    assert engine.search(np.zeros((1, 2)), 1).sq_distances[0, 0] == 25


def test_a_table_of_somebody_else(tmp_path: Path) -> None:
    """Other columns stay, and NULL is no label."""
    rows = pa.table(
        {
            "sku": ["a", "b"],
            "z": pa.FixedSizeListArray.from_arrays(pa.array([0, 1, 2, 3], pa.float32()), 2),
            "kind": [1, None],
            "price": [1.5, 2.5],
        }
    )
    table = lancedb.connect(tmp_path).create_table("products", rows)
    names: dict[str, Any] = {"id_field": "sku", "vector_field": "z", "label_field": "kind"}
    engine = LanceEngine(str(tmp_path), table="products", **names)
    with pytest.raises(GalleryMismatchError, match="NULL"):
        engine.search(np.zeros((1, 2)), 2)
    engine.relabel(np.array(["a", "b"]), np.array([5, 6]))
    assert engine.search(np.zeros((1, 2)), 2).labels.tolist() == [[5, 6]]  # type: ignore[union-attr]
    engine.add(np.array([[9.0, 9.0]]), np.array(["c"]), np.array([7]))
    table.checkout_latest()  # type: ignore[no-untyped-call]  # LanceDB does not annotate it
    prices = {row["sku"]: row["price"] for row in table.to_arrow().to_pylist()}
    assert prices == {"a": 1.5, "b": 2.5, "c": None}
    with pytest.raises(GalleryMismatchError, match="id_field"):
        LanceEngine(str(tmp_path), table="products")


def test_what_another_process_writes_is_seen(tmp_path: Path) -> None:
    one = LanceEngine.create(2, str(tmp_path))
    other = LanceEngine(str(tmp_path))
    one.add(np.eye(2), np.arange(2), np.arange(2))
    assert other.size() == 2
    assert other.search(np.eye(2), 1).ids.tolist() == [[0], [1]]


def test_points_of_many_expressions(tmp_path: Path) -> None:
    engine = LanceEngine.create(DIMENSION, str(tmp_path), ids="text")
    points = points_for(engine, 2500)
    engine.add(points.vectors, points.ids, points.labels)
    assert engine.fetch(points.ids).ids.tolist() == points.ids.tolist()
    engine.remove(points.ids[:2400])
    assert engine.size() == 100


def test_galleries_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    with pytest.raises(InvalidInputError, match=URI_VARIABLE):
        LanceEngine()
    with pytest.raises(GalleryNotFoundError, match="create"):
        LanceEngine(str(tmp_path))
    engine = LanceEngine.create(2, str(tmp_path))
    with pytest.raises(InvalidInputError, match="already"):
        LanceEngine.create(2, str(tmp_path))
    (tmp_path / "file").touch()
    for place, name in ((tmp_path / "file", "gallery"), (tmp_path, "no/such name")):
        with pytest.raises(EngineError, match="LanceDB"):
            LanceEngine.create(2, str(place), table=name)
    with pytest.raises(GalleryMismatchError, match="euclidean"):
        LanceEngine(str(tmp_path), metric="cosine")
    lancedb.connect(tmp_path).drop_table("gallery")
    with pytest.raises((EngineUnavailableError, GalleryNotFoundError)):
        engine.search(np.eye(2), 1)
