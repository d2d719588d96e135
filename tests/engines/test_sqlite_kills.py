"""Writers that are killed at any moment lose nothing that they acknowledged, and halve nothing."""

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from sqlite_writer import DIMENSION, vectors_of

from nearsure.engines.sqlite import SqliteEngine

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
    assert "gallery.sqlite is open already, here or in another process" in told
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
