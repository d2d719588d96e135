"""What a gallery in a file keeps beside and beyond the contract."""

import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearsure import open_engine
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Stored
from nearsure.engines.sqlite import SqliteEngine, index
from nearsure.errors import EngineError, GalleryMismatchError, InvalidInputError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gallery.sqlite"


def text(n: int) -> AnyArray:
    return np.array([f"point {i}" for i in range(n)])


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("index", ["exact", "hnsw"])
def test_vectors_come_back_to_the_last_bit(path: Path, precision: str, index: str) -> None:
    own = np.random.default_rng(0)
    bits = np.uint32 if precision == "float32" else np.uint64
    vectors = own.normal(size=(50, 7)).astype(precision)
    # The last digits of any number, zeros with a sign, and numbers next to zero.
    noise = own.integers(8, size=vectors.shape, dtype=bits)
    vectors = np.bitwise_xor(vectors.view(bits), noise).view(precision)
    vectors[0, :4] = -0.0, np.nextafter(np.zeros(1, precision), 1)[0], 1 / 3, -1e5
    with SqliteEngine.create(path, 7, precision=precision, index=index) as engine:  # type: ignore[arg-type]
        engine.add(vectors, text(50), text(50))
        first = engine.fetch(text(50)).vectors
    with SqliteEngine(path) as engine:
        again = engine.fetch(text(50)).vectors
    for fetched in (first, again):
        assert fetched is not None
        assert fetched.dtype == vectors.dtype
        assert fetched.tobytes() == vectors.tobytes()


def test_numbers_beyond_the_precision_are_refused(path: Path) -> None:
    with SqliteEngine.create(path, 2) as engine:
        with pytest.raises(InvalidInputError, match="float32"):
            engine.add(np.array([[1e300, 0.0]]), text(1), text(1))
        assert engine.size() == engine.count() == 0
    with SqliteEngine.create(path.with_name("double.sqlite"), 2, precision="float64") as engine:
        engine.add(np.array([[1e100, 0.0]]), text(1), text(1))
        assert engine.search(np.array([[1e100, 3.0]]), 1).sq_distances[0, 0] == 9


def test_pages_and_counts(path: Path) -> None:
    own = np.random.default_rng(1)
    ids = np.array([f"{i} {chr(70 + i * 37)}" for i in own.permutation(60)])
    labels = np.array(["cat", "dog", "owl's"])[own.integers(3, size=60)]
    with SqliteEngine.create(path, 2) as engine:
        engine.add(own.normal(size=(60, 2)), ids, labels)
        everything = sorted(zip(ids.tolist(), labels.tolist(), strict=True))
        for label in (None, "cat", "owl's", "none such"):
            wanted = [pair for pair in everything if label in {None, pair[1]}]
            assert engine.count(label) == len(wanted)
            for limit in (1, 7, 100):
                got: list[tuple[Any, Any]] = []
                after = None
                while pairs := pairs_of(engine.page(after, limit, label)):
                    assert len(pairs) <= limit
                    got += pairs
                    after = pairs[-1][0]
                assert got == wanted
        assert pairs_of(engine.page("3 ", 2)) == list(
            islice((pair for pair in everything if pair[0] > "3 "), 2)
        )
        with pytest.raises(InvalidInputError, match="limit"):
            engine.page(limit=0)
        with pytest.raises(GalleryMismatchError):
            engine.page(after=5)
        with pytest.raises(GalleryMismatchError):
            engine.count(5)
        with pytest.raises(InvalidInputError, match="Unicode"):
            engine.page(after="\ud83d")


def test_pages_of_integers(path: Path) -> None:
    ids = np.array([5, -3, 2**62, 0, 11])
    with SqliteEngine.create(path, 1, ids="integer", labels="integer") as engine:
        engine.add(np.arange(5.0)[:, None], ids, np.array([1, 1, -1, 1, -1]))
        assert pairs_of(engine.page(limit=3)) == [(-3, 1), (0, 1), (5, 1)]
        assert pairs_of(engine.page(0, 9, 1)) == [(5, 1)]
        assert engine.count(-1) == 2
        assert engine.count(0) == 0


def test_notes(path: Path) -> None:
    with SqliteEngine.create(path, 2) as engine:
        engine.notes["model"] = b"first"
        engine.notes["model"] = bytes(range(256)) * 1000
        engine.notes["threshold"] = b"0.9"
        engine.notes["to go"] = b""
        del engine.notes["to go"]
    with SqliteEngine(path) as engine:
        assert dict(engine.notes) == {"model": bytes(range(256)) * 1000, "threshold": b"0.9"}
        assert list(engine.notes) == ["model", "threshold"]
        assert engine.notes.get("to go") is None
        with pytest.raises(KeyError):
            del engine.notes["to go"]
        with pytest.raises(InvalidInputError, match="bytes"):
            engine.notes["model"] = "text"  # type: ignore[assignment]
        with pytest.raises(InvalidInputError, match="Unicode"):
            engine.notes["\ud83d"] = b""
        with pytest.raises(InvalidInputError, match="text"):
            engine.notes[3]  # type: ignore[index]
        assert len(engine.notes) == 2


