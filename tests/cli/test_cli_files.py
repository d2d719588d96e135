"""No command destroys what it reads, reads what it should not, or repeats a password."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from cli_runs import fitted_model, nearsure, points, refused, succeeded, write_npz
from PIL import Image

from nearsure.cli import backup
from nearsure.cli.inputs import ImagePaths
from nearsure.cli.outputs import command_line
from nearsure.engines.sqlite import SqliteEngine


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


def test_a_rule_is_saved_under_a_name_that_can_be_read(folder: Path) -> None:
    words = ["calibrate", folder / "hits.npz", "--distance", "l2", "--save", folder / "rule.txt"]
    assert "--save must end in .json" in refused(*words)


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
    crash = "import os, sys; from nearsure.engines.sqlite import SqliteEngine as E; "
    crash += "engine = E(sys.argv[1]); engine.remove([1]); os._exit(0)"
    subprocess.run([sys.executable, "-c", crash, str(old)], check=True, timeout=60)  # noqa: S603
    assert Path(f"{old}-wal").stat().st_size
    backup.place_gallery(made, old, replace=True)
    with SqliteEngine(old) as engine:
        assert engine.size() == 30


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


def test_images_outside_their_folder_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for name in (here / "in.png", there / "out.png"):
        name.parent.mkdir()
        Image.new("RGB", (4, 4)).save(name)
    os.mkfifo(here / "pipe.png")
    source = str(here / "g.npz")
    images = ImagePaths(source, None)
    assert images.of("in.png") == images.of(str(here / "in.png")) == here / "in.png"
    assert images.of("missing.png") == here / "missing.png"
    strange = ["../there/out.png", str(there / "out.png"), "pipe.png", "x" * 5000]
    assert [images.of(name) for name in strange] == [None] * 4
    images.tell()
    assert "left out 4 images" in capsys.readouterr().err
    for root in (there, tmp_path):
        images = ImagePaths(source, root)
        assert images.of("../there/out.png") == images.of(str(there / "out.png"))
        assert images.of("../there/out.png") == there / "out.png"
        images.tell()
        assert capsys.readouterr().err == ""


def test_a_gallery_takes_no_images_from_elsewhere(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "private.png")
    (tmp_path / "pub").mkdir()
    images = np.array(["../private.png"] * 90)
    gallery = write_npz(tmp_path / "pub" / "g.npz", *points(), images=images)
    words = ["fit", gallery, "-o", tmp_path / "g.sqlite"]
    assert "--images-root names" in succeeded(*words).err
    with SqliteEngine(tmp_path / "g.sqlite") as engine:
        assert engine.picture(0) is None
    run = succeeded(*words, "--replace", "--images-root", tmp_path)
    assert "left out" not in run.err
    with SqliteEngine(tmp_path / "g.sqlite") as engine:
        assert engine.picture(0) is not None
