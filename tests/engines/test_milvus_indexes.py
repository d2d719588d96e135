"""Metrics and index types: what they mean, and what an index alone would not find."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contract_points import clusters
from milvus_contract import bring_into_index
from milvus_requests import recorded
from pymilvus import MilvusClient

from nearsure.arrays import AnyArray
from nearsure.engines.milvus import MilvusEngine
from nearsure.engines.milvus.collection import IndexName, Kind, MetricName
from nearsure.errors import GalleryMismatchError, GalleryNotFoundError, InvalidInputError
from nearsure.index import unit_vectors

POINTS = clusters(200, seed=0)[0]
QUERIES = clusters(20, seed=1)[0]
IDS, LABELS = np.arange(200) * 3 - 100, np.arange(200) % 5


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "gallery.db")


@pytest.fixture
def client(path: str) -> Iterator[MilvusClient]:
    client = MilvusClient(path, dedicated=True)
    yield client
    client.close()


def sq_distances(queries: AnyArray, points: AnyArray) -> AnyArray:
    differences = queries[:, None].astype(np.float64) - points[None].astype(np.float64)
    nearest: AnyArray = np.sort((differences**2).sum(axis=2), axis=1)
    return nearest


@pytest.mark.parametrize(
    ("metric", "index", "refine"),
    [
        ("euclidean", "ivf", True),
        ("euclidean", "hnsw", False),
        ("cosine", "hnsw", True),
        ("cosine", "flat", False),
        ("inner_product", "flat", True),
        ("inner_product", "ivf", False),
    ],
)
def test_every_convention_is_a_squared_distance(
    path: str, metric: MetricName, index: IndexName, *, refine: bool
) -> None:
    points, queries = POINTS, QUERIES
    if metric == "inner_product":
        points = unit_vectors(points)
    engine = MilvusEngine.create(
        12, path, metric=metric, index=index, nlist=4, nprobe=4, refine=refine
    )
    engine.add(points, IDS, LABELS)
    bring_into_index(engine)
    found = engine.search(queries, 10)
    if metric != "euclidean":
        assert engine.metric == "cosine"
        points, queries = (unit_vectors(v.astype(np.float64)) for v in (points, queries))
    error = 1e-6 if refine else 1e-4
    np.testing.assert_allclose(
        found.sq_distances, sq_distances(queries, points)[:, :10], rtol=error, atol=1e-6
    )
    engine.close()


def test_inner_products_of_unit_vectors_alone(path: str, client: MilvusClient) -> None:
    engine = MilvusEngine.create(12, path, metric="inner_product")
    with pytest.raises(GalleryMismatchError, match="unit length"):
        engine.add(POINTS, IDS, LABELS)
    assert engine.size() == 0
    client.insert("gallery", [{"id": 1, "label": 2, "embedding": POINTS[0]}])
    with pytest.raises(GalleryMismatchError, match="unit length"):
        MilvusEngine(path)
    engine.close()


def test_more_neighbours_than_ef(path: str) -> None:
    engine = MilvusEngine.create(12, path, index="hnsw", ef=4)
    engine.add(POINTS, IDS, LABELS)
    bring_into_index(engine)
    with recorded(engine) as requests:
        assert (engine.search(QUERIES, 50).counts == 50).all()
    (options,) = [options for method, options in requests if method == "search"]
    assert options["search_params"]["params"]["ef"] == options["limit"] == 58
    assert engine.fingerprint()["ef"] == 4
    engine.close()


@pytest.mark.parametrize("kind", ["integer", "text"])
def test_lists_that_hold_fewer_than_k(path: str, kind: Kind) -> None:
    """What one list lacks is looked for in all; what it has is not looked for again."""
    ids = IDS if kind == "integer" else np.array([f"{'long ' * (i % 3)}name {i}" for i in IDS])
    with MilvusEngine.create(12, path, ids=kind, index="ivf", nlist=4, nprobe=1) as engine:
        engine.add(POINTS, ids, LABELS)
        bring_into_index(engine)
        assert engine._points._search(QUERIES, 60).counts.min() < 60
        with recorded(engine) as requests:
            found = engine.search(QUERIES, 60)
        assert (found.counts == 60).all()
        probed = [options["search_params"]["params"] for m, options in requests if m == "search"]
        assert probed == [{"nprobe": 1}, {"nprobe": 4}]
        short = engine._points._search(QUERIES, 60).counts < 60
        every = sq_distances(QUERIES, POINTS)[:, :60]
        np.testing.assert_allclose(found.sq_distances[short], every[short], rtol=1e-6)
        row_of = {own: row for row, own in enumerate(ids.tolist())}
        for i, named in enumerate(found.ids.tolist()):
            near = POINTS[[row_of[own] for own in named]]
            own = sq_distances(QUERIES[i : i + 1], near)[0]
            np.testing.assert_allclose(found.sq_distances[i], own, rtol=1e-6)
        with recorded(engine) as requests:
            engine.search(QUERIES, 1)
        assert [method for method, _ in requests].count("search") == 1


def test_more_lists_than_there_are(path: str) -> None:
    engine = MilvusEngine.create(12, path, index="ivf", nlist=8)
    assert engine.fingerprint()["nprobe"] == 8
    engine.close()
    with pytest.raises(InvalidInputError, match="at most 8"):
        MilvusEngine(path, nprobe=9)
    with pytest.raises(InvalidInputError, match="at most nlist, 8"):
        MilvusEngine.create(12, path, collection="other", index="ivf", nlist=8, nprobe=9)
    with pytest.raises(GalleryNotFoundError):
        MilvusEngine(path, collection="other")
