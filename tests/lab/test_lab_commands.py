"""The command: reports from files, and mistakes as one sentence with exit code 2."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from tiny_images import write_tree

from nearsure.cli import app, main
from nearsure.cli.outputs import command_line


def nearsure(monkeypatch: pytest.MonkeyPatch, *words: str | int | Path) -> int:
    """Type a command; gives its exit code."""
    monkeypatch.setattr("sys.argv", ["nearsure", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 10)
    vectors = rng.standard_normal((4, 3))[codes] + 0.7 * rng.standard_normal((40, 3))
    np.savez(
        tmp_path / "points.npz", embeddings=vectors, labels=codes, more=vectors[::2], own=codes[::2]
    )
    return tmp_path / "points.npz"


def test_saved_embeddings_give_a_report(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(file.parent)
    assert nearsure(monkeypatch, "compare", "points.npz", "-k", 5, "--resamples", 10) == 0
    shown = capsys.readouterr().out
    assert "all_against_others, k = 5:" in shown
    assert "gallery_and_queries, k = 5:" in shown
    written = [Path(line.removeprefix("wrote ")) for line in shown.splitlines() if "wrote" in line]
    assert Path("results/points/README.md") in written
    assert all(path.is_file() for path in written)
    assert "Table 1" in Path("results/points/README.md").read_text()
    document = json.loads(Path("results/points/results.json").read_text())
    assert document["evaluation"] == {"k": 5, "k_most": 200, "seed": 0, "n_resamples": 10}
    assert document["command"] == "nearsure compare points.npz -k 5 --resamples 10"


@pytest.mark.usefixtures("without_figures")
def test_a_gallery_in_the_same_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = file.parent / "out"
    code = nearsure(
        monkeypatch,
        *("compare", file, "--vectors-key", "more", "--labels-key", "own"),
        *("--gallery-vectors-key", "embeddings", "--gallery-labels-key", "labels"),
        *("-k", 5, "--resamples", 10, "--name", "dots", f"--output={output}/"),
    )
    assert code == 0
    document = json.loads((output / "results.json").read_text())
    assert document["dataset"] == "dots"
    (evaluation,) = document["runs"]["given embeddings"]["evaluations"].values()
    assert (evaluation["protocol"], evaluation["n_queries"]) == ("given_gallery", 20)
    assert evaluation["n_gallery"] == 40
    for name in ("README.md", "results.json"):
        text = (output / name).read_text()
        assert str(file.parent) not in text
        assert "compare points.npz " in text
        assert "--output=out" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["reproduce", "mnist"], r"A data set is one of glyphs, .* Got 'mnist' instead\."),
        (["reproduce", "cub200"], r"cub200 needs its folder: --root FOLDER\."),
        (["reproduce", "cub200", "--root", "nowhere"], r".*nowhere.*"),
        (["reproduce", "glyphs", "--root", "."], r"Glyphs are drawn.*"),
        (["reproduce", "glyphs", "--loss", "arcface"], r"A loss is one of .* Got arcface\."),
        (["reproduce", "glyphs", "--part", "test"], r"--part must be standard or tuning\. .*"),
        (
            ["reproduce", "glyphs", "--seed", "3", "--also-seed", "3"],
            r"--also-seed must be another seed than --seed, .* Got --seed 3, --also-seed \[3\] .*",
        ),
        (
            ["reproduce", "glyphs", "--also-loss", "triplet"],
            r"--also-seed must be another seed .*--also-loss needs it\. .*",
        ),
        (
            ["reproduce", "glyphs", "--robust", "--also-seed", "3"],
            r"--robust takes one training: leave out --also-seed\.",
        ),
        (["reproduce", "glyphs", "--config", "no.toml"], r"no.toml cannot be read as TOML .*"),
        (
            ["reproduce", "glyphs", "--config", "bad.toml"],
            r"bad.toml: there is no setting 'training.epoch'; allowed are loss, epochs, .*",
        ),
        (
            ["reproduce", "glyphs", "--part", "tuning", "--config", "flat.toml"],
            r"flat.toml: dataset: .*'glyphs'.*",
        ),
        (
            ["reproduce", "glyphs", "--config", "robust.toml"],
            r"Settings of corruptions and attacks were given without --robust, .*",
        ),
        (
            ["reproduce", "glyphs", "--config", "empty-robust.toml"],
            r"Settings of corruptions and attacks were given without --robust, .*",
        ),
        (
            ["reproduce", "glyphs", "--corrupted-queries", "5"],
            r"Settings of corruptions and attacks were given without --robust, .*",
        ),
        (
            ["reproduce", "glyphs", "--attacked-queries", "5"],
            r"Settings of corruptions and attacks were given without --robust, .*",
        ),
        (
            ["reproduce", "glyphs", "--robust", "--config", "robust.toml"],
            r"robust.toml, \[robust\]: there is no setting 'epsilon'; allowed are .*epsilons, .*",
        ),
        (
            ["reproduce", "glyphs", "--robust", "--config", "adversarial.toml"],
            r"adversarial.toml, \[robust\]: there is no setting 'adversarial.share'; allowed .*",
        ),
        (
            ["reproduce", "glyphs", "--robust", "--config", "none.toml"],
            r"none.toml, \[robust\]: epsilons.0: .*greater than 0 \(got 0\)",
        ),
        (
            ["reproduce", "glyphs", "--robust", "--config", "two.toml"],
            r"two.toml, \[robust\]: epsilons.1: .*less than or equal to 1 \(got 2\)",
        ),
        (
            ["reproduce", "glyphs", "--robust", "--config", "twice.toml"],
            r"twice.toml, \[robust\]: .*must name every epsilon once, not 0.1, 0.3, 0.1 .*",
        ),
        (
            ["reproduce", "glyphs", "--robust", "--config", "no-table.toml"],
            r"no-table.toml, \[robust\]: robust must be a table of settings\. Got 3 instead\.",
        ),
        (
            ["reproduce", "class-folders", "--root", ".", "--robust", "--config", "head.toml"],
            r"The robustness of a run .* that is 'head': .*",
        ),
        (["compare", "no.npz"], r".*no.npz.*"),
        (["compare", "two.npz"], r"'a', 'b' could each be the vectors of two.npz: .*"),
        (["compare", "points.npz", "--labels-key", "y"], r"points.npz has no array 'y' .*"),
        (
            ["compare", "points.npz", "--resamples", "10", "--output", "bad.toml"],
            r"bad.toml: File exists\.",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(file.parent)
    Path("bad.toml").write_text("[training]\nepoch = 3\n")
    Path("flat.toml").write_text('dataset = "glyphs"\n')
    Path("robust.toml").write_text("[robust]\nepsilon = 0.1\n")
    Path("empty-robust.toml").write_text("[robust]\n")
    Path("adversarial.toml").write_text("[robust.adversarial]\nshare = 0.1\n")
    Path("none.toml").write_text("[robust]\nepsilons = [0]\n")
    Path("two.toml").write_text("[robust]\nepsilons = [0.1, 2]\n")
    Path("twice.toml").write_text("[robust]\nsmall_epsilons = [0.1]\n")
    Path("no-table.toml").write_text("robust = 3\n")
    Path("head.toml").write_text("model = {trained = 'head', embedding_size = 8}\n")
    np.savez("two.npz", a=np.ones((3, 2)), b=np.ones((3, 2)), labels=np.arange(3))
    assert nearsure(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(rf"nearsure: {sentence}\n", said), said
    assert "Traceback" not in said
    assert not Path("runs").exists()


def test_a_broken_image_is_named_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_tree(tmp_path / "tree")
    (root / "c" / "1.png").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert nearsure(monkeypatch, "reproduce", "class-folders", "--root", root) == 2
    assert str(root / "c" / "1.png") in capsys.readouterr().err
    assert [path.name.partition("-")[0] for path in Path("runs").iterdir()] == ["checked"] * 2


def test_too_many_classes_a_batch_are_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_tree(tmp_path / "tree")
    monkeypatch.chdir(tmp_path)
    assert nearsure(monkeypatch, "reproduce", "class-folders", "--root", root) == 2
    assert "exceed the 4 classes of the train part. Got 8" in capsys.readouterr().err
    assert not list(Path("runs").glob("features*"))


def test_ctrl_c_is_said_and_is_not_a_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nearsure.embedding_files.load_embeddings", interrupt)
    assert nearsure(monkeypatch, "compare", "x.npz") == 130
    assert capsys.readouterr().err == "nearsure: Interrupted; no partial files were left.\n"
    monkeypatch.setattr("nearsure.lab.config.read_changes", interrupt)
    assert nearsure(monkeypatch, "reproduce", "glyphs", "--config", "x.toml") == 130
    assert (
        capsys.readouterr().err == "nearsure: Interrupted; run the same command again to resume.\n"
    )


def test_a_missing_extra_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert nearsure(monkeypatch, "corruptions") == 2
    assert capsys.readouterr().err == (
        "nearsure: Corrupting images needs cv2, which is not installed: "
        "pip install 'nearsure[train]'\n"
    )


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--root", "/home/me/birds/", "-k", "5"], "--root birds -k 5"),
        (["--root=/home/me/a=b/birds"], "--root=birds"),
        (["--config", "../../me/my.toml"], "--config my.toml"),
        (["compare", "postgresql://me:secret@host/db"], "compare postgresql://..."),
        (["data/points.npz", "--name", "a b"], "data/points.npz --name 'a b'"),
    ],
)
def test_a_report_does_not_tell_the_folders_of_a_machine(
    monkeypatch: pytest.MonkeyPatch, words: list[str], shown: str
) -> None:
    monkeypatch.setattr("sys.argv", ["nearsure", *words])
    assert command_line() == f"nearsure {shown}"


def test_help_names_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(app.app, typer.Typer)
    assert nearsure(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    assert "reproduce" in shown
    assert "compare" in shown


def test_saved_embeddings_are_evaluated_without_what_training_needs(tmp_path: Path) -> None:
    path = tmp_path / "points.npz"
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 10)
    vectors = 3 * rng.standard_normal((4, 3))[codes] + rng.standard_normal((40, 3))
    np.savez(path, vectors=vectors, labels=codes)
    script = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "pytorch_metric_learning", "tqdm"}:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Absent())
from nearsure.cli import main
main()
"""
    words = ["compare", str(path), "-k", "5", "--resamples", "20", "--output", str(tmp_path / "o")]
    subprocess.run([sys.executable, "-c", script, *words], check=True, capture_output=True)  # noqa: S603
    assert (tmp_path / "o" / "README.md").exists()


