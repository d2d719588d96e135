"""No command destroys what it reads, or repeats a password; what is printed can be read."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from cli_runs import fitted_model, points, refused, succeeded, write_npz

from nearsure.cli.outputs import command_line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    fitted_model(folder)
    vectors, labels = points()
    lines = [",".join(map(str, row)) for row in vectors.tolist()]
    named = [f"{line},{label}" for line, label in zip(lines, labels, strict=True)]
    (folder / "q.csv").write_text("\n".join(["a,b,c,d,label", *named]))
    rng = np.random.default_rng(0)
    np.savez(
        folder / "hits.npz",
        distances=np.sort(rng.random((40, 5)), axis=1),
        labels=rng.integers(0, 2, (40, 5)),
        truth=rng.integers(0, 2, 40),
    )
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "predict q.csv -m model.safetensors -o q.csv",
        "predict q.csv -m model.safetensors -o ./no/../q.csv",
        "predict q.csv -m model.safetensors -o model.safetensors --format csv",
        "report link.html -m model.safetensors -o link.html",
        "report -m model.safetensors -o r.html --json r.json --gallery-images r.json",
        "audit q.csv -o q.csv",
        "embed q.csv --encoder text -o q.csv",
        "calibrate hits.npz --distance l2 --save c.json -o c.json",
        "calibrate --queries hits.npz --rule c.json -o c.json",
        "fit model.safetensors -o model.safetensors",
    ],
)
def test_no_output_is_an_input(folder: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.chdir(folder)
    (folder / "link.html").unlink(missing_ok=True)
    (folder / "link.html").symlink_to("q.csv")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "must be another file than that of" in refused(*words.split())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


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
        "compare gallery.npz --gallery loop.npz",
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


def test_a_rule_is_saved_under_a_name_that_can_be_read(folder: Path) -> None:
    words = ["calibrate", folder / "hits.npz", "--distance", "l2", "--save", folder / "rule.txt"]
    assert "--save must end in .json" in refused(*words)


@pytest.mark.parametrize("command", ["predict", "evaluate", "report", "audit"])
def test_an_address_in_place_of_a_model_is_not_repeated(folder: Path, command: str) -> None:
    words: list[object] = [] if command in {"report", "audit"} else [folder / "q.csv"]
    words += ["-m", "postgresql://u:s3cret@localhost/db"]
    if command == "report":
        words += ["--json", "-"]
    said = refused(command, *words)
    assert "s3cret" not in said
    assert "--gallery" in said


def test_a_quoted_command_has_no_passwords() -> None:
    words = ["fit", "postgres:u:s3cret@h", "--into", "postgresql://u:s3cret@h/db"]
    words += ["--engine-option", "password=s3cret", "--engine-option=token=s3cret", "-k", "5"]
    with patch.object(sys, "argv", ["nearsure", *words, "--engine-option", "ef_search=200"]):
        said = command_line()
    assert "s3cret" not in said
    assert said.endswith("-k 5 --engine-option ef_search=200")
    assert "password=..." in said


def test_a_closed_standard_output_is_a_sentence(folder: Path) -> None:
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'nearsure'"
    code += ", 'predict', 'q.csv', '-m', 'model.safetensors'])"
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], check=False, cwd=folder, capture_output=True, timeout=60
    )
    assert (run.returncode, run.stderr.count(b"\n")) == (2, 1)
    assert b"Standard output is closed" in run.stderr


def test_without_standard_error_the_work_is_done(folder: Path) -> None:
    code = "import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, '-m', 'nearsure'"
    code += ", 'predict', 'q.csv', '-m', 'model.safetensors', '--precision', '0.5'])"
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], check=False, cwd=folder, capture_output=True, timeout=60
    )
    assert (run.returncode, run.stdout.count(b"\n")) == (0, 91)


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
            assert "--guard-formulas applies only to csv" in refused(
                *words, "--guard-formulas", *other
            )
