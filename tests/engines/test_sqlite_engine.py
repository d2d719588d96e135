"""Readers see a change whole or not at all, while others change the gallery."""

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from sqlite_writer import DIMENSION, vectors_of

from nearsure.arrays import AnyArray
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineUnavailableError, InvalidInputError

N_BATCHES, SIZE = 15, 5
N_ROUNDS = 100
FIRST, SECOND = "first label", "second label"
STATES = {"nothing", FIRST, SECOND}


@pytest.mark.parametrize("index", ["exact", "hnsw", "ivf"])
def test_results_belong_to_one_state(index: str, tmp_path: Path) -> None:
    """Each batch lies at a place of its own, so that its points are found together or not."""
    with SqliteEngine.create(tmp_path / "gallery.sqlite", DIMENSION, index=index) as engine:
        others = np.random.default_rng(0).normal(size=(40, DIMENSION)) - 100
        engine.add(others, np.array([f"other {i}" for i in range(40)]), np.full(40, "other"))
        with ThreadPoolExecutor(3) as pool:
            seen: set[str] = set()
            writer = pool.submit(write, engine, lambda: seen >= STATES)
            readers = [pool.submit(read, engine, writer.done, seen) for _ in range(2)]
            for worker in (writer, *readers):
                worker.result()
        # Without these the readers would have come too late, or too early, to see anything.
        assert seen >= STATES
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


def write(engine: SqliteEngine, are_all_seen: Callable[[], bool]) -> None:
    """Batches come, are relabelled and go, until the readers have seen each state."""
    for _ in range(N_ROUNDS):
        for batch in range(N_BATCHES):
            ids = names_of(batch)
            engine.add(place_of(batch), ids, np.full(SIZE, FIRST))
            engine.relabel(ids, np.full(SIZE, SECOND))
            if batch % 2 == 0:
                engine.remove(ids)
        if are_all_seen():
            return
        engine.remove(np.concatenate([names_of(batch) for batch in range(1, N_BATCHES, 2)]))


def read(engine: SqliteEngine, is_over: Callable[[], bool], seen: set[str]) -> None:
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


def check_one_label(labels: AnyArray) -> str:
    (label,) = set(labels.tolist())
    return str(label)


def place_of(batch: int) -> AnyArray:
    """Five equal vectors, far from those of other batches."""
    return np.full((SIZE, DIMENSION), 10.0 * batch)


def names_of(batch: int) -> AnyArray:
    return np.array([f"{batch:02} {letter}" for letter in "abcde"])


# Writers that are killed at any moment lose nothing that they acknowledged, and halve nothing.


Order: TypeAlias = dict[str, Any]
Contents: TypeAlias = dict[str, tuple[str, bytes]]
WRITER = Path(__file__).with_name("sqlite_writer.py")
N_KILLS = 7


@pytest.fixture(scope="module")
def killed_writer() -> Iterator[Callable[[Order], list[Any]]]:
    """Let a writer work as an order says, kill it, and return what it told."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(  # noqa: S603
        [sys.executable, str(WRITER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        orders, answers = runner.stdin, runner.stdout

        def ask(order: Order) -> list[Any]:
            orders.write(json.dumps(order) + "\n")
            orders.flush()
            told: list[Any] = json.loads(answers.readline())
            return told

        yield ask
        orders.close()
        runner.wait(10)


@pytest.mark.parametrize("index", ["exact", "hnsw", "ivf"])
def test_nothing_is_lost_and_nothing_is_half_there(
    index: str, killed_writer: Callable[[Order], list[Any]], tmp_path: Path
) -> None:
    path = tmp_path / "gallery.sqlite"
    SqliteEngine.create(path, DIMENSION, index=index).close()
    own = random.Random(f"kills of {index}")  # noqa: S311
    expected: Contents = {}
    n_acknowledged = n_cut_off = 0
    for kill in range(N_KILLS):
        told = killed_writer(
            {
                "path": str(path),
                "index": index,
                "seed": 100 * N_KILLS + kill,
                # Some while they open the gallery.
                "lines": 0 if kill % 4 == 3 else own.randrange(3, 24),
                "seconds": own.uniform(0.0, 0.03),
            }
        )
        changes = [entry for entry in told if entry != "done"]
        n_done = len(told) - len(changes)
        assert n_done in {len(changes), len(changes) - 1}
        for change in changes[:n_done]:
            expected = changed(expected, change)
        n_acknowledged += n_done
        n_cut_off += len(changes) - n_done
        perhaps = changed(expected, changes[-1]) if len(changes) > n_done else expected
        with SqliteEngine(path) as engine:
            there = contents(engine)
            assert there in (expected, perhaps)
            check_index(engine, there)
        expected = there
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    # Otherwise the kills came too early to say anything.
    assert n_acknowledged > N_KILLS
    assert n_cut_off >= N_KILLS // 3


def test_another_process_is_told_that_the_gallery_is_taken(
    killed_writer: Callable[[Order], list[Any]], tmp_path: Path
) -> None:
    path = tmp_path / "gallery.sqlite"
    with SqliteEngine.create(path, DIMENSION):
        order = {"path": str(path), "index": "auto", "seed": 0, "lines": 1, "seconds": 0}
        (told,) = killed_writer(order)
    assert "gallery.sqlite has a writer already, here or in another process" in told
    # A process that is killed leaves no lock behind.
    assert killed_writer(order)[0]["do"] == "add"
    SqliteEngine(path).close()


def changed(before: Contents, change: dict[str, Any]) -> Contents:
    """What a gallery holds after a change."""
    ids, label = change["ids"], change["label"]
    if change["do"] == "remove":
        return {own: point for own, point in before.items() if own not in set(ids)}
    if change["do"] == "relabel":
        return before | {own: (label, before[own][1]) for own in ids}
    vectors = vectors_of(change["seed"], len(ids))
    return before | {own: (label, row.tobytes()) for own, row in zip(ids, vectors, strict=True)}


def contents(engine: SqliteEngine) -> Contents:
    """What the file holds."""
    found: Contents = {}
    for portion in engine.scan():
        stored = engine.fetch(portion.ids)
        assert stored.labels is not None
        assert stored.vectors is not None
        found |= {
            own: (label, vector.tobytes())
            for own, label, vector in zip(
                portion.ids.tolist(), stored.labels.tolist(), stored.vectors, strict=True
            )
        }
    return found


def check_index(engine: SqliteEngine, there: Contents) -> None:
    """Every point is found where it is under its name, and nothing else is found."""
    assert engine.size() == len(there)
    if not there:
        return
    vectors = np.array([np.frombuffer(vector, np.float32) for _, vector in there.values()])
    # All are asked for: among fewer, a graph may miss a point even at its own place.
    found = engine.search(vectors, len(there))
    assert found.labels is not None
    assert found.ids[:, 0].tolist() == list(there)
    assert found.labels[:, 0].tolist() == [label for label, _ in there.values()]
    assert found.sq_distances[:, 0].max() < 1e-9
    assert (np.sort(found.ids, axis=1) == np.sort(list(there))).all()
