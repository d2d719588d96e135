"""`nearsure reproduce --robust` from end to end: twice the same, interrupted the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_runs import picture

from nearsure.cli import main
from nearsure.lab.config import read_changes
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.evaluation import fit_with_notes
from nearsure.lab.protocols import all_against_others, gallery_and_queries
from nearsure.lab.recipes import recipe
from nearsure.lab.reproduce import prepare_splits
from nearsure.lab.robust import reproduce
from nearsure.lab.robust.damaged import DamagedQueries
from nearsure.robustness import CORRUPTIONS, SEVERITIES

SMALL = """
[dataset]
image_size = 16
[model]
backbone = "small-cnn"
trained = "all"
embedding_size = 8
[training]
epochs = 6
classes_per_batch = 4
images_per_class = 3
learning_rate = 1e-3
"""
DAMAGE = """
[robust]
corrupted_queries = 10
attacked_queries = 500
epsilons = [0.1]
small_epsilons = [0.01]
small_steps = 2
[robust.adversarial]
epsilon = 0.05
step = 0.05
epochs = 1
"""
WORDS = ("reproduce", "class-folders", "--root", "tree", "--config", "small.toml", "--robust")
OPTIONS = ("-k", "5", "--resamples", "10", "--seed", "4")
RESULTS = Path("results") / "class-folders" / "robustness"
N_CLASSES, PER_CLASS = 8, 4
ATTACKS = ["fgsm", "bim", "pgd", "pgd", "confidence"]


def prepare(folder: Path) -> None:
    for label in range(N_CLASSES):
        (folder / "tree" / f"class {label}").mkdir(parents=True)
        for i in range(PER_CLASS):
            path = folder / "tree" / f"class {label}" / f"{i}.png"
            Image.fromarray(picture(label, i)).save(path)
    (folder / "small.toml").write_text(SMALL + DAMAGE)


def run_here(monkeypatch: pytest.MonkeyPatch, *words: str, code: int = 0) -> None:
    """Without pictures, which take their time and are looked at elsewhere."""
    monkeypatch.setattr("sys.argv", ["nearsure", *WORDS, *OPTIONS, *words])
    for name in ("draw_severity_curves", "draw_corruption_map", "draw_attack_curves"):
        monkeypatch.setattr(reproduce, name, lambda _, path, name: path)  # noqa: ARG005
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the run went through."""
    folder = tmp_path_factory.mktemp("whole")
    prepare(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_here(patch)
    return folder


@pytest.fixture(scope="module")
def document(whole: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((whole / RESULTS / "robustness.json").read_text())
    return found


def assert_same_report(ours: Path, theirs: Path) -> None:
    for name in ("robustness.json", "README.md"):
        assert (ours / RESULTS / name).read_bytes() == (theirs / RESULTS / name).read_bytes()


def test_run_again_nothing_is_computed_and_every_byte_is_the_same(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (whole / "runs").rglob("*")}

    before = files()
    (tmp_path / RESULTS.parent).mkdir(parents=True)
    shutil.move(whole / RESULTS, tmp_path / RESULTS)
    for name in (
        "embedding.random_view",
        "embedding.central_view",
        "robust.adversarial_training.perturb",
        "robust.damaged.perturb",
        "robust.damaged.corrupt",
        "robust.damaged.evaluate_variants",
    ):
        monkeypatch.setattr(f"nearsure.lab.{name}", None)
    monkeypatch.chdir(whole)
    run_here(monkeypatch)
    assert files() == before
    assert_same_report(whole, tmp_path)


def test_interrupted_in_an_attack_and_run_again_it_is_the_same(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adversarial training, too, is made anew."""
    for name in ("tree", "runs"):
        shutil.copytree(whole / name, tmp_path / name)
    shutil.copy(whole / "small.toml", tmp_path)
    for folder in (tmp_path / "runs").iterdir():
        inputs = folder / "inputs.json"
        plan = json.loads(inputs.read_text()).get("plan", []) if inputs.exists() else []
        if folder.name.startswith(("attacked", "adversarial")) or "Attack" in str(plan):
            shutil.rmtree(folder)
    attack, done = DamagedQueries._attack, list[object]()

    def dies(self: DamagedQueries, *given: Any) -> Any:  # noqa: ANN401
        if len(done) == 7:  # in the second model's attacks
            raise KeyboardInterrupt
        done.append(given)
        return attack(self, *given)

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(DamagedQueries, "_attack", dies)
        run_here(patch, code=130)
    assert not (tmp_path / "results").exists()
    assert len(list((tmp_path / "runs").glob("attacked-*/*-00*.safetensors"))) == 7
    run_here(monkeypatch)
    assert_same_report(tmp_path, whole)


def test_t_is_fitted_on_clean_embeddings_and_on_nothing_else(
    whole: Path, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole)
    changes = read_changes(Path("small.toml"))
    del changes["robust"]
    chosen = recipe("class-folders", root=Path("tree"), seed=4, changes=changes).only(
        ["normalized-softmax"]
    )
    run = chosen.runs[chosen.main]
    split = prepare_splits(chosen, Path("runs"))[run.dataset, run.seed]
    vectors = EmbeddingRun(run, split, Path("runs")).embeddings("queries")
    codes = np.unique(split.queries.labels, return_inverse=True)[1]
    clean = {
        "all_against_others": all_against_others(vectors, codes, k=5),
        "gallery_and_queries": gallery_and_queries(vectors, codes, k=5, seed=4),
    }
    found = [one for one in document["evaluations"] if one["model"] == "clean-trained"]
    assert len(found) == 4
    for evaluation in found:
        own = clean[evaluation["protocol"]]
        fit, _ = fit_with_notes(own.own, own.own_codes)
        assert evaluation["temperature_fit"]["temperature"] == fit.temperature


def test_everything_planned_is_in_the_report(document: dict[str, Any]) -> None:
    evaluations = document["evaluations"]
    kinds = [(one["model"], one["protocol"], len(one["variants"])) for one in evaluations]
    protocols = ("all_against_others", "gallery_and_queries")
    assert kinds == [
        *(("clean-trained", protocol, 75) for protocol in protocols),
        *(("clean-trained", protocol, 5) for protocol in protocols),
        *(("adversarially trained", protocol, 5) for protocol in protocols),
    ]
    for one in evaluations[:2]:
        found = [(v["variant"]["name"], v["variant"]["severity"]) for v in one["variants"]]
        assert found == [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
        assert one["n_queries"] == (10 if one["protocol"] == protocols[0] else 8)
    for one in evaluations[2:]:
        assert [v["variant"]["name"] for v in one["variants"]] == ATTACKS
        # More were asked for than there are: all that the strict protocol asks about.
        assert one["n_queries"] == 8
    robust = document["settings"]["robust"]
    assert (robust["corrupted_queries"], robust["attacked_queries"]) == (10, 16)
    assert robust["adversarial"]["epsilon"] == 0.05
    assert document["settings"]["run"]["seed"] == 4
    assert document["loss"] == "normalized-softmax"


def test_no_folder_of_the_machine_is_told(whole: Path, document: dict[str, Any]) -> None:
    assert "root" not in document["settings"]["run"]["dataset"]
    for name in ("robustness.json", "README.md"):
        text = (whole / RESULTS / name).read_text()
        assert str(whole) not in text
        assert str(Path.home()) + "/" not in text
