"""Galleries are copied as they are, and put back without what the old one left."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import nearsure, points, refused, succeeded, write_npz

from nearsure.cli import backup
from nearsure.engines.sqlite import SqliteEngine
from nearsure.engines.sqlite import engine as creation
from nearsure.errors import EngineUnavailableError

DIMENSION = 4


def beside(path: Path) -> list[str]:
    """Names of the files in a folder, without the lock."""
    return sorted(one.name for one in path.parent.iterdir() if one.suffix != ".lock")


def contents(path: Path) -> dict[str, str]:
    with SqliteEngine(path) as engine:
        (stored,) = engine.scan()
        assert engine.size() == len(stored.ids)
    return dict(zip(stored.ids.tolist(), np.asarray(stored.labels).tolist(), strict=True))


@contextmanager
def crashing(path: Path) -> Iterator[SqliteEngine]:
    """A gallery whose changes in the block stay in its log, as after a crash."""
    with SqliteEngine(path) as engine:
        yield engine
        left = {file: file.read_bytes() for file in (path, Path(f"{path}-wal"))}
    assert all(left.values())
    for file, content in left.items():
        file.write_bytes(content)


def crash(path: Path) -> None:
    with crashing(path) as engine:
        names = np.array([f"late {i}" for i in range(300)])
        engine.add(np.ones((300, 4)), names, np.full(300, "late"))
        engine.remove(np.array(["p0"]))


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    vectors, labels = points()
    (tmp_path / "served").mkdir()
    path = tmp_path / "served" / "g.sqlite"
    with SqliteEngine.create(path, DIMENSION) as engine:
        engine.add(vectors, np.array([f"p{i}" for i in range(90)]), labels)
        engine.put_pictures({"p3": b"picture"})
        engine.notes["model"] = b"fit"
    return path


def test_what_is_restored_is_what_was_backed_up(gallery: Path, tmp_path: Path) -> None:
    before = contents(gallery)
    copy = tmp_path / "backups" / "g.sqlite"
    run = succeeded("backup", gallery, copy)
    assert run.out == f"wrote {copy}\n"
    assert [one.name for one in copy.parent.iterdir()] == ["g.sqlite"]
    with SqliteEngine(gallery) as engine:
        engine.remove(np.array(["p1"]))
    new = tmp_path / "new" / "h.sqlite"
    succeeded("restore", copy, new)
    succeeded("restore", copy, gallery, "--replace")
    for path in (gallery, new, copy):
        assert contents(path) == before
        with SqliteEngine(path) as engine:
            assert (engine.picture("p3"), engine.notes["model"]) == (b"picture", b"fit")


def test_a_backup_of_a_gallery_that_is_open(gallery: Path, tmp_path: Path) -> None:
    """What is only in the log is there, and the gallery goes on."""
    copy = tmp_path / "copy.sqlite"
    with SqliteEngine(gallery) as engine:
        engine.relabel(np.array(["p0"]), np.array(["late"]))
        succeeded("backup", gallery, copy)
        engine.relabel(np.array(["p0"]), np.array(["later"]))
        assert engine.size() == 90
    assert contents(copy)["p0"] == "late"
    assert contents(gallery)["p0"] == "later"


def test_a_backup_while_others_write_is_of_one_moment(
    gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "PAGES", 1)
    steps: list[int] = []
    with SqliteEngine(gallery) as engine:

        def advance(n_bytes: int) -> None:
            engine.relabel(np.array(["p0", "p89"]), np.array([f"{len(steps)}"] * 2))
            steps.append(n_bytes)

        creation.copy_gallery(gallery, tmp_path / "copy.sqlite", advance)
        assert len(steps) > 3
        assert sum(steps) == (tmp_path / "copy.sqlite").stat().st_size
    found = contents(tmp_path / "copy.sqlite")
    assert (found["p0"], found["p89"]) == (points()[1][0], points()[1][89])
    assert contents(gallery)["p0"] == f"{len(steps) - 1}"


def test_a_backup_of_a_gallery_that_crashed(gallery: Path, tmp_path: Path) -> None:
    crash(gallery)
    succeeded("backup", gallery, tmp_path / "copy.sqlite")
    found = contents(tmp_path / "copy.sqlite")
    assert (len(found), found["late 7"]) == (389, "late")


def test_a_log_that_is_left_does_not_reach_what_is_restored(gallery: Path, tmp_path: Path) -> None:
    """Beside a file that is copied by hand, it does."""
    before = contents(gallery)
    copy = tmp_path / "copy.sqlite"
    succeeded("backup", gallery, copy)
    crash(gallery)
    by_hand = tmp_path / "by_hand" / "g.sqlite"
    by_hand.parent.mkdir()
    shutil.copy(f"{gallery}-wal", f"{by_hand}-wal")
    shutil.copy(copy, by_hand)
    assert contents(by_hand) != before
    Path(f"{gallery}.index").write_bytes(b"of the old gallery")
    succeeded("restore", copy, gallery, "--replace")
    assert beside(gallery) == ["g.sqlite"]
    assert contents(gallery) == before


def test_an_open_gallery_is_not_replaced(gallery: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    succeeded("backup", gallery, copy)
    with SqliteEngine(gallery) as engine:
        assert "has a writer already" in refused("restore", copy, gallery, "--replace")
        engine.remove(np.array(["p0"]))
    assert len(contents(gallery)) == 89
    assert beside(gallery) == ["g.sqlite"]


def test_readers_run_beside_a_writer(gallery: Path, tmp_path: Path) -> None:
    """And beside each other; a second writer is refused with a sentence."""
    queries = write_npz(tmp_path / "queries.npz", *points(seed=1))
    succeeded("fit", gallery)
    with SqliteEngine(gallery) as writer, SqliteEngine(gallery, read_only=True):
        writer.remove(np.array(["p0"]))
        found = succeeded("predict", queries, "--model", gallery, "--neighbors", 90, "--json").json
        assert "p0" not in [one["id"] for answer in found for one in answer["neighbors"]]
        assert succeeded("audit", "--model", gallery, "--json").json["n_points"] == 89
        succeeded("report", "--model", gallery, "-o", tmp_path / "report.html")
        assert "may have one only" in refused("fit", gallery)
        assert "may have one only" in refused("recalibrate", queries, "--model", gallery)


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_reader_of_a_copy_locks_no_writer_out(
    gallery: Path, tmp_path: Path, command: str
) -> None:
    copy = tmp_path / "copies" / "copy.sqlite"
    succeeded(command, gallery, copy)
    assert [one.name for one in copy.parent.iterdir()] == ["copy.sqlite"]
    with SqliteEngine(copy, read_only=True) as reader, SqliteEngine(copy, timeout=0.0) as writer:
        writer.remove(np.array(["p0"]))
        assert (reader.size(), writer.size()) == (90, 89)


def test_a_backup_on_a_disk_that_is_only_read(
    gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made beside it, not even while it is read."""
    before = contents(gallery)
    allowed = os.access
    served = gallery.parent
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) not in (served, gallery) and allowed(path, mode)
    )
    seen: list[list[str]] = []
    copy = tmp_path / "copy.sqlite"
    creation.copy_gallery(gallery, copy, lambda _: seen.append(beside(gallery)))
    assert seen
    assert all(names == ["g.sqlite"] for names in seen)
    monkeypatch.undo()
    assert contents(copy) == before
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) not in (served, gallery))
    with pytest.raises(EngineUnavailableError, match="was written while it was copied"):
        creation.copy_gallery(
            gallery, tmp_path / "torn.sqlite", lambda _: os.utime(gallery, (0, 0))
        )


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_what_is_there_stays_unless_it_is_to_go(
    gallery: Path, tmp_path: Path, command: str
) -> None:
    copy = tmp_path / "copy.sqlite"
    succeeded(command, gallery, copy)
    before = copy.read_bytes()
    assert "--replace" in refused(command, gallery, copy)
    assert copy.read_bytes() == before
    succeeded(command, gallery, copy, "--replace")
    photos = tmp_path / "photos.sqlite"
    with closing(sqlite3.connect(photos)) as connection:
        connection.execute("CREATE TABLE precious (a)")
    assert "photos.sqlite is none" in refused(command, gallery, photos, "--replace")
    assert "not a gallery of nearsure" in refused(command, photos, tmp_path / "new.sqlite")
    assert not (tmp_path / "new.sqlite").exists()


