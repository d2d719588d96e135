"""Which points were changed is written down with the change; notes are written together."""

from pathlib import Path

import numpy as np
import pytest

from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineError, InvalidInputError


def names(*ids: str) -> np.ndarray:
    return np.array(ids)


def test_changes_have_numbers_that_grow(tmp_path: Path) -> None:
    path = tmp_path / "gallery.sqlite"
    with SqliteEngine.create(path, 1) as engine:
        engine.add(np.zeros((2, 1)), names("a", "b"), names("x", "x"))
        # Nobody has asked for it.
        assert engine.changes.last() == 0
        assert engine.changes.since(0).tolist() == []
        engine.changes.forget(0)
        engine.changes.watch()
        engine.changes.watch()
        engine.add(np.ones((2, 1)), names("c", "d"), names("x", "y"))
        assert engine.changes.since(0).tolist() == ["c", "d"]
        first = engine.changes.last()
    with SqliteEngine(path) as engine:
        engine.relabel(names("c"), names("z"))
        engine.remove(names("a"))
        # A point that is changed again is listed once, as the last.
        engine.relabel(names("c"), names("y"))
        assert engine.changes.since(first).tolist() == ["a", "c"]
        assert engine.changes.since(0).tolist() == ["d", "a", "c"]
        last = engine.changes.last()
        engine.changes.forget(last)
        assert engine.changes.since(0).tolist() == []
    with SqliteEngine(path) as engine:
        assert engine.changes.last() == last
        engine.remove(names("b"))
        assert engine.changes.last() > last
        assert engine.changes.since(last).tolist() == ["b"]


def test_a_change_that_is_not_made_is_not_listed(tmp_path: Path) -> None:
    with SqliteEngine.create(tmp_path / "gallery.sqlite", 1, ids="integer") as engine:
        engine.changes.watch()
        engine.add(np.zeros((1, 1)), np.array([5]), names("x"))
        with pytest.raises(InvalidInputError):
            engine.add(np.zeros((2, 1)), np.array([6, 5]), names("x", "x"))
        with pytest.raises(InvalidInputError):
            engine.remove(np.array([5, 7]))
        with pytest.raises(InvalidInputError):
            engine.relabel(np.array([7]), names("y"))
        assert engine.changes.since(0).tolist() == [5]
        writer = engine._file._writer
        n_pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {n_pages}")
        with pytest.raises(EngineError, match="disk is full"):
            engine.add(np.zeros((5000, 1)), np.arange(10, 5010), np.full(5000, "x"))
        assert engine.changes.since(0).tolist() == [5]


def test_notes_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    with SqliteEngine.create(tmp_path / "gallery.sqlite", 1) as engine:
        engine.notes.update({"a": b"1", "b": b"2"}, c=b"3")
        assert dict(engine.notes) == {"a": b"1", "b": b"2", "c": b"3"}
        n_commits = engine._file.n_commits
        engine.notes.update([("a", b"4"), ("b", b"5")])
        assert engine._file.n_commits == n_commits + 1
        with pytest.raises(InvalidInputError, match="bytes"):
            engine.notes.update({"a": b"6", "b": "text"})  # type: ignore[dict-item]
        assert dict(engine.notes) == {"a": b"4", "b": b"5", "c": b"3"}
