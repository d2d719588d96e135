"""Reports: tables for people, numbers for programs, and pictures that exist."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nearsure.embedding_files import EmbeddingSet
from nearsure.lab import report
from nearsure.lab.cache import to_plain
from nearsure.lab.experiment import EvaluationSettings, Experiment, run_experiment
from nearsure.lab.report import write_report

SETTINGS = {"k": 10, "seed": 0}


@cache
def experiment(name: str, seed: int = 0) -> Experiment:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(5), 12)
    vectors = rng.standard_normal((5, 4))[codes] + 0.8 * rng.standard_normal((60, 4))
    points = EmbeddingSet(vectors.astype(np.float32), codes)
    settings = EvaluationSettings(k=10, n_resamples=10)
    model = {"trained": "all", "frozen_blocks": 3 * (name == "triplet")}
    details = {"settings": {"seed": seed, "model": model}}
    return run_experiment(name, points, None, settings, details=details)


def write(folder: Path, *names: str) -> list[Path]:
    runs = [experiment(name, seed) for seed, name in enumerate(names)]
    return write_report(
        folder, "birds", runs, command="nearsure x", settings=SETTINGS, main=names[-1]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two runs, written once: pictures take their time."""
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    files = write(folder, "before", "triplet")
    assert files[0] == folder / "README.md"
    assert set(folder.iterdir()) == set(files)
    return folder


def test_the_readme_holds_the_tables_of_the_main_run(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert text.startswith("# birds\n\nMade by `nearsure x`.\n")
    assert text.count("### Table 1: triplet") == 2  # one a protocol
    assert text.count("### Table 4") == 2
    first = experiment("before", 0).evaluations["all_against_others"].result_of("1nn")
    percent = f"{100 * first.accuracy.estimate:.2f}"
    assert f"| before | whole network | {percent} (" in text
    assert "| triplet | all but the stem and 3 blocks |" in text


def test_the_readme_shows_every_picture_and_each_can_be_opened(folder: Path) -> None:
    shown = re.findall(r"!\[.*?\]\((.*?)\)", (folder / "README.md").read_text())
    assert len(shown) == 6
    assert set(shown) == {path.name for path in folder.glob("*.png")}
    for name in shown:
        with Image.open(folder / name) as picture:
            picture.verify()


def test_the_json_holds_settings_versions_and_every_run(folder: Path) -> None:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    document = json.loads((folder / "results.json").read_text(), parse_constant=refuse)
    assert (document["dataset"], document["command"]) == ("birds", "nearsure x")
    assert document["evaluation"] == SETTINGS
    assert {"python", "machine", "nearsure", "numpy", "torch"} <= document["versions"].keys()
    assert list(document["runs"]) == ["before", "triplet"]
    assert document["runs"]["triplet"]["settings"]["seed"] == 1
    for protocol, evaluation in experiment("triplet", 1).evaluations.items():
        stored = document["runs"]["triplet"]["evaluations"][protocol]
        assert stored == to_plain(evaluation)


def test_other_trainings_are_listed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("draw_reliability", "draw_neighbor_curve", "draw_sweep"):
        monkeypatch.setattr(report, name, lambda _, path, name: path)  # noqa: ARG005
    runs = [experiment("before", 0), experiment("triplet", 1)]
    again = [replace(experiment("other", 2), name="triplet", seed=5)]
    write_report(
        tmp_path, "birds", runs, command="x", settings=SETTINGS, main="triplet", others=again
    )
    text = (tmp_path / "README.md").read_text()
    assert text.count("### Trainings") == 2  # one a protocol
    assert "| before | 0 |" not in text
    for one in (runs[1], again[0]):
        first = one.evaluations["all_against_others"].result_of("1nn").accuracy.estimate
        assert f"| triplet | {one.seed} | {100 * first:.2f} |" in text
    (kept,) = json.loads((tmp_path / "results.json").read_text())["other_trainings"]
    assert (kept["run"], kept["seed"]) == ("triplet", 5)


def test_one_run_is_not_compared_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("draw_reliability", "draw_neighbor_curve", "draw_sweep"):
        monkeypatch.setattr(report, name, lambda _, path, name: path)  # noqa: ARG005
    write(tmp_path, "given embeddings")
    text = (tmp_path / "README.md").read_text()
    assert "### Table 1: given embeddings" in text
    assert "Table 4" not in text
    assert "by embedding" not in text