def test_pictures_go_with_their_points(path: Path) -> None:
    with SqliteEngine.create(path, 2) as engine:
        engine.add(np.eye(2), text(2), text(2))
        engine.put_pictures({"point 0": b"old", "point 1": b"one"})
        engine.put_pictures({"point 0": b"new"})
        with pytest.raises(InvalidInputError, match="none such"):
            engine.put_pictures({"point 1": b"lost", "none such": b"?"})
        with pytest.raises(InvalidInputError, match="bytes"):
            engine.put_pictures({"point 1": "lost"})  # type: ignore[arg-type]
    with SqliteEngine(path) as engine:
        assert [engine.picture(own) for own in (*text(2), "none such")] == [b"new", b"one", None]
        engine.relabel(text(2), text(2)[::-1])
        assert engine.picture("point 0") == b"new"
        engine.remove(text(1))
        engine.add(np.eye(2)[:1], text(1), text(1))
        assert [engine.picture(own) for own in text(2)] == [None, b"one"]


def test_texts_go_with_their_points(path: Path) -> None:
    with SqliteEngine.create(path, 2, ids="integer") as engine:
        engine.add(np.eye(2), np.array([1, 2]), text(2))
        assert not engine.has_texts
        assert engine.texts(np.array([1, 2])) == {}
        engine.put_texts({1: "first", 2: "second"})
        engine.put_texts({2: "another"})
        for bad in ({2: "x", 9: "nobody"}, {2: 7}, {2: "\ud800"}):
            with pytest.raises(InvalidInputError):
                engine.put_texts(bad)  # type: ignore[arg-type]
    with SqliteEngine(path, read_only=True) as engine:
        assert engine.has_texts
        assert engine.texts(np.array([2, 1, 1, 9])) == {1: "first", 2: "another"}
    with SqliteEngine(path) as engine:
        engine.remove(np.array([1]))
        engine.add(np.ones((1, 2)), np.array([1]), text(1))
        assert engine.texts(np.array([1, 2])) == {2: "another"}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE texts SET text = x'00'")
    with pytest.raises(GalleryMismatchError, match="'texts'"):
        SqliteEngine(path)


def test_ids_twice_and_none_in_a_fetch(path: Path) -> None:
    with SqliteEngine.create(path, 2) as engine:
        engine.add(np.eye(2), text(2), text(2))
        twice = engine.fetch(text(2)[[1, 0, 1]])
        np.testing.assert_array_equal(twice.vectors, np.eye(2)[[1, 0, 1]])
        nothing = engine.fetch(np.array([], str))
        assert np.asarray(nothing.vectors).shape == (len(nothing.ids), 2) == (0, 2)
        with pytest.raises(InvalidInputError, match="one dimension"):
            engine.fetch(text(2)[None])


def test_names_are_right_after_many_points_came_and_went(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FEW_GONE", 10)
    own = np.random.default_rng(2)
    held: dict[str, tuple[str, AnyArray]] = {}
    with SqliteEngine.create(path, 3) as engine:
        for turn in range(40):
            ids = np.array([f"{turn} {i}" for i in range(5)])
            vectors, labels = own.normal(size=(5, 3)), own.choice(["x", "y"], size=5)
            engine.add(vectors, ids, labels)
            held |= dict(zip(ids.tolist(), zip(labels.tolist(), vectors, strict=True), strict=True))
            gone = own.choice(list(held), size=min(len(held), 4), replace=False)
            engine.remove(gone)
            held = {name: point for name, point in held.items() if name not in set(gone.tolist())}
        found = engine.search(np.array([vector for _, vector in held.values()]), 1)
        assert found.ids[:, 0].tolist() == list(held)
        assert np.asarray(found.labels)[:, 0].tolist() == [label for label, _ in held.values()]


def test_the_index_of_creation_is_remembered(path: Path) -> None:
    with SqliteEngine.create(path, 2, index="ivf") as engine:
        assert engine.index_type == "ivf"
    with SqliteEngine(path) as engine:
        assert engine.fingerprint()["index"] == "ivf"
    with SqliteEngine(path, index="exact") as engine:
        assert engine.capabilities.exact
        assert str(path) in repr(engine)


@pytest.mark.parametrize("name", ["gallery.sqlite", "gallery.sqlite3", "sqlite:my gallery.db"])
def test_opened_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    SqliteEngine.create(name.removeprefix("sqlite:"), 2).close()
    engine = open_engine(name, index="hnsw")
    assert engine.fingerprint()["index"] == "hnsw"
    engine.close()


def test_no_address_of_a_server_is_taken_for_a_path() -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_engine("redis://ann:s3cret@db/gallery.sqlite")
    assert "s3cret" not in str(caught.value)


def pairs_of(page: Stored) -> list[tuple[Any, Any]]:
    assert page.vectors is None
    return list(zip(page.ids.tolist(), np.asarray(page.labels).tolist(), strict=True))


# Which points were changed is written down with the change; notes are written together.


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
