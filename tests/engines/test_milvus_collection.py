"""What Milvus does its own way: conventions, kinds of collections, limits, order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_points import clusters
from milvus_contract import bring_into_index
from milvus_requests import recorded
from pymilvus import DataType, MilvusClient

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Kind
from nearsure.engines.milvus import MilvusEngine
from nearsure.engines.milvus.client import TooLargeError
from nearsure.engines.milvus.collection import (
    IndexName,
    MetricName,
    ask_in_portions,
    portions,
)
from nearsure.engines.milvus.points import row_vectors
from nearsure.errors import (
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    LowRecallWarning,
)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "cosine"}, "type L2"),
        ({"index": "hnsw"}, "type FLAT"),
        ({"id_field": "key"}, "'key'"),
        ({"id_field": "label"}, "primary key"),
        ({"label_field": "name"}, r"id \(INT64\), label \(INT64\), embedding \(FLOAT_VECTOR\)"),
        ({"label_field": "embedding"}, "INT64 or VARCHAR"),
        ({"vector_field": "label"}, "FLOAT_VECTOR"),
    ],
)
def test_a_collection_that_is_not_what_was_asked_for(
    path: str, options: dict[str, Any], message: str
) -> None:
    MilvusEngine.create(12, path).close()
    with pytest.raises(GalleryMismatchError, match=message):
        MilvusEngine(path, **options)


def test_a_collection_without_an_index(path: str, client: MilvusClient) -> None:
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("label", DataType.INT64)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=12)
    client.create_collection("gallery", schema=schema)
    with pytest.raises(GalleryMismatchError, match="index"):
        MilvusEngine(path)


def test_fields_that_nearsure_does_not_know_survive_a_new_label(
    path: str, client: MilvusClient
) -> None:
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field("sku", DataType.VARCHAR, max_length=20, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=12)
    schema.add_field("price", DataType.DOUBLE)
    schema.add_field("kind", DataType.VARCHAR, max_length=20)
    indexes = client.prepare_index_params()
    indexes.add_index("vector", index_type="HNSW", metric_type="COSINE")
    client.create_collection("shop", schema=schema, index_params=indexes)
    row = {"sku": "a-1", "vector": POINTS[0].tolist(), "price": 2.5, "kind": "shoe", "more": 7}
    client.insert("shop", [row])
    engine = MilvusEngine(
        path, collection="shop", id_field="sku", label_field="kind", vector_field="vector"
    )
    assert (engine.metric, engine.dimension) == ("cosine", 12)
    assert not engine.capabilities.exact
    engine.relabel(np.array(["a-1"]), np.array(["hat"]))
    stored = client.get("shop", ids=["a-1"], output_fields=["*"])[0]
    assert (stored["price"], stored["kind"], stored["more"]) == (2.5, "hat", 7)
    assert engine.fetch(np.array(["a-1"])).labels.tolist() == ["hat"]  # type: ignore[union-attr]
    engine.close()


def test_consistency_is_said_with_each_read(path: str) -> None:
    engine = MilvusEngine.create(12, path, consistency="Bounded")
    engine.add(POINTS, IDS, LABELS)
    with recorded(engine) as requests:
        engine.search(QUERIES, 3)
        engine.fetch(IDS)
        list(engine.scan())
        engine.size()
    levels = [
        options.get("consistency_level") for method, options in requests if "has" not in method
    ]
    assert levels == ["Bounded", "Bounded", "Bounded", "Strong"]
    engine.close()


def test_batches_are_divided_by_their_answers(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MilvusEngine.create(12, path)
    engine.add(POINTS, IDS, LABELS)
    whole, fetched = engine.search(QUERIES, 10), engine.fetch(IDS)
    bytes_of_five = 5 * 18 * engine._layout.row_bytes
    monkeypatch.setattr(
        "nearsure.engines.milvus.collection.portions.__defaults__", (bytes_of_five,)
    )
    with recorded(engine) as requests:
        divided, fetched_again = engine.search(QUERIES, 10), engine.fetch(IDS)
    methods = [method for method, _ in requests]
    assert methods.count("search") == 4
    assert methods.count("query") == 3
    np.testing.assert_array_equal(divided.ids, whole.ids)
    np.testing.assert_array_equal(divided.sq_distances, whole.sq_distances)
    np.testing.assert_array_equal(fetched_again.vectors, fetched.vectors)
    engine.close()


def test_an_answer_that_is_too_large_is_asked_for_in_halves() -> None:
    asked = []

    def ask(part: slice) -> list[int]:
        asked.append(part)
        if part.stop - part.start > 3:
            raise TooLargeError("too large")
        return list(range(part.start, part.stop))

    answers = list(ask_in_portions(portions(20, bytes_each=1, most=10), ask))
    assert [number for _, answer in answers for number in answer] == list(range(20))
    assert len(asked) == 14
    with pytest.raises(TooLargeError):
        list(ask_in_portions([slice(0, 1)], lambda part: ask(slice(part.start, 9))))


@pytest.mark.parametrize(("kind", "portion"), [("integer", 64), ("text", 20), ("text", 1000)])
def test_a_scan_is_in_order_whatever_the_server_lists_first(
    path: str, monkeypatch: pytest.MonkeyPatch, kind: Kind, portion: int
) -> None:
    monkeypatch.setattr("nearsure.engines.milvus.points.LARGEST_PORTION", portion)
    engine = MilvusEngine.create(12, path, ids=kind)
    order = np.random.default_rng(0).permutation(200)
    ids = IDS if kind == "integer" else np.array([f"n° {i}" for i in IDS])
    engine.add(POINTS[order], ids[order], LABELS[order])
    scanned = list(engine.scan())
    assert all(len(part.ids) < portion for part in scanned)
    got = np.concatenate([part.ids for part in scanned])
    np.testing.assert_array_equal(got, np.sort(ids))
    labels = np.concatenate([part.labels for part in scanned if part.labels is not None])
    np.testing.assert_array_equal(labels, LABELS[np.argsort(ids)])
    engine.close()


def test_texts_and_numbers_that_do_not_fit(path: str) -> None:
    engine = MilvusEngine.create(12, path, ids="text", labels="text", text_length=6)
    good = np.array(["ÄÖÜ"])
    engine.add(POINTS[:1], good, good)
    for ids, labels in ((["ÄÖÜ."], ["a"]), (["b"], ["sevenhh"]), (["a\x00b"], ["a"])):
        with pytest.raises(InvalidInputError):
            engine.add(POINTS[:1], np.array(ids), np.array(labels))
    with pytest.raises(InvalidInputError, match="6 bytes"):
        engine.relabel(good, np.array(["sevenhh"]))
    with pytest.raises(InvalidInputError, match="single precision"):
        engine.add(np.full((1, 12), 1e300), np.array(["c"]), good)
    with pytest.raises(InvalidInputError, match="single precision"):
        engine.search(np.full((1, 12), 1e300), 1)
    assert engine.size() == 1
    engine.close()
    numbers = MilvusEngine.create(12, path, collection="numbers")
    smallest = np.array([np.iinfo(np.int64).min])
    with pytest.raises(InvalidInputError, match="at least -9223372036854775807"):
        numbers.add(POINTS[:1], smallest, LABELS[:1])
    numbers.add(POINTS[:1], smallest + 1, LABELS[:1])
    assert numbers.fetch(smallest + 1).ids.tolist() == [-(2**63) + 1]
    numbers.close()


def test_addresses_come_from_the_environment(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEARSURE_MILVUS_URI", raising=False)
    with pytest.raises(InvalidInputError, match="NEARSURE_MILVUS_URI"):
        MilvusEngine()
    monkeypatch.setenv("NEARSURE_MILVUS_URI", path)
    monkeypatch.setenv("NEARSURE_MILVUS_TOKEN", "ann:hidden")
    engine = MilvusEngine.create(12)
    assert engine._connection._address.token == "ann:hidden"  # noqa: S105
    engine.close()


def test_a_name_that_is_taken(path: str) -> None:
    MilvusEngine.create(12, path).close()
    with pytest.raises(InvalidInputError, match="'gallery'"):
        MilvusEngine.create(8, path)
    with pytest.raises(GalleryNotFoundError, match="create"):
        MilvusEngine(path, collection="other")


@pytest.mark.parametrize(
    "options",
    [
        {"metric": "manhattan"},
        {"index": "disk"},
        {"consistency": "strong"},
        {"ef": 0},
        {"nprobe": 0},
        {"timeout": 0},
    ],
)
def test_settings_that_do_not_exist(path: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        MilvusEngine(path, **options)


def test_vectors_are_read_as_they_travel(path: str) -> None:
    """Not as lists of Python floats; where they do not lie in the message, they are."""
    with MilvusEngine.create(12, path, ids="text") as engine:
        engine.add(POINTS, IDS.astype(str), LABELS)
        rows = engine._points._query('id > ""', ["id", "embedding"])
        vectors = row_vectors(rows, "embedding", 12)
        assert not any(rows._materialized_bitmap)
        order = [IDS.astype(str).tolist().index(row["id"]) for row in rows]
        np.testing.assert_array_equal(vectors, POINTS[order])
        np.testing.assert_array_equal(row_vectors(list(rows), "embedding", 12), POINTS[order])


# Metrics and index types: what they mean, and what an index alone would not find.


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
        assert engine._points._search(QUERIES, 60, engine._settings).counts.min() < 60
        with recorded(engine) as requests:
            found = engine.search(QUERIES, 60)
        assert (found.counts == 60).all()
        probed = [options["search_params"]["params"] for m, options in requests if m == "search"]
        assert probed == [{"nprobe": 1}, {"nprobe": 4}]
        short = engine._points._search(QUERIES, 60, engine._settings).counts < 60
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


def test_a_fit_raises_the_number_of_lists(path: str) -> None:
    rng = np.random.default_rng(0)
    with MilvusEngine.create(8, path, index="ivf", nlist=16, nprobe=1) as engine:
        engine.add(rng.normal(size=(1200, 8)), np.arange(1200), np.arange(1200) % 3)
        bring_into_index(engine)
        settings: dict[str, Any] = {"n_neighbors": 3, "rule": "ned", "temperature": 1.0}
        classifier = NEDClassifier(engine=engine, max_effort=1, **settings)
        with pytest.warns(LowRecallWarning, match="nprobe 1"):
            classifier.fit_engine()
        recall = classifier.set_params(max_effort=None).refit().recall_
        assert recall is not None
        assert recall.is_enough
        assert recall.effort is not None
        with recorded(engine) as requests:
            classifier.kneighbors(QUERIES[:, :8])
        probed = [options["search_params"]["params"] for m, options in requests if m == "search"]
        assert probed == [{"nprobe": recall.effort}]
        assert 1 < recall.effort <= 16


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