@pytest.mark.parametrize("words", [["--gallery-labels-key", "labels"], ["--gallery", "FILE"]])
def test_a_gallery_that_is_the_queries_is_refused(
    words: list[str],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(file) if word == "FILE" else word for word in words]
    assert nearsure(monkeypatch, "compare", file, *given) == 2
    assert "or each query finds itself" in capsys.readouterr().err


@pytest.mark.usefixtures("without_figures")
def test_notes_are_said_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    gallery, codes = rng.standard_normal((40, 3)), np.repeat(np.arange(4), 10)
    queries = np.vstack([gallery[:3], rng.standard_normal((17, 3))])
    np.savez(tmp_path / "both.npz", a=gallery, b=codes, c=queries, d=codes[:20])
    words = ["--vectors-key", "c", "--labels-key", "d", "--gallery-vectors-key", "a"]
    words += ["--gallery-labels-key", "b", "-k", "5", "--resamples", "20"]
    words += ["--output", str(tmp_path / "o")]
    assert nearsure(monkeypatch, "compare", tmp_path / "both.npz", *words) == 0
    assert "Note: 3 of 20 queries equal a gallery point exactly." in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_summary_prints_the_table_and_names_an_empty_folder(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-k", "5", "--resamples", "20", "--name", "points", "--output"]
    results = tmp_path / "results"
    assert nearsure(monkeypatch, "compare", file, *words, results / "points") == 0
    capsys.readouterr()
    assert nearsure(monkeypatch, "summary", results) == 0
    assert "| points | given embeddings | half and half |" in capsys.readouterr().out
    assert nearsure(monkeypatch, "summary", results, "--write") == 0
    assert f"wrote {results / 'figure-2.png'}" in capsys.readouterr().out
    assert "| points | given embeddings |" in (results / "README.md").read_text()
    (tmp_path / "empty").mkdir()
    assert nearsure(monkeypatch, "summary", tmp_path / "empty") == 2
    assert "There is none" in capsys.readouterr().err
