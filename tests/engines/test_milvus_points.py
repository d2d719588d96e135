"""Changes of several requests: whole, or not taken for whole until repeated or undone."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from contract_points import clusters
from milvus_requests import cut_off, limited, recorded
from pymilvus import DataType, MilvusClient

from nearsure.arrays import AnyArray
from nearsure.engines.milvus import MilvusEngine
from nearsure.engines.milvus.client import TooLargeError
from nearsure.errors import (
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
    PartialGalleryError,
)

N = 60
VECTORS = clusters(N, seed=0)[0]
NAMES = np.array([f"point {i}" for i in range(N)])
LABELS = np.arange(N) % 7
# Written with so many.
N_REQUESTS = 4


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MilvusEngine]:
    """An engine that makes small requests."""
    monkeypatch.setattr("nearsure.engines.milvus.points.ATOMIC_BYTES", 16 * (12 * 4 + 64 + 4 * 9))
    monkeypatch.setattr("nearsure.engines.milvus.points.MOST_IDS", 16)
    engine = MilvusEngine.create(12, str(tmp_path / "gallery.db"), ids="text")
    engine.add(VECTORS[:1], np.array(["first"]), LABELS[:1])
    yield engine
    engine.close()


def check_whole(engine: MilvusEngine, labels: AnyArray = LABELS) -> None:
    assert engine.size() == N + 1
    stored = engine.fetch(NAMES)
    np.testing.assert_array_equal(stored.vectors, VECTORS)
    np.testing.assert_array_equal(stored.labels, labels)
    assert engine.search(VECTORS[1:], 1).ids[:, 0].tolist() == NAMES[1:].tolist()


def readings(engine: MilvusEngine) -> list[Callable[[], object]]:
    return [
        engine.size,
        lambda: engine.search(VECTORS[:1], 1),
        lambda: engine.fetch(np.array(["first"])),
        lambda: list(engine.scan()),
    ]


def other_changes(engine: MilvusEngine) -> list[Callable[[], None]]:
    first = np.array(["first"])
    return [
        lambda: engine.add(VECTORS[1:], NAMES[1:], LABELS[1:]),
        lambda: engine.add(VECTORS[:1], np.array(["other"]), LABELS[:1]),
        lambda: engine.remove(first),
        lambda: engine.relabel(first, LABELS[:1]),
    ]


def test_one_request(engine: MilvusEngine) -> None:
    with recorded(engine) as requests:
        engine.add(VECTORS[:16], NAMES[:16], LABELS[:16])
        engine.relabel(NAMES[:16], LABELS[:16])
        engine.remove(NAMES[:16])
    assert [m for m, _ in requests if m != "query"] == ["upsert", "upsert", "delete"]


def test_several_requests(engine: MilvusEngine) -> None:
    reached: list[int] = []
    with recorded(engine) as requests:
        engine.add(VECTORS, NAMES, LABELS, progress=reached.append)
    changing = [m for m, _ in requests if m not in {"query", "list_indexes"}]
    # The index is waited for once the load is whole.
    assert changing == [*["upsert"] * N_REQUESTS, "describe_index"]
    assert reached == [16, 32, 48, 60]
    check_whole(engine)


def test_a_read_asks_for_nothing_else(engine: MilvusEngine) -> None:
    with recorded(engine) as requests:
        for read in readings(engine):
            read()
    assert [method for method, _ in requests] == ["query", "search", "query", "query"]


def test_a_server_that_goes_while_the_index_is_waited_for(engine: MilvusEngine) -> None:
    gone = EngineUnavailableError("The server went away.")
    with (
        mock.patch("nearsure.engines.milvus.points.wait_for_index", side_effect=gone),
        pytest.raises(EngineUnavailableError, match=r"60 points were added.*went away"),
    ):
        engine.add(VECTORS, NAMES, LABELS)
    check_whole(engine)


@pytest.mark.parametrize("after", [0, 1, N_REQUESTS - 1])
def test_a_load_that_was_cut_off(engine: MilvusEngine, after: int) -> None:
    """The first request may have been made, too, if only its answer got lost."""
    with cut_off(engine, after), pytest.raises(EngineUnavailableError):
        engine.add(VECTORS, NAMES, LABELS)
    for read in readings(engine):
        with pytest.raises(PartialGalleryError, match=r"60 points.*Repeat add.*remove"):
            read()
    for change in other_changes(engine):
        with pytest.raises(PartialGalleryError):
            change()
    order = np.random.default_rng(0).permutation(N)
    engine.add(VECTORS[order], NAMES[order], LABELS[order])
    check_whole(engine)


def test_a_load_that_another_engine_completes(engine: MilvusEngine, tmp_path: Path) -> None:
    with cut_off(engine, 2), pytest.raises(EngineUnavailableError):
        engine.add(VECTORS, NAMES, LABELS)
    engine.close()
    engine = MilvusEngine(str(tmp_path / "gallery.db"))
    assert engine.size() == 33
    for vectors, labels in ((VECTORS[::-1], LABELS), (VECTORS, LABELS[::-1])):
        with pytest.raises(InvalidInputError, match="point 0, point 1"):
            engine.add(vectors, NAMES, labels)
    for _ in range(2):
        engine.add(VECTORS, NAMES, LABELS)
        check_whole(engine)
    engine.close()


@pytest.mark.parametrize("after", [0, 1, N_REQUESTS - 1])
def test_a_load_that_is_taken_back(engine: MilvusEngine, after: int) -> None:
    with cut_off(engine, after), pytest.raises(EngineUnavailableError):
        engine.add(VECTORS, NAMES, LABELS)
    with cut_off(engine, 1), pytest.raises(EngineUnavailableError):
        engine.remove(NAMES)
    with pytest.raises(PartialGalleryError, match="Repeat remove"):
        engine.add(VECTORS, NAMES, LABELS)
    engine.remove(NAMES)
    assert engine.size() == 1
    assert [portion.ids.tolist() for portion in engine.scan()] == [["first"]]


def test_an_unreachable_server_cuts_nothing_off(engine: MilvusEngine) -> None:
    gone = EngineUnavailableError("The server went away.")
    with (
        mock.patch.object(engine._connection, "ask", side_effect=gone),
        pytest.raises(EngineUnavailableError),
    ):
        engine.add(VECTORS, NAMES, LABELS)
    assert engine.size() == 1


def test_other_points_of_the_same_ids_are_no_load_to_resume(engine: MilvusEngine) -> None:
    engine.add(VECTORS[:2], NAMES[:2], LABELS[1:3])
    with pytest.raises(InvalidInputError, match="point 0, point 1"):
        engine.add(VECTORS, NAMES, LABELS)
    assert engine.size() == 3


@pytest.mark.parametrize("after", [0, 2])
def test_a_removal_that_was_cut_off(engine: MilvusEngine, after: int) -> None:
    engine.add(VECTORS, NAMES, LABELS)
    with cut_off(engine, after), pytest.raises(EngineUnavailableError):
        engine.remove(NAMES)
    attempts: list[Callable[[], object]] = [
        engine.size,
        lambda: engine.add(VECTORS, NAMES, LABELS),
        lambda: engine.remove(NAMES[1:]),
    ]
    for attempt in attempts:
        with pytest.raises(PartialGalleryError):
            attempt()
    engine.remove(NAMES[::-1])
    assert engine.size() == 1


@pytest.mark.parametrize("after", [0, 3])
def test_a_relabelling_that_was_cut_off(engine: MilvusEngine, after: int) -> None:
    engine.add(VECTORS, NAMES, LABELS)
    with cut_off(engine, after), pytest.raises(EngineUnavailableError):
        engine.relabel(NAMES, LABELS + 10)
    with pytest.raises(PartialGalleryError, match="relabel"):
        engine.search(VECTORS, 1)
    engine.relabel(NAMES, LABELS + 20)
    check_whole(engine, LABELS + 20)


LOADER = """
import os, sys
import numpy as np
from nearsure.engines.milvus import MilvusEngine, points as writing
writing.ATOMIC_BYTES = 5000
points = np.load(sys.argv[2])
engine = MilvusEngine(sys.argv[1])
engine.add(
    points["vectors"], points["names"], points["labels"],
    progress=lambda n: os._exit(9) if n > 30 else None,
)
"""


def test_a_loading_process_that_died(engine: MilvusEngine, tmp_path: Path) -> None:
    engine.close()
    path, data = str(tmp_path / "gallery.db"), tmp_path / "points.npz"
    np.savez(data, vectors=VECTORS, names=NAMES, labels=LABELS)
    died = subprocess.run([sys.executable, "-c", LOADER, path, data], check=False)  # noqa: S603
    assert died.returncode == 9
    after = MilvusEngine(path)
    # What is there is seen by all.
    assert 30 < after.size() < N
    after.add(VECTORS, NAMES, LABELS)
    check_whole(after)
    after.close()


# Rows that somebody else wrote: labels that are NULL, vectors of no direction, wide rows.


POINTS = clusters(N, seed=0)[0]
IDS = np.arange(N)


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