def corrupt(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def relabel_with_bytes(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE points SET label = x'ff' WHERE id = 'p0'")
        connection.commit()


def link(path: Path) -> None:
    path.with_name("other.sqlite").hardlink_to(path)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (corrupt, "is damaged"),
        (cut, "is damaged"),
        (relabel_with_bytes, "that no gallery with its settings does"),
        (link, "hard link"),
        (Path.unlink, "There is no gallery at"),
        (lambda path: path.write_text("text"), "is not an SQLite database"),
    ],
)
@pytest.mark.parametrize("command", ["backup", "restore"])
def test_what_is_no_whole_gallery_replaces_none(
    gallery: Path, tmp_path: Path, command: str, harm: Callable[[Path], Any], said: str
) -> None:
    copy = tmp_path / "copy.sqlite"
    succeeded("backup", gallery, copy)
    before = contents(gallery)
    harm(copy)
    assert said in refused(command, copy, gallery, "--replace")
    assert contents(gallery) == before
    assert beside(gallery) == ["g.sqlite"]


def test_names_that_cannot_be_meant(gallery: Path, tmp_path: Path) -> None:
    assert "must be another file" in refused("backup", gallery, gallery, "--replace")
    assert "must end in .sqlite" in refused("backup", gallery, tmp_path / "copy.db")
    assert "must be a file" in refused("restore", "postgresql://u:s3cret@h/db", gallery)
    (tmp_path / "folder.sqlite").mkdir()
    assert "is a folder" in refused("backup", gallery, tmp_path / "folder.sqlite")
    file = write_npz(tmp_path / "g.npz", *points())
    assert "is not an SQLite database" in refused("restore", file, tmp_path / "n.sqlite")


