"""Odd names of files, links in a circle and too little memory end in a sentence, or work."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_runs import fitted_model, points, refused, succeeded, write_npz

from nearsure import NEDClassifier
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineAccessError

# A name that is no UTF-8, as a file system may hold it.
NAME = os.fsdecode(b"\xff-owls")


@pytest.mark.parametrize(
    "words",
    [
        "fit loop.npz -o new.safetensors",
        "fit gallery.npz -o loop.safetensors",
        "fit gallery.npz -o loop.sqlite",
        "fit gallery.npz -o loops/new.sqlite",
        "predict loop.npz -m model.safetensors",
        "predict gallery.npz -m loop.safetensors",
        "predict gallery.npz -m loop.sqlite",
        "predict gallery.npz -m model.safetensors -o loop.csv",
        "report -m model.safetensors -o loop.html",
        "report -m model.safetensors --json loop.json",
        "audit gallery.npz -o loop.csv",
        "audit loop.npz",
        "calibrate loop.npz --distance l2",
        "evaluate gallery.npz --gallery loop.npz",
        "evaluate loop.npz -m model.safetensors",
        "backup loop.sqlite new.sqlite",
    ],
)
def test_links_that_lead_in_a_circle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "gallery.npz", *points())
    (tmp_path / "model.safetensors").touch()
    for end in ("npz", "safetensors", "sqlite", "csv", "html", "json"):
        (tmp_path / f"loop.{end}").symlink_to(f"pool.{end}")
        (tmp_path / f"pool.{end}").symlink_to(f"loop.{end}")
    (tmp_path / "loops").symlink_to("loops")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert "loop" in refused(*words.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_gallery_that_is_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.sqlite"
    path.symlink_to(path)
    with pytest.raises(EngineAccessError, match="symbolic links"):
        SqliteEngine(path)
    with pytest.raises(EngineAccessError, match="symbolic links"):
        SqliteEngine.create(path, 2)


def test_names_of_files_that_are_no_utf_8(tmp_path: Path) -> None:
    """Every command, in a process of its own: its streams are those that people have."""
    folder = tmp_path / NAME
    folder.mkdir()
    write_npz(folder / f"{NAME}.npz", *points())
    commands = [
        ["fit", f"{NAME}.npz", "-o", f"{NAME}.safetensors"],
        ["fit", f"{NAME}.npz", "-o", f"{NAME}.sqlite"],
        ["predict", f"{NAME}.npz", "-m", f"{NAME}.sqlite", "-o", f"{NAME}.csv"],
        ["report", "-m", f"{NAME}.safetensors", "-o", f"{NAME}.html", "--resamples", "10"],
        ["backup", f"{NAME}.sqlite", f"{NAME}2.sqlite"],
        ["restore", f"{NAME}2.sqlite", f"{NAME}.sqlite", "--replace"],
        ["audit", "-m", f"{NAME}.sqlite", "--json"],
    ]
    code = "import sys; from nearsure.cli import main\n"
    code += "for words in COMMANDS:\n    sys.argv = ['nearsure', *words]\n"
    code += "    try: main()\n    except SystemExit as end: assert not end.code, (words, end.code)"
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code.replace("COMMANDS", repr(commands))],
        cwd=folder,
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert (run.returncode, run.stderr) == (0, b"")
    assert rb"wrote \udcff-owls.csv" in run.stdout
    assert json.loads(run.stdout[run.stdout.index(b"\n{\n") :])["n_points"] == 90
    assert {path.suffix for path in folder.iterdir()} == {
        *(".npz", ".safetensors", ".sqlite", ".csv", ".html", ".lock")
    }


def test_text_that_is_no_unicode(tmp_path: Path) -> None:
    vectors, labels = points()
    labels = labels.astype("<U9")
    labels[3] = "half \ud800"
    gallery = write_npz(tmp_path / "g.npz", vectors, labels)
    model = fitted_model(tmp_path)
    for words in (
        ["fit", gallery, "-o", tmp_path / "m.safetensors"],
        ["fit", gallery, "-o", tmp_path / "m.sqlite"],
        ["evaluate", gallery, "-m", model],
        ["report", gallery, "-m", model, "-o", tmp_path / "r.html"],
        ["audit", gallery, "--json"],
    ):
        assert "Row 3 has as its label a text with half a character" in refused(*words)
    words = ["report", "-m", model, "-o", tmp_path / "r.html", "--title", "half \ud800"]
    succeeded(*words, "--resamples", 10)
    assert "half \\ud800" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    "error", [MemoryError(), MemoryError("Unable to allocate 9 TiB"), KeyError("a bug")]
)
def test_too_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    gallery = write_npz(tmp_path / "g.npz", *points())
    monkeypatch.setattr(NEDClassifier, "fit", fail)
    words = ["fit", gallery, "-o", tmp_path / "m.safetensors"]
    if isinstance(error, MemoryError):
        assert f"memory{f' ({error})' if str(error) else ''}." in refused(*words)
    else:
        # Other errors are bugs, and keep their traceback.
        with pytest.raises(type(error)):
            refused(*words)


def test_no_command_lets_a_spreadsheet_compute_a_name(tmp_path: Path) -> None:
    vectors, labels = points()
    ids = np.array([f"=HYPERLINK({row})" for row in range(90)])
    named = np.char.add("@", labels)
    gallery = write_npz(tmp_path / "g.npz", vectors, named, ids=ids)
    model = tmp_path / "g.sqlite"
    succeeded("fit", gallery, "-o", model)
    hits = tmp_path / "hits.jsonl"
    line = {"distances": [1.0, 2.0], "labels": ["@owl", "@wren"], "truth": "@owl"}
    hits.write_text("".join(json.dumps({**line, "id": own}) + "\n" for own in ids.tolist()))
    for words in (
        ["predict", gallery, "-m", model],
        ["calibrate", hits, "--distance", "l2", "--rule", "1nn", "--calibration", "none"],
        ["audit", gallery],
    ):
        for guard in ([], ["--guard-formulas"]):
            succeeded(*words, *guard, "-o", tmp_path / "a.csv")
            with (tmp_path / "a.csv").open(newline="") as file:
                rows = list(csv.DictReader(file))
            assert rows
            starts = {(row["id"][:2], row["label"][:2]) for row in rows}
            assert all(
                (own[0] == label[0] == "'") if guard else (own[0], label[0]) == ("=", "@")
                for own, label in starts
            )
        for other in (["-o", tmp_path / "a.parquet"], ["--json"]):
            assert "--guard-formulas is of csv" in refused(*words, "--guard-formulas", *other)
