"""Readers see a change whole or not at all, while others change the gallery."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineUnavailableError, InvalidInputError

DIMENSION = 6
N_BATCHES, SIZE = 15, 5
FIRST, SECOND = "first label", "second label"


@pytest.mark.parametrize("index", ["exact", "hnsw", "ivf"])
def test_results_belong_to_one_state(index: str, tmp_path: Path) -> None:
    """Each batch lies at a place of its own, so that its points are found together or not."""
    with SqliteEngine.create(tmp_path / "gallery.sqlite", DIMENSION, index=index) as engine:
        others = np.random.default_rng(0).normal(size=(40, DIMENSION)) - 100
        engine.add(others, np.array([f"other {i}" for i in range(40)]), np.full(40, "other"))
        with ThreadPoolExecutor(3) as pool:
            writer = pool.submit(write, engine)
            readers = [pool.submit(read, engine, writer.done) for _ in range(2)]
            writer.result()
            seen = {state for reader in readers for state in reader.result()}
        # Without these the readers would have come too late, or too early, to see anything.
        assert seen >= {"nothing", FIRST, SECOND}
        assert engine.size() == 40 + SIZE * (N_BATCHES - len(range(0, N_BATCHES, 2)))


def test_closed_under_readers(tmp_path: Path) -> None:
    engine = SqliteEngine.create(tmp_path / "gallery.sqlite", DIMENSION)
    engine.add(place_of(0), names_of(0), np.full(SIZE, FIRST))

    def ask_until_closed() -> int:
        n_asked = 0
        while True:
            try:
                assert engine.search(place_of(0)[:1], SIZE).counts[0] == SIZE
                assert len(engine.fetch(names_of(0)).ids) == SIZE
            except EngineUnavailableError:
                return n_asked
            n_asked += 1

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(ask_until_closed) for _ in range(2)]
        while not engine._file._idle:
            pass
        engine.close()
        assert all(reader.result() >= 0 for reader in readers)
    with SqliteEngine(tmp_path / "gallery.sqlite") as again:
        assert again.size() == SIZE


def write(engine: SqliteEngine) -> None:
    for batch in range(N_BATCHES):
        ids = names_of(batch)
        engine.add(place_of(batch), ids, np.full(SIZE, FIRST))
        engine.relabel(ids, np.full(SIZE, SECOND))
        if batch % 2 == 0:
            engine.remove(ids)


def read(engine: SqliteEngine, is_over: Callable[[], bool]) -> set[str]:
    seen: set[str] = set()
    own = np.random.default_rng(1)
    while not is_over():
        batch = int(own.integers(N_BATCHES))
        found = engine.search(place_of(batch)[:1], SIZE)
        assert found.labels is not None
        here = found.sq_distances[0] < 1
        assert here.all() or not here.any()
        seen.add(check_one_label(found.labels[0]) if here.all() else "nothing")
        if here.all():
            assert found.ids[0].tolist() == names_of(batch).tolist()
        try:
            stored = engine.fetch(names_of(batch))
        except InvalidInputError as error:
            missing = str(error)
        else:
            missing = ""
            check_one_label(np.asarray(stored.labels))
        # All five are there, or are named as missing; never a few of them.
        assert sum(name in missing for name in names_of(batch).tolist()) in {0, SIZE}
    return seen


def check_one_label(labels: AnyArray) -> str:
    (label,) = set(labels.tolist())
    return str(label)


def place_of(batch: int) -> AnyArray:
    """Five equal vectors, far from those of other batches."""
    return np.full((SIZE, DIMENSION), 10.0 * batch)


def names_of(batch: int) -> AnyArray:
    return np.array([f"{batch:02} {letter}" for letter in "abcde"])
