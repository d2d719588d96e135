"""Engines while they are open: forks, full disks, slow indexes, and how they are given back."""

import errno
import gc
import os
import re
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from nearsure.engines.milvus import MilvusEngine, client
from nearsure.errors import EngineAccessError, EngineError, EngineUnavailableError

VECTORS, IDS, LABELS = np.eye(3), np.arange(3), np.arange(3)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "gallery.db")


@pytest.fixture
def engine(path: str) -> Iterator[MilvusEngine]:
    engine = MilvusEngine.create(3, path, timeout=2)
    engine.add(VECTORS, IDS, LABELS)
    yield engine
    engine.close()


def test_a_closed_engine(engine: MilvusEngine) -> None:
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.size()


def test_no_file_is_left_open(engine: MilvusEngine, tmp_path: Path) -> None:
    engine.close()
    held = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
    assert not [path for path in held if path.is_relative_to(tmp_path)]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EROFS, EngineAccessError),
        (errno.EACCES, EngineAccessError),
        (errno.ENOSPC, EngineError),
    ],
)
def test_a_disk_that_takes_nothing_more(
    engine: MilvusEngine, number: int, kind: type[EngineError]
) -> None:
    """Reads go on; once the disk is mended, writes do."""
    log = import_module("milvus_lite.storage.wal").WAL
    changes: list[Callable[[], None]] = [
        lambda: engine.add(VECTORS + 1, IDS + 10, LABELS),
        lambda: engine.relabel(IDS[:1], LABELS[1:2]),
        lambda: engine.remove(IDS[:1]),
    ]
    failing = mock.Mock(side_effect=OSError(number, os.strerror(number)))
    with (
        mock.patch.object(log, "write_insert", failing),
        mock.patch.object(log, "write_delete", failing),
    ):
        for change in changes:
            with pytest.raises(kind, match=re.escape(os.strerror(number))) as raised:
                change()
            assert type(raised.value) is kind
        assert engine.size() == 3
        assert engine.search(VECTORS, 5).counts.tolist() == [3, 3, 3]
    engine.add(VECTORS + 1, IDS + 10, LABELS)
    assert engine.size() == 6


def test_a_fork_leaves_the_engine_to_the_parent(engine: MilvusEngine) -> None:
    uses: list[Callable[[], object]] = [
        engine.size,
        lambda: engine.add(VECTORS + 1, IDS + 10, LABELS),
        lambda: list(engine.scan()),
    ]
    child = os.fork()
    if not child:
        signal.alarm(20)
        n_refused = 0
        for use in uses:
            try:
                use()
            except EngineError as error:
                n_refused += "forked" in str(error)
        engine.close()
        os._exit(n_refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(uses)
    engine.add(VECTORS + 1, IDS + 10, LABELS)
    assert engine.size() == 6


@pytest.mark.parametrize("n_looks", [3, None])
def test_an_index_is_waited_for(engine: MilvusEngine, n_looks: int | None) -> None:
    """Not for ever; and the points are there all the same."""
    n_looked = 0
    ask = engine._connection.ask

    def answering(method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        nonlocal n_looked
        if method != "describe_index":
            return ask(method, *arguments, **options)
        n_looked += 1
        return {"state": "Finished", "pending_index_rows": 0 if n_looked == n_looks else 5}

    with (
        mock.patch.object(engine._connection, "ask", answering),
        mock.patch.object(engine._connection, "timeout", 0.3),
    ):
        if n_looks is None:
            with pytest.raises(EngineUnavailableError, match=r"5 rows.*finish_index"):
                engine.finish_index()
        else:
            engine.finish_index()
            assert n_looked == n_looks
    assert engine.size() == 3


def test_two_engines_on_one_file(path: str) -> None:
    with MilvusEngine.create(3, path) as one:
        other = MilvusEngine(path)
        one.add(VECTORS, IDS, LABELS)
    with pytest.raises(EngineError, match="closed"):
        one.size()
    assert other.size() == 3
    other.close()


def test_a_forgotten_engine_gives_its_file_back(path: str) -> None:
    engine = MilvusEngine.create(3, path)
    assert Path(path) in client._open_files
    del engine
    gc.collect()
    assert Path(path) not in client._open_files
