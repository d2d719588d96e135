"""What commands read: images of one folder, text, options and addresses of engines."""

import os
from pathlib import Path

import numpy as np
import pytest
from cli_runs import fitted_model, points, refused, succeeded, write_npz
from PIL import Image

from nearsure.cli import inputs
from nearsure.cli.inputs import ImagePaths
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineAccessError


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


def test_options_of_an_engine_are_numbers_truths_or_text() -> None:
    words = ["a=1", "b=0.5", "c=true", "d=null", "e=hnsw", "f=[1]", "g=x=y", "h="]
    assert inputs.engine_options(words, collection="birds") == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": None,
        "e": "hnsw",
        "f": "[1]",
        "g": "x=y",
        "h": "",
        "collection": "birds",
    }


@pytest.mark.parametrize(
    ("address", "is_engine"),
    [
        ("postgres", True),
        ("milvus", True),
        ("postgresql://host/db", True),
        ("https://host", True),
        ("lite.db", True),
        ("birds.sqlite", True),
        ("birds.SQLITE3", True),
        ("sqlite:birds", True),
        ("birds.npz", False),
        ("-", False),
        ("postgres.csv", False),
    ],
)
def test_addresses_are_told_from_files(address: str, *, is_engine: bool) -> None:
    assert inputs.is_engine(address) == is_engine


def test_a_gallery_that_is_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.sqlite"
    path.symlink_to(path)
    with pytest.raises(EngineAccessError, match="symbolic links"):
        SqliteEngine(path)
    with pytest.raises(EngineAccessError, match="symbolic links"):
        SqliteEngine.create(path, 2)
