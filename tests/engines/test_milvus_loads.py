"""Changes of several requests: whole, or not taken for whole until repeated or undone."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from contract_points import clusters
from milvus_requests import cut_off, recorded

from nearsure.arrays import AnyArray
from nearsure.engines.milvus import MilvusEngine
from nearsure.errors import EngineUnavailableError, InvalidInputError, PartialGalleryError

N = 60
VECTORS = clusters(N, seed=0)[0]
NAMES = np.array([f"point {i}" for i in range(N)])
LABELS = np.arange(N) % 7
# Written with so many.
N_REQUESTS = 4


@pytest.fixture(autouse=True)
def _small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsure.engines.milvus.points.ATOMIC_BYTES", 16 * (12 * 4 + 64 + 4 * 9))
    monkeypatch.setattr("nearsure.engines.milvus.points.MOST_IDS", 16)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[MilvusEngine]:
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
