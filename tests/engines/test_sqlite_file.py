"""What goes wrong is said in one sentence, and changes nothing."""

import fcntl
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearsure.engines.sqlite import SqliteEngine, file
from nearsure.engines.sqlite.engine import put_in_place
from nearsure.engines.sqlite.file import KIND, engine_error
from nearsure.engines.sqlite.index import CommittedIndex, Memory, PointNames
from nearsure.engines.sqlite.schema import VERSION
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    NearsureError,
)

DIMENSION = 3
IDS = np.array(["a", "b", "c"])
LABELS = np.array(["x", "y", "x"])
VECTORS = np.eye(3, dtype=np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gallery.sqlite"


@pytest.fixture
def filled(path: Path) -> Path:
    with SqliteEngine.create(path, DIMENSION) as engine:
        engine.add(VECTORS, IDS, LABELS)
    return path


def check_holds(engine: SqliteEngine, ids: list[str], labels: list[str]) -> None:
    """File and memory say the same."""
    page = engine.page()
    assert page.ids.tolist() == ids
    assert np.asarray(page.labels).tolist() == labels
    assert engine.size() == engine.count() == len(ids)
    found = engine.search(np.zeros((1, DIMENSION)), 10)
    pairs = zip(found.ids[0].tolist(), np.asarray(found.labels)[0].tolist(), strict=True)
    assert sorted(pairs)[-len(ids) :] == sorted(zip(ids, labels, strict=True))
    assert found.counts[0] == len(ids)


def test_what_is_not_a_database(path: Path) -> None:
    path.write_bytes(b"id,label\n" * 1000)
    with pytest.raises(GalleryMismatchError, match="is not an SQLite database"):
        SqliteEngine(path)


def test_a_database_of_somebody_else_stays_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE accounts (name)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(GalleryMismatchError, match="not a gallery of nearsure"):
        SqliteEngine(path)
    with pytest.raises(GalleryMismatchError, match="already exists"):
        SqliteEngine.create(path, DIMENSION)
    assert path.read_bytes() == before


def test_a_newer_version(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(GalleryMismatchError, match=f"version {VERSION + 1}.*Upgrade nearsure"):
        SqliteEngine(filled)


def test_settings_that_mean_nothing(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("UPDATE settings SET value = 'hamming' WHERE name = 'metric'")
        connection.commit()
    with pytest.raises(GalleryMismatchError, match="hamming"):
        SqliteEngine(filled)


def test_nothing_there(path: Path) -> None:
    with pytest.raises(GalleryNotFoundError, match=r"SqliteEngine\.create"):
        SqliteEngine(path)
    assert not path.exists()
    with pytest.raises(GalleryNotFoundError):
        SqliteEngine(path.parent / "nowhere" / "gallery.sqlite")
    SqliteEngine.create(path.parent / "no" / "where" / "gallery.sqlite", DIMENSION).close()
    SqliteEngine(path.parent / "no" / "where" / "gallery.sqlite").close()
    with pytest.raises(GalleryNotFoundError, match="no file"):
        SqliteEngine(path.parent)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimension": 0},
        {"dimension": 2**40},
        {"dimension": 2.5},
        {"metric": "hamming"},
        {"ids": "uuid"},
        {"labels": None},
        {"precision": "float16"},
        {"index": "tree"},
    ],
    ids=str,
)
def test_wrong_options_create_nothing(path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        SqliteEngine.create(path, **{"dimension": DIMENSION, **wrong})
    assert list(path.parent.iterdir()) == []


def test_damaged(filled: Path) -> None:
    with filled.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (filled.stat().st_size - 4096))
    with pytest.raises(EngineError, match="is damaged"):
        SqliteEngine(filled)


def test_a_full_disk(filled: Path) -> None:
    with SqliteEngine(filled) as engine:
        writer = engine._file._writer
        n_pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {n_pages}")
        many = np.array([f"new {i}" for i in range(2000)])
        vectors = np.ones((2000, DIMENSION))
        with pytest.raises(EngineError, match=r"disk is full\. Nothing was changed"):
            engine.add(vectors, many, np.full(2000, "z"))
        with pytest.raises(EngineError, match="disk is full"):
            engine.notes["model"] = bytes(10**6)
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])
        assert dict(engine.notes) == {}
        writer.execute("PRAGMA max_page_count = 100000")
        engine.add(vectors, many, np.full(2000, "z"))
        assert engine.size() == 2003


