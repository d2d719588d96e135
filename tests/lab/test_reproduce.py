"""`nearsure reproduce` from end to end on a small tree, killed in the middle and not."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tiny_images import SETTINGS, write_tree

from nearsure.atomic import atomic_write
from nearsure.cli import main
from nearsure.lab import report
from nearsure.lab.training import read_tensors

STEPS = 6
WORDS = ("reproduce", "class-folders", "--root", "tree", "--config", "small.json")
LOSS = ("--loss", "normalized-softmax")
OPTIONS = ("-k", "5", "--resamples", "10", "--seed", "4")

# Checkpoints at every step; while the third is being written, the process stands still.
SLEEPER = """
import time, sys
from pathlib import Path
import torch
from nearsure.lab import training as checkpoint, training
from nearsure.cli import main

torch.set_num_threads(1)
training.SECONDS_BETWEEN_CHECKPOINTS = -1
save, saved = checkpoint.save_file, []

def save_or_sleep(tensors, path, metadata):
    saved.append(path)
    if len(saved) == 3:
        Path(path).write_bytes(b"half")
        time.sleep(600)
    save(tensors, path, metadata=metadata)

checkpoint.save_file = save_or_sleep
main()
"""


def run_here(monkeypatch: pytest.MonkeyPatch, *words: str, losses: tuple[str, ...] = LOSS) -> None:
    """Without pictures, which take their time and are looked at elsewhere."""
    monkeypatch.setattr("sys.argv", ["nearsure", *WORDS, *losses, *OPTIONS, *words])
    for name in ("draw_reliability", "draw_neighbor_curve", "draw_sweep"):
        monkeypatch.setattr(report, name, lambda _, path, name: path)  # noqa: ARG005
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0


def kill_while_it_writes(folder: Path) -> Path:
    """Run in another process and kill it for good in the middle; gives the half-written file."""
    command = [sys.executable, "-c", SLEEPER, *WORDS, *LOSS, *OPTIONS]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:  # noqa: S603
        try:
            while not (half := [*half_written(folder)]):
                assert process.poll() is None, "it ended by itself"
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    return half[0]


def half_written(folder: Path) -> Iterator[Path]:
    """Drafts that hold what the sleeper has written; others come and go."""
    for path in folder.glob("runs/training-*/.checkpoint.*"):
        with suppress(FileNotFoundError):
            if path.stat().st_size == len(b"half"):
                yield path


def prepare(folder: Path, *, n_images: int = 3) -> None:
    write_tree(folder / "tree", n_images=n_images)
    (folder / "small.json").write_text(json.dumps(SETTINGS))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the run went through."""
    folder = tmp_path_factory.mktemp("whole")
    prepare(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_here(patch)
    return folder


def test_killed_and_run_again_gives_the_same_results(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path)
    draft = kill_while_it_writes(tmp_path)
    assert read_tensors(draft.parent / "checkpoint.safetensors")[1] == 2 < STEPS
    assert not (tmp_path / "results").exists()
    monkeypatch.chdir(tmp_path)
    run_here(monkeypatch)
    for name in ("results.json", "README.md"):
        ours, theirs = (folder / "results" / "class-folders" / name for folder in (tmp_path, whole))
        assert ours.read_bytes() == theirs.read_bytes()


def test_the_report_holds_both_runs_and_no_folder_of_the_machine(whole: Path) -> None:
    folder = whole / "results" / "class-folders"
    document = json.loads((folder / "results.json").read_text())
    assert list(document["runs"]) == ["before training", "normalized-softmax"]
    trained = document["runs"]["normalized-softmax"]
    assert trained["training"]["steps"] == len(trained["training"]["last_losses"]) == STEPS
    assert trained["settings"]["seed"] == 4
    assert trained["settings"]["training"]["classes_per_batch"] == 2
    assert "root" not in trained["settings"]["dataset"]
    assert set(trained["evaluations"]) == {"all_against_others", "gallery_and_queries"}
    assert document["runs"]["before training"]["training"] == {"steps": 0, "last_losses": []}
    text = (folder / "README.md").read_text()
    assert "### Table 1: normalized-softmax" in text
    for content in (text, (folder / "results.json").read_text()):
        assert str(whole) not in content
        assert str(Path.home()) + "/" not in content


def test_run_again_nothing_is_computed(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (whole / "runs").rglob("*")}

    before = files()
    for name in ("embedding.random_view", "embedding.central_view", "experiment.evaluate"):
        monkeypatch.setattr(f"nearsure.lab.{name}", None)
    monkeypatch.chdir(whole)
    run_here(monkeypatch, "--output", "again")
    assert files() == before
    first, again = (
        json.loads((whole / folder / "results.json").read_text())
        for folder in ("results/class-folders", "again")
    )
    assert again["runs"] == first["runs"]


def test_tuning_has_a_folder_of_its_own_and_no_unseen_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path, n_images=6)
    changes = {**SETTINGS, "dataset": {"image_size": 32, "part": "tuning"}}
    (tmp_path / "small.json").write_text(json.dumps(changes))
    with atomic_write(tmp_path / "tree" / "h" / "0.png", keep_suffix=True) as draft:
        draft.write_bytes(b"")  # of an unseen class: never opened
    monkeypatch.chdir(tmp_path)
    run_here(monkeypatch)
    assert "18 images of 3 seen classes, 6 of 1 unseen ones" in capsys.readouterr().out
    report = tmp_path / "results" / "class-folders-tuning" / "README.md"
    # Not the name by which the paper's numbers would be set beside it.
    assert report.read_text(encoding="utf-8").startswith("# class-folders, tuning\n")


def test_other_seeds_are_trained_and_evaluated_on_the_same_halves(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole)
    run_here(monkeypatch, "--also-seed", "5", "--output", "again")
    document = json.loads((whole / "again" / "results.json").read_text())
    (other,) = document["other_trainings"]  # what is not trained has no seed
    first = document["runs"]["normalized-softmax"]
    assert (other["run"], other["seed"]) == ("normalized-softmax", 5)
    assert other["settings"]["seed"] == 5
    assert other["training"]["last_losses"] != first["training"]["last_losses"]
    for protocol, evaluation in other["evaluations"].items():
        assert evaluation["seed"] == first["evaluations"][protocol]["seed"] == 4
    assert (
        "| normalized-softmax | mean of 2 (least to most) |"
        in (whole / "again" / "README.md").read_text()
    )


def test_a_run_of_one_loss_keeps_the_others_of_its_folder(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole / "results", tmp_path / "results")
    monkeypatch.chdir(whole)
    folder = tmp_path / "results" / "class-folders"
    before = json.loads((folder / "results.json").read_text())
    run_here(monkeypatch, "--loss", "proxy-nca", "--output", str(folder), losses=())
    assert "before training" not in capsys.readouterr().out
    after = json.loads((folder / "results.json").read_text())
    assert list(after["runs"]) == ["before training", "normalized-softmax", "proxy-nca"]
    for name, run in before["runs"].items():
        assert after["runs"][name] == {"command": before["command"], **run}
    text = (folder / "README.md").read_text()
    assert f"Made by `{before['command']}` and `{after['command']}`." in text
    assert "### Table 1: normalized-softmax" in text
    assert "| proxy-nca |" in text
    # Numbers of other settings do not stand in one table.
    monkeypatch.setattr("sys.argv", [*sys.argv, "-k", "4"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "Choose another folder with --output" in " ".join(capsys.readouterr().err.split())
    assert json.loads((folder / "results.json").read_text()) == after