def test_ctrl_c_leaves_nothing(
    gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(creation, "_check_whole", interrupted)
    (tmp_path / "backups").mkdir()
    assert nearsure("backup", gallery, tmp_path / "backups" / "copy.sqlite").code == 130
    assert list((tmp_path / "backups").iterdir()) == []


def test_nobody_may_read_a_backup_who_may_not_read_the_gallery(
    gallery: Path, tmp_path: Path
) -> None:
    gallery.chmod(0o640)
    succeeded("backup", gallery, tmp_path / "copy.sqlite")
    assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o640


def test_only_a_gallery_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = write_npz(tmp_path / "g.npz", *points())
    photos = tmp_path / "photos.sqlite"
    with closing(sqlite3.connect(photos)) as connection:
        connection.execute("CREATE TABLE precious (a)")
    before = photos.read_bytes()
    words = ["fit", gallery, "--replace", "-o"]
    assert "photos.sqlite is none" in refused(*words, photos)
    assert photos.read_bytes() == before
    path = tmp_path / "new" / "g.sqlite"
    succeeded("fit", gallery, "-o", path)
    write_npz(gallery, *points(60))

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as on_a_full_disk:
        on_a_full_disk.setattr(Path, "replace", full)
        assert nearsure(*words, path).code == 2
    with SqliteEngine(path) as engine:
        assert engine.size() == 90
    succeeded(*words, path)
    with SqliteEngine(path) as engine:
        assert engine.size() == 60
    assert sorted(one.name for one in path.parent.iterdir()) == ["g.sqlite", "g.sqlite.lock"]


def test_what_an_old_gallery_has_in_its_log_is_not_taken_for_the_new_ones(tmp_path: Path) -> None:
    vectors, labels = points()
    made = tmp_path / "made" / "g.sqlite"
    old = tmp_path / "g.sqlite"
    made.parent.mkdir()
    for path, n in ((made, 30), (old, 90)):
        with SqliteEngine.create(path, 4, ids="integer") as engine:
            engine.add(vectors[:n], np.arange(n), labels[:n])
    with crashing(old) as engine:
        engine.remove(np.array([1]))
    backup.place_gallery(made, old, replace=True)
    with SqliteEngine(old) as engine:
        assert engine.size() == 30