def test_a_file_that_may_not_be_written(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteEngine(filled) as engine:
        engine._file._writer.execute("PRAGMA query_only = ON")
        for change in changes(engine):
            with pytest.raises(EngineAccessError, match=r"may only be read\. Nothing was changed"):
                change()
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(EngineAccessError, match="Change its rights"):
        SqliteEngine(filled)
    with pytest.raises(EngineAccessError, match=r"/sys/gallery\.sqlite"):
        SqliteEngine.create("/sys/gallery.sqlite", DIMENSION)


def test_locked_by_another_program(filled: Path) -> None:
    with (
        SqliteEngine(filled, timeout=0.02) as engine,
        closing(sqlite3.connect(filled, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        for change in changes(engine):
            with pytest.raises(EngineUnavailableError, match="locked by another program"):
                change()
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])
        other.execute("ROLLBACK")
        engine.remove(IDS[:1])
        check_holds(engine, ["b", "c"], ["y", "x"])


def test_open_twice(filled: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(filled)
    with SqliteEngine(filled):
        for path in (filled, link):
            with pytest.raises(EngineUnavailableError, match="has a writer already"):
                SqliteEngine(path)
    SqliteEngine(link).close()


def test_a_forked_child_leaves_it_alone(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteEngine(filled) as engine:
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            for ask in (engine.page, lambda: engine.remove(IDS)):
                with pytest.raises(EngineError, match="forked"):
                    ask()
            engine._file.close()
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])


def test_closed(filled: Path) -> None:
    engine = SqliteEngine(filled)
    engine.close()
    asked: list[Callable[[], object]] = [
        engine.size,
        engine.page,
        engine.count,
        lambda: engine.count("x"),
        lambda: list(engine.scan()),
        lambda: engine.search(VECTORS, 1),
        lambda: engine.fetch(IDS),
        lambda: engine.picture("a"),
        lambda: engine.notes["model"],
        *changes(engine),
    ]
    for ask in asked:
        with pytest.raises(EngineUnavailableError, match="is closed"):
            ask()


@pytest.mark.parametrize("place", ["put", "relabel", "forget"])
def test_memory_that_could_not_follow_is_loaded_again(
    filled: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise MemoryError

    with SqliteEngine(filled) as engine:
        monkeypatch.setattr(PointNames, place, fail)
        if place == "put":
            engine.add(VECTORS[:1], np.array(["d"]), np.array(["z"]))
            expected = ["a", "b", "c", "d"], ["x", "y", "x", "z"]
        elif place == "relabel":
            engine.relabel(IDS[:2], np.array(["z", "z"]))
            expected = ["a", "b", "c"], ["z", "z", "x"]
        else:
            engine.remove(IDS[:1])
            expected = ["b", "c"], ["y", "x"]
        check_holds(engine, *expected)
        engine.add(VECTORS[:1], np.array(["e"]), np.array(["z"]))
        check_holds(engine, [*expected[0], "e"], [*expected[1], "z"])


def test_an_interrupt_between_file_and_memory(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with SqliteEngine(filled) as engine:
        monkeypatch.setattr(PointNames, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.add(VECTORS[:1], np.array(["d"]), np.array(["z"]))
        check_holds(engine, ["a", "b", "c", "d"], ["x", "y", "x", "z"])


def test_memory_that_cannot_be_loaded_is_not_used(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    with SqliteEngine(filled) as engine:
        monkeypatch.setattr(PointNames, "put", fail)
        monkeypatch.setattr(Memory, "of", fail)
        with pytest.raises(EngineError, match="open it again"):
            engine.add(VECTORS[:1], np.array(["d"]), np.array(["z"]))
        with pytest.raises(EngineUnavailableError):
            engine.search(VECTORS, 1)
    monkeypatch.undo()
    with SqliteEngine(filled) as engine:
        check_holds(engine, ["a", "b", "c", "d"], ["x", "y", "x", "z"])


@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_what_the_index_refuses_does_not_reach_the_file(path: Path, index: str) -> None:
    with SqliteEngine.create(path, DIMENSION, index=index) as engine:
        engine.add(VECTORS, IDS, LABELS)
        with pytest.raises(InvalidInputError, match="single precision"):
            engine.add(np.full((1, DIMENSION), 1e30), np.array(["far"]), np.array(["z"]))
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])
    with SqliteEngine.create(path.with_name("c.sqlite"), DIMENSION, metric="cosine") as engine:
        with pytest.raises(InvalidInputError, match="zero vector"):
            engine.add(np.full((1, DIMENSION), 1e-60), np.array(["tiny"]), np.array(["z"]))
        assert engine.count() == len(engine.page().ids) == 0


def test_vectors_that_only_exact_search_takes(filled: Path) -> None:
    """They came in by exact search; another index is asked for later."""
    with SqliteEngine(filled) as engine:
        engine.add(np.full((1, DIMENSION), 1e30), np.array(["far"]), np.array(["z"]))
    with SqliteEngine(filled, index="hnsw") as engine:
        assert engine.index_type == engine.fingerprint()["index"] == "exact"
        check_holds(engine, ["a", "b", "c", "far"], ["x", "y", "x", "z"])


def test_what_a_deleted_gallery_left_behind_is_not_read(path: Path) -> None:
    with SqliteEngine.create(path, DIMENSION) as engine:
        engine.add(VECTORS, IDS, LABELS)
        log = path.with_name(path.name + "-wal").read_bytes()
    path.unlink()
    path.with_name(path.name + "-wal").write_bytes(log)
    with SqliteEngine.create(path, DIMENSION) as engine:
        assert engine.size() == engine.count() == 0


def test_every_code_of_sqlite_has_an_error(path: Path) -> None:
    codes = {
        value & KIND
        for name, value in vars(sqlite3).items()
        if name.startswith("SQLITE_") and isinstance(value, int)
    }
    for code in codes:
        error = sqlite3.OperationalError("what SQLite says")
        error.sqlite_errorcode = code
        told = engine_error(error, str(path))
        assert isinstance(told, NearsureError)
        assert str(told).startswith(str(path))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the module of Python 3.10 has no codes")
def test_codes_and_sentences_are_those_of_sqlite(tmp_path: Path) -> None:
    for name in ("BUSY", "CANTOPEN", "CONSTRAINT", "CORRUPT", "FULL", "IOERR", "LOCKED", "NOMEM"):
        assert getattr(file, name) == getattr(sqlite3, f"SQLITE_{name}")
    for name in ("NOTADB", "PERM", "READONLY", "TOOBIG"):
        assert getattr(file, name) == getattr(sqlite3, f"SQLITE_{name}")
    (tmp_path / "text").write_text("no database, and long enough to be sure of it" * 100)
    with closing(sqlite3.connect(tmp_path / "good", isolation_level=None, timeout=0)) as first:
        first.execute("CREATE TABLE t (x)")
        first.execute("BEGIN EXCLUSIVE")
        for address, statement in (
            ("text", "SELECT * FROM t"),
            ("good", "SELECT * FROM t"),
            ("good?mode=ro&immutable=1", "INSERT INTO t VALUES (1)"),
            ("missing/folder", "SELECT 1"),
        ):
            with pytest.raises(sqlite3.Error) as caught:  # noqa: PT012
                uri = f"file:{tmp_path}/{address}"
                with closing(sqlite3.connect(uri, uri=True, timeout=0)) as second:
                    second.execute(statement)
            assert file._SAID[str(caught.value)] == caught.value.sqlite_errorcode & KIND


def test_no_password_of_a_mistaken_address_is_repeated() -> None:
    with pytest.raises(NearsureError) as caught:
        SqliteEngine("ann:s3cret@db/gallery.sqlite")
    assert "s3cret" not in str(caught.value)


def test_prepared_before_it_is_committed() -> None:
    """An index that refuses a change has not let it be committed."""
    index = CommittedIndex(DIMENSION, "exact")
    with (
        index.committing(lambda: pytest.fail("it was committed")),
        pytest.raises(InvalidInputError),
    ):
        index.remove(np.array([5]))


PARTS = ("", "-wal", "-shm", ".lock")


def lose(part: Path, how: str) -> None:
    """Take a file away from under whoever has it open."""
    if how == "unlinked":
        part.unlink()
        return
    if how == "moved":
        part.rename(part.with_name("elsewhere"))
        return
    other = part.with_name("other")
    other.write_bytes(part.read_bytes())
    other.replace(part)


@pytest.mark.parametrize("how", ["unlinked", "moved", "replaced"])
@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_acknowledged_that_would_be_lost(
    filled: Path, part: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A write beside the file that others open is no write."""
    with SqliteEngine(filled) as engine:
        lose(filled.with_name(filled.name + part), how)
        for change in changes(engine):
            with pytest.raises(EngineUnavailableError, match="was removed or replaced"):
                change()
        for ask in (engine.size, engine.page, lambda: engine.notes["model"]):
            with pytest.raises(EngineUnavailableError, match=f"{filled.name}{part} "):
                ask()
        assert engine.search(VECTORS, 1).ids[:, 0].tolist() == ["a", "b", "c"]
    told = [one.message for one in caplog.records if "was removed or replaced" in one.message]
    assert len(told) == 1


def test_a_file_that_was_lost_stays_lost(filled: Path) -> None:
    """Another process may have written it meanwhile, of which this one knows nothing."""
    with SqliteEngine(filled) as engine:
        filled.rename(filled.with_name("elsewhere"))
        with pytest.raises(EngineUnavailableError):
            engine.size()
        filled.with_name("elsewhere").rename(filled)
        with pytest.raises(EngineUnavailableError, match="was removed or replaced"):
            engine.remove(IDS[:1])
    with SqliteEngine(filled) as engine:
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])


@pytest.mark.parametrize("moment", ["BEGIN", "UPDATE", "COMMIT"])
def test_a_file_that_is_lost_while_a_change_is_written(filled: Path, moment: str) -> None:
    """Found out before it is acknowledged, however late."""

    def lost(statement: str) -> None:
        if statement.startswith(moment):
            filled.unlink()

    with SqliteEngine(filled) as engine:
        engine._file._writer.set_trace_callback(lost)
        with pytest.raises(EngineUnavailableError, match="was removed or replaced"):
            engine.relabel(IDS[:1], np.array(["z"]))
        assert not filled.exists()
        assert engine.search(VECTORS[:1], 1).labels == [["x"]]


def test_a_second_service_with_a_lock_of_its_own(filled: Path) -> None:
    """Whoever deletes the lock lets another one in: one of them writes from then on."""
    with SqliteEngine(filled) as first:
        filled.with_name(filled.name + ".lock").unlink()
        with SqliteEngine(filled) as second:
            second.relabel(IDS[:1], np.array(["second"]))
            with pytest.raises(EngineUnavailableError, match="was removed or replaced"):
                first.relabel(IDS[:1], np.array(["first"]))
    with SqliteEngine(filled) as engine:
        check_holds(engine, ["a", "b", "c"], ["second", "y", "x"])


def test_a_file_with_two_names(filled: Path) -> None:
    """Each name would have a log of its own, and a lock of its own."""
    link = filled.with_name("link.sqlite")
    with SqliteEngine(filled) as engine:
        link.hardlink_to(filled)
        with pytest.raises(EngineAccessError, match="2 names"):
            SqliteEngine(link)
        engine.remove(IDS[:1])
    for path in (filled, link):
        with pytest.raises(EngineAccessError, match="hard link"):
            SqliteEngine(path)
    link.unlink()
    with SqliteEngine(filled) as engine:
        check_holds(engine, ["b", "c"], ["y", "x"])


def test_a_lock_that_is_deleted_while_it_is_taken(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is locked is the file that others will find."""
    lock = filled.with_name(filled.name + ".lock")
    flock = fcntl.flock

    def deleted(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()

    monkeypatch.setattr(fcntl, "flock", deleted)
    with SqliteEngine(filled) as engine:
        engine.remove(IDS[:1])
        with pytest.raises(EngineUnavailableError, match="has a writer already"):
            SqliteEngine(filled)


def changes(engine: SqliteEngine) -> list[Callable[[], None]]:
    return [
        lambda: engine.add(VECTORS[:1], np.array(["d"]), np.array(["z"])),
        lambda: engine.remove(IDS[:1]),
        lambda: engine.relabel(IDS[:1], np.array(["z"])),
        lambda: engine.put_pictures({"a": b"picture"}),
        lambda: engine.notes.__setitem__("model", b"bytes"),
    ]


def test_readers_beside_a_writer_see_one_state(filled: Path) -> None:
    """Opened before, between and after changes, each reader has its own state, and has it whole."""
    with SqliteEngine(filled) as writer:
        writer.put_pictures({"a": b"first"})
        writer.notes["model"] = b"first"
        with SqliteEngine(filled, read_only=True) as early:
            writer.remove(IDS[:1])
            writer.relabel(IDS[1:2], np.array(["z"]))
            writer.notes["model"] = b"second"
            with SqliteEngine(filled, read_only=True) as late:
                check_holds(early, ["a", "b", "c"], ["x", "y", "x"])
                assert np.array_equal(np.asarray(early.fetch(IDS).vectors), VECTORS)
                assert (early.picture("a"), early.notes["model"]) == (b"first", b"first")
                check_holds(late, ["b", "c"], ["z", "x"])
                assert late.notes["model"] == b"second"
        check_holds(writer, ["b", "c"], ["z", "x"])
    with SqliteEngine(filled) as writer:
        check_holds(writer, ["b", "c"], ["z", "x"])


def test_a_reader_changes_nothing(filled: Path) -> None:
    before = filled.read_bytes()
    with SqliteEngine(filled, read_only=True) as engine:
        for change in changes(engine):
            with pytest.raises(EngineAccessError, match="opened to be read only"):
                change()
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])
    assert filled.read_bytes() == before
    assert not filled.with_name(filled.name + ".lock").read_bytes()
    with pytest.raises(EngineUnavailableError, match="is closed"):
        engine.page()


def test_a_reader_needs_no_right_to_write(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: allowed(path, mode) and mode == os.R_OK)
    with pytest.raises(EngineAccessError, match="may not be read and written"):
        SqliteEngine(filled)
    with SqliteEngine(filled, read_only=True) as engine:
        check_holds(engine, ["a", "b", "c"], ["x", "y", "x"])


def test_a_gallery_that_is_replaced_under_a_reader(filled: Path, tmp_path: Path) -> None:
    """The reader goes on with the old one, and its end does not touch the log of the new one."""
    made = tmp_path / "made" / "gallery.sqlite"
    made.parent.mkdir()
    with SqliteEngine.create(made, DIMENSION) as engine:
        engine.add(VECTORS[:1], np.array(["new"]), LABELS[:1])
    with SqliteEngine(filled, read_only=True) as reader:
        put_in_place(made, filled)
        with SqliteEngine(filled) as writer:
            writer.relabel(np.array(["new"]), np.array(["logged"]))
            check_holds(reader, ["a", "b", "c"], ["x", "y", "x"])
            reader.close()
            writer.check()
        with SqliteEngine(filled) as writer:
            check_holds(writer, ["new"], ["logged"])


def test_no_replacement_while_an_older_state_is_read(filled: Path, tmp_path: Path) -> None:
    """Its log could not be moved into it: a process that ends then would leave half of it."""
    with SqliteEngine(filled, read_only=True) as reader:
        with SqliteEngine(filled) as writer:
            writer.remove(IDS[:1])
        with pytest.raises(EngineUnavailableError, match="is being read"):
            put_in_place(tmp_path / "made", filled)
        check_holds(reader, ["a", "b", "c"], ["x", "y", "x"])
    with SqliteEngine(filled) as writer:
        check_holds(writer, ["b", "c"], ["y", "x"])
