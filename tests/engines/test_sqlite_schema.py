"""A file that somebody else has altered is refused in one sentence, and nothing in it runs."""

import runpy
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nearsure.cli import main
from nearsure.engines.sqlite import SqliteEngine, file
from nearsure.errors import EngineError, GalleryMismatchError, MissingExtraError

IDS = np.array(["a", "b", "c"])
LABELS = np.array(["x", "y", "x"])
VECTORS = np.eye(3, dtype=np.float32)
FORGED = (
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_master SET sql = replace(sql, 'length(vector) = 12', 'length(vector) = {}')",
)
TABLE = "not as nearsure makes a gallery: see its {}"
VALUES = "holds values in its table '{}'"
ALTERATIONS = {
    "another dimension": (
        ["UPDATE settings SET value = 4 WHERE name = 'dimension'"],
        TABLE.format("table 'points'"),
    ),
    "a huge dimension, forged well": (
        [
            "UPDATE settings SET value = 100000000 WHERE name = 'dimension'",
            FORGED[0],
            FORGED[1].format(400000000),
        ],
        VALUES.format("points"),
    ),
    "a dimension that is no integer": (
        ["UPDATE settings SET value = 3.0 WHERE name = 'dimension'"],
        "has settings that this nearsure does not understand",
    ),
    "an infinite dimension": (
        ["UPDATE settings SET value = 9e999 WHERE name = 'dimension'"],
        "has settings that this nearsure does not understand",
    ),
    "no settings": (["DROP TABLE settings"], TABLE.format("table 'settings'")),
    "a trigger": (
        ["CREATE TRIGGER t AFTER INSERT ON notes BEGIN DELETE FROM points; END"],
        TABLE.format("trigger 't'"),
    ),
    "a view": (["CREATE VIEW v AS SELECT * FROM points"], TABLE.format("view 'v'")),
    "a view in the place of a table": (
        ["DROP TABLE settings", "CREATE VIEW settings AS SELECT 'dimension' AS name, 3 AS value"],
        TABLE.format("table 'settings'"),
    ),
    "a foreign table": (["CREATE TABLE accounts (name)"], TABLE.format("table 'accounts'")),
    "an index on a function": (
        ["CREATE INDEX i ON points (upper(label))"],
        TABLE.format("index 'i'"),
    ),
    "a generated column": (
        ["ALTER TABLE notes ADD COLUMN more GENERATED ALWAYS AS (upper(name))"],
        TABLE.format("table 'notes'"),
    ),
    "an id of bytes": (["UPDATE points SET id = x'ff' WHERE id = 'b'"], VALUES.format("points")),
    "a label of bytes": (["UPDATE points SET label = x'ff'"], VALUES.format("points")),
    "a short vector": (["UPDATE points SET vector = x'00'"], VALUES.format("points")),
    "a vector of text": (["UPDATE points SET vector = 'twelve bytes'"], VALUES.format("points")),
    "negative rows": (["UPDATE points SET row = -row - 5"], VALUES.format("points")),
    "the last of all rows": (
        ["UPDATE points SET row = 9223372036854775807 WHERE id = 'c'"],
        VALUES.format("points"),
    ),
    "a text to count rows": (
        ["UPDATE sqlite_sequence SET seq = 'many'"],
        VALUES.format("sqlite_sequence"),
    ),
    "a note of text": (["INSERT INTO notes VALUES ('model', 'text')"], VALUES.format("notes")),
    "a note of a number": (
        ["INSERT INTO notes VALUES ('model', 10000000000)"],
        VALUES.format("notes"),
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gallery.sqlite"
    with SqliteEngine.create(path, 3) as engine:
        engine.add(VECTORS, IDS, LABELS)
    return path


def alter(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("PRAGMA ignore_check_constraints = ON", *statements):
            connection.execute(statement)


@pytest.mark.parametrize(("statements", "sentence"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_refused(path: Path, statements: list[str], sentence: str) -> None:
    alter(path, *statements)
    before = path.read_bytes()
    with pytest.raises(GalleryMismatchError, match=sentence):
        SqliteEngine(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE points SET vector = x'0000c07f0000c07f0000c07f'", "no index takes"),
        ("UPDATE points SET label = CAST(x'ff' AS TEXT)", "UTF-8"),
    ],
    ids=["numbers that are none", "text that is none"],
)
def test_values_of_the_right_kind_that_mean_nothing(
    path: Path, statement: str, sentence: str
) -> None:
    alter(path, statement)
    with pytest.raises(EngineError, match=sentence):
        SqliteEngine(path)


@pytest.mark.parametrize(
    "command",
    [["fit", "{}"], ["predict", "queries.jsonl", "-m", "{}"], ["serve", "{}", "--port", "0"]],
    ids=lambda command: command[0],
)
def test_a_command_says_so(
    path: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alter(path, *ALTERATIONS["a trigger"][0])
    monkeypatch.chdir(path.parent)
    Path("queries.jsonl").write_text('{"vector": [1, 0, 0]}\n')
    monkeypatch.setattr(sys, "argv", ["nearsure", *(word.format(path.name) for word in command)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "see its trigger 't'" in told
    assert "Traceback" not in told


def test_altered_while_it_is_open(path: Path) -> None:
    with SqliteEngine(path) as engine:
        alter(path, "UPDATE points SET id = x'ff' WHERE id = 'a'")
        with pytest.raises(GalleryMismatchError, match="holds what no gallery does"):
            engine.page()
        alter(path, "UPDATE points SET vector = x'00' WHERE id = 'b'")
        with pytest.raises(GalleryMismatchError, match="holds what no gallery does"):
            engine.fetch(IDS[1:])


def test_what_is_no_picture_is_none(path: Path) -> None:
    alter(path, "INSERT INTO pictures SELECT row, 'text' FROM points")
    with SqliteEngine(path) as engine:
        assert engine.picture("a") is None


def test_functions_of_a_file_are_not_trusted(path: Path) -> None:
    with SqliteEngine(path) as engine, engine._file.reading() as reader:
        for connection in (engine._file._writer, reader):
            assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)


@pytest.mark.parametrize("kind", ["text", "integer"])
def test_a_gallery_whose_changes_are_watched_is_as_it_should_be(path: Path, kind: str) -> None:
    other = path.with_name("other.sqlite")
    with SqliteEngine.create(other, 3, ids=kind) as engine:  # type: ignore[arg-type]
        engine.changes.watch()
        engine.add(VECTORS, IDS if kind == "text" else np.arange(3), LABELS)
    with SqliteEngine(other) as engine:
        assert len(engine.changes.since(0)) == engine.size() == 3
    alter(other, "UPDATE changes SET id = x'ff' WHERE number = 1")
    with pytest.raises(GalleryMismatchError, match="table 'changes'"):
        SqliteEngine(other)


def test_a_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    lacking = runpy.run_path(str(file.__file__))
    with pytest.raises(MissingExtraError, match="Windows"):
        lacking["FileLock"](path, "gallery.sqlite")
