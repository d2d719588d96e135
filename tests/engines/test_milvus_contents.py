"""Rows that somebody else wrote: labels that are NULL, vectors of no direction, wide rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_points import clusters
from milvus_requests import cut_off, limited, recorded
from pymilvus import DataType, MilvusClient

from nearsure.engines.milvus import MilvusEngine
from nearsure.engines.milvus.client import TooLargeError
from nearsure.errors import (
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
    PartialGalleryError,
)

N = 60
POINTS = clusters(N, seed=0)[0]
IDS, LABELS = np.arange(N), np.arange(N) % 7


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "gallery.db")


@pytest.fixture
def client(path: str) -> Iterator[MilvusClient]:
    client = MilvusClient(path, dedicated=True)
    yield client
    client.close()


def make_collection(client: MilvusClient, metric: str, label: dict[str, Any]) -> None:
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("label", **label)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=12)
    indexes = client.prepare_index_params()
    indexes.add_index("embedding", index_type="FLAT", metric_type=metric)
    client.create_collection("gallery", schema=schema, index_params=indexes)


@pytest.mark.parametrize(
    ("kind", "label"),
    [({"datatype": DataType.VARCHAR, "max_length": 9}, "a"), ({"datatype": DataType.INT64}, 3)],
)
def test_labels_that_are_null(
    path: str, client: MilvusClient, kind: dict[str, Any], label: object
) -> None:
    make_collection(client, "L2", {"nullable": True, **kind})
    rows = [
        {"id": 1, "label": label, "embedding": POINTS[1]},
        {"id": 2, "label": None, "embedding": POINTS[2]},
    ]
    client.insert("gallery", rows)
    with MilvusEngine(path) as engine:
        for read in (
            lambda: engine.search(POINTS[:1], 2),
            lambda: engine.fetch(np.array([1, 2])),
            lambda: list(engine.scan()),
        ):
            with pytest.raises(GalleryMismatchError, match="NULL"):
                read()
        assert engine.fetch(np.array([1])).labels.tolist() == [label]  # type: ignore[union-attr]
        engine.relabel(np.array([2]), np.array([label]))
        assert engine.search(POINTS[:1], 2).labels.tolist() == [[label, label]]  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [0.0, 1e-60, 1e-30, 1e30])
def test_vectors_without_a_direction_do_not_enter(path: str, size: float) -> None:
    with MilvusEngine.create(12, path, metric="cosine") as engine:
        with pytest.raises(InvalidInputError, match="direction"):
            engine.add(np.full((1, 12), size), IDS[:1], LABELS[:1])
        assert engine.size() == 0
        with pytest.raises(InvalidInputError, match="zero vector"):
            engine.search(np.zeros((1, 12)), 1)
        engine.add(np.full((1, 12), 1e-15), IDS[:1], LABELS[:1])
        found = engine.search(np.full((1, 12), size or 1.0), 1)
        np.testing.assert_allclose(found.sq_distances, [[0.0]], atol=1e-12)


def test_zero_vectors_that_are_there_are_not_found(path: str, client: MilvusClient) -> None:
    make_collection(client, "COSINE", {"datatype": DataType.INT64})
    vectors = np.vstack([np.zeros((2, 12)), POINTS[:3]])
    client.insert("gallery", [{"id": i, "label": i, "embedding": v} for i, v in enumerate(vectors)])
    with MilvusEngine(path) as engine:
        found = engine.search(POINTS[:2], 5)
        assert found.counts.tolist() == [3, 3]
        assert np.sort(found.ids[:, :3]).tolist() == [[2, 3, 4]] * 2
        np.testing.assert_array_equal(engine.fetch(np.array([0])).vectors, np.zeros((1, 12)))


@pytest.mark.parametrize("refine", [True, False])
def test_rows_of_another_length_under_the_inner_product(
    path: str, client: MilvusClient, *, refine: bool
) -> None:
    units = POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)
    with MilvusEngine.create(12, path, metric="inner_product", refine=refine) as engine:
        engine.add(units, IDS, LABELS)
        assert engine.search(POINTS[:3], 2).ids[:, 0].tolist() == [0, 1, 2]
        client.insert("gallery", [{"id": 99, "label": 2, "embedding": 5 * units[0]}])
        with pytest.raises(GalleryMismatchError, match="unit"):
            engine.search(POINTS[:1], 1)


@pytest.fixture
def wide(path: str, client: MilvusClient) -> Iterator[MilvusEngine]:
    """A gallery whose rows are some twenty times what nearsure writes itself."""
    make_collection(client, "L2", {"datatype": DataType.INT64})
    rows = [
        {"id": i, "label": 0, "embedding": POINTS[i], "notes": f"{i} " + "x" * 3000}
        for i in range(N)
    ]
    client.insert("gallery", rows)
    with MilvusEngine(path) as engine:
        yield engine


def check_relabelled(engine: MilvusEngine, client: MilvusClient) -> None:
    assert engine.fetch(IDS).labels.tolist() == LABELS.tolist()  # type: ignore[union-attr]
    rows = client.query("gallery", "id >= 0", output_fields=["notes"])
    assert {row["id"]: row["notes"] for row in rows} == {i: f"{i} " + "x" * 3000 for i in range(N)}


def test_wide_rows_are_written_in_portions_of_their_size(
    wide: MilvusEngine, client: MilvusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsure.engines.milvus.points.ATOMIC_BYTES", 70_000)
    with recorded(wide) as requests, limited(wide, upserted=22):
        wide.relabel(IDS, LABELS)
    assert [method for method, _ in requests if method != "query"] == ["upsert"] * 3
    check_relabelled(wide, client)


def test_what_the_server_finds_too_large_is_halved(
    wide: MilvusEngine, client: MilvusClient
) -> None:
    """Also reads."""
    with limited(wide, upserted=16, read=25):
        wide.relabel(IDS, LABELS)
    check_relabelled(wide, client)


def test_halves_that_were_cut_off(wide: MilvusEngine, client: MilvusClient) -> None:
    with (
        limited(wide, upserted=16),
        cut_off(wide, after=3),
        pytest.raises(EngineUnavailableError),
    ):
        wide.relabel(IDS, LABELS)
    with pytest.raises(PartialGalleryError, match="relabel"):
        wide.size()
    wide.relabel(IDS, LABELS)
    check_relabelled(wide, client)


def test_a_row_that_the_server_does_not_take(wide: MilvusEngine) -> None:
    with limited(wide, upserted=0), pytest.raises(TooLargeError):
        wide.relabel(IDS[:1], LABELS[1:2])
    assert wide.fetch(IDS[:1]).labels.tolist() == [0]  # type: ignore[union-attr]
