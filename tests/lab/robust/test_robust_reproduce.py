"""`nearsure reproduce --robust` from end to end, its report and its figures."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_points import attack_evaluation, corruption_evaluation
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from small_runs import picture

from nearsure.cli import main
from nearsure.lab.cache import from_plain, to_plain
from nearsure.lab.config import read_changes
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.evaluation import fit_with_notes
from nearsure.lab.protocols import all_against_others, gallery_and_queries
from nearsure.lab.recipes import recipe
from nearsure.lab.reproduce import prepare_splits
from nearsure.lab.robust import reproduce
from nearsure.lab.robust.damaged import DamagedQueries
from nearsure.lab.robust.evaluation import RobustEvaluation
from nearsure.lab.robust.figures import (
    draw_attack_curves,
    draw_corruption_map,
    draw_severity_curves,
)
from nearsure.lab.robust.methods import NED, Method
from nearsure.lab.robust.reproduce import write_robust_report
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
    """The adversarial training, too, is rebuilt."""
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


LOSS = "normalized-softmax"


def evaluations() -> list[RobustEvaluation]:
    return [corruption_evaluation(), attack_evaluation(), attack_evaluation("hardened")]


def write(folder: Path, *some: RobustEvaluation) -> list[Path]:
    return write_robust_report(
        folder,
        "cars196",
        LOSS,
        some,
        command="nearsure x",
        settings={"k": 15},
        remarks=["So be it."],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report, written once: pictures take their time."""
    folder = tmp_path_factory.mktemp("report") / "new"
    files = write(folder, *evaluations())
    assert files[:2] == [folder / "README.md", folder / "robustness.json"]
    assert set(folder.iterdir()) == set(files)
    return folder


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def remember(self: Figure, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        saved.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", remember)
    return saved


def line(ax: Axes, label: str) -> list[float]:
    (found,) = [line for line in ax.get_lines() if line.get_label() == label]
    return [float(value) for value in np.asarray(found.get_ydata())]


def test_the_page_says_what_was_asked_and_holds_every_table(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith(
        f"# cars196, {LOSS}: damaged and attacked queries\n\nMade by `nearsure x`."
    )
    assert "So be it." in text
    for head in (
        "## Given gallery and queries",
        "### Corrupted queries: clean-trained",
        "#### Table 2: ",
        "#### By severity",
        "#### By corruption",
        "### Attacked queries",
        "#### Table 3: ",
        "#### Small epsilons",
        "#### The attack on the confidence",
    ):
        assert text.count(f"\n{head}") == 1, head
    assert text.count("the calibrators are those of the clean images") == 3
    assert text.count("**Not attacked (") == 2
    assert "- NED's mean ECE over 15 variants is " in text


def test_the_page_shows_every_picture_and_nothing_touches_a_rim(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert sorted(shown) == sorted(path.name for path in folder.glob("*.png"))
    assert len(shown) == 3
    for name in shown:
        with Image.open(folder / name) as picture:
            pixels = np.asarray(picture.convert("L"))
        rims = (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])
        assert min(rim.min() for rim in rims) == 255, name
        assert pixels.min() < 50
    assert plt.get_fignums() == []


def test_the_numbers_come_back(folder: Path) -> None:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    text = (folder / "robustness.json").read_text(encoding="utf-8")
    document = json.loads(text, parse_constant=refuse)
    assert (document["dataset"], document["loss"]) == ("cars196", LOSS)
    assert (document["command"], document["settings"]) == ("nearsure x", {"k": 15})
    assert {"python", "numpy", "scikit-learn"} <= document["versions"].keys()
    back = [to_plain(from_plain(RobustEvaluation, fields)) for fields in document["evaluations"]]
    assert back == [to_plain(evaluation) for evaluation in evaluations()]


def test_protocols_have_their_own_part_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("draw_corruption_map", "draw_severity_curves", "draw_attack_curves"):
        monkeypatch.setattr(
            f"nearsure.lab.robust.reproduce.{name}",
            lambda _, path, name: path,  # noqa: ARG005
        )
    strict = [replace(found, protocol="gallery_and_queries") for found in evaluations()]
    files = write(tmp_path, *evaluations(), *strict)
    assert len({path.name for path in files}) == len(files) == 2 + 2 * 3
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert text.index("## Half gallery, half queries") < text.index("## Given gallery and queries")
    assert text.count("#### Table 3") == 2
    assert text.count("; paper 81.3, ") == 2  # of two models, by one protocol


def test_severity_curves_show_the_stored_numbers(tmp_path: Path, figures: list[Figure]) -> None:
    evaluation = corruption_evaluation()
    draw_severity_curves(evaluation, tmp_path / "f.png", name="cars")
    left, right = figures[0].axes
    outcomes = [evaluation.clean, *evaluation.by_severity.values()]
    for rule in ("1nn", "knn", "gou", "ned"):
        expected = [outcome.of(Method(rule)).accuracy.estimate for outcome in outcomes]
        assert line(left, Method(rule).title) == expected
    expected = [outcome.of(NED).ece.estimate for outcome in outcomes]
    assert line(right, "NED") == expected
    assert line(right, "ECE floor of NED") == [outcome.of(NED).ece_floor for outcome in outcomes]
    bands = [box for box in right.patches if isinstance(box, Rectangle)]
    assert [(round(b.get_y(), 9), round(b.get_height(), 9)) for b in bands] == [(0.03, 0.01)]
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["clean", *"12345"]
    assert figures[0].get_suptitle().startswith("cars: clean-trained, mean over 3 corruptions")


def test_the_map_has_a_number_for_every_variant(tmp_path: Path, figures: list[Figure]) -> None:
    evaluation = corruption_evaluation()
    draw_corruption_map(evaluation, tmp_path / "f.png", name="cars")
    accuracy, error, _ = figures[0].axes
    for ax, name in ((accuracy, "accuracy"), (error, "ece")):
        texts = [text.get_text() for text in ax.texts]
        expected = [found.outcome.of(NED).interval(name) for found in evaluation.corruptions]
        expected += [outcome.of(NED).interval(name) for outcome in evaluation.by_severity.values()]
        assert texts == [f"{100 * interval.estimate:.1f}" for interval in expected]
    names = [tick.get_text() for tick in accuracy.get_yticklabels()]
    assert names == ["fog", "gaussian noise", "snow", "mean"]


def test_attack_curves_start_clean_where_the_first_epsilon_was_measured(
    tmp_path: Path, figures: list[Figure]
) -> None:
    both = {"clean-trained": attack_evaluation(), "hardened": attack_evaluation("hardened")}
    draw_attack_curves(both, tmp_path / "f.png", name="cars")
    found = {str(entry.variant): entry.outcome.of(NED) for entry in attack_evaluation().attacks}
    measures = ("accuracy", "ece", "confidently_wrong")
    for ax, name in zip(figures[0].axes, 2 * measures, strict=True):  # a row a model
        small = [found[f"pgd, epsilon {levels}/255"] for levels in (1, 2, 4, 8)]
        large = [found[f"pgd, epsilon {epsilon}"] for epsilon in (0.1, 0.3)]
        results = [attack_evaluation().clean.of(NED), *small, *large]
        expected = [result.interval(name).estimate for result in results]
        assert line(ax, "NED, PGD") == expected
        assert len(line(ax, "NED, the attack on the confidence")) == 5
