"""The run takes what is there, says what is not, and does nothing twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_ablation import points

from nearsure.cli import main
from nearsure.lab.ablation import report, run, variants
from nearsure.lab.ablation import results as trial_result
from nearsure.lab.ablation import run as plan
from nearsure.lab.ablation.results import CELLS, cached_corrupted, measure
from nearsure.lab.ablation.run import AbsentError, load_birds, load_sentences
from nearsure.lab.ablation.trials import Labelled
from nearsure.lab.ablation.variants import DEFAULT, PROBE_VARIANTS
from nearsure.lab.robust.methods import Method
from nearsure.lab.robust.model import frozen_supports
from nearsure.posterior import Posterior
from nearsure.probes import FittedProbe, ProbeName, fit_probe


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with birds and nothing else."""
    folder = tmp_path / "data"
    folder.mkdir()
    found = points()
    names = np.array(["owl", "wren", "kiwi", "emu", "tit", "rook", "hen", "jay"])[found.codes]
    np.savez(
        folder / "cub200_unseen_embeddings.npz",
        embeddings=found.vectors.astype(np.float32),
        labels=names,
    )
    return folder


@pytest.fixture
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "KS", (5,))
    monkeypatch.setattr(plan, "MAIN_K", 5)
    monkeypatch.setattr(plan, "HALF_SEEDS", {"cub200": 2, "digits": 0})
    monkeypatch.setattr(plan, "SCARCE_SEEDS", 1)
    monkeypatch.setattr(plan, "SLOW_SEEDS", 1)
    monkeypatch.setattr(run, "load_embedded", _nothing_embedded)


def _nothing_embedded(_dataset: str, _data: Path | None, cache: Path) -> Labelled:
    raise AbsentError(f"not in {cache.name}")


@pytest.mark.usefixtures("few_trials")
def test_what_is_absent_is_said_and_what_is_done_is_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    cache = tmp_path / "cache"
    results = run.run_ablation(data=data, cache=cache, n_resamples=10, say=said.append)
    kinds = [(trial.condition, trial.seed, trial.k) for trial in results.trials]
    assert kinds == [
        ("half", 0, 5),
        ("half", 1, 5),
        ("all", 0, 5),
        ("scarce", 0, 5),
        ("half", 0, 5),
    ]
    planned = run.plan_trials({"cub200": points()}, {})
    assert sum(len(ks) for _, ks, _ in planned) == len(kinds)
    assert said[0] == "skipped: glyphs: not in cache"
    assert said[1] == "skipped: clinc150: clinc150_minilm.npz is not in the data folder"
    assert [line.partition(":")[2].split(",")[0] for line in said[2:]] == [
        " hwu64: hwu64_minilm.npz is not in the data folder",
        " atis: atis_minilm.npz is not in the data folder",
        " trec: trec6_minilm.npz is not in the data folder",
        " esc50: esc50_logmel.npz is not in the data folder",
        " glyphs",
        " cub200",
        " cars196",
    ]

    def never(*_: object, **__: object) -> None:
        pytest.fail("what the cache holds was measured again")

    monkeypatch.setattr(trial_result, "run_trial", never)
    again = run.run_ablation(data=data, cache=cache, n_resamples=10, say=said.append)
    assert again == results


@pytest.mark.usefixtures("few_trials")
def test_only_single_splits_have_bootstrap_intervals(data: Path, tmp_path: Path) -> None:
    results = run.run_ablation(data=data, cache=tmp_path, n_resamples=10, say=lambda _: None)
    for trial in results.trials:
        for row in trial.rows:
            main_variant = row.variant in {"ned", DEFAULT.name}
            if trial.condition != "all":
                assert row.ece_interval is None
            elif main_variant:
                assert row.ece_interval is not None


@pytest.mark.usefixtures("few_trials")
def test_probes_are_fitted_once_for_all_k(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "KS", (5, 7))
    fitted: list[str] = []

    def counting(name: ProbeName, *given: Any, **settings: Any) -> FittedProbe:  # noqa: ANN401
        fitted.append(name)
        return fit_probe(name, *given, **settings)

    monkeypatch.setattr(variants, "fit_probe", counting)
    results = run.run_ablation(data=data, cache=tmp_path, n_resamples=10, say=lambda _: None)
    # Two halves and a scarce gallery.
    assert fitted == ["means", "lda", "logistic"] * 3
    halves = [trial for trial in results.trials if trial.condition == "half"]
    first, second = halves[:2]
    assert (first.seed, first.k, second.seed, second.k) == (0, 5, 0, 7)
    by_name = [{row.variant: row for row in trial.rows} for trial in (first, second)]
    for variant in PROBE_VARIANTS:
        assert by_name[0][variant.name] == by_name[1][variant.name]
    assert by_name[0]["knn"] != by_name[1]["knn"]
    assert DEFAULT.name in by_name[0]
    everyone = next(trial for trial in results.trials if trial.condition == "all")
    assert not {row.variant for row in everyone.rows} & {DEFAULT.name, "LDA + temperature"}


@pytest.mark.usefixtures("few_trials")
def test_without_a_data_folder_the_command_measures_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NEARSURE_DATA", raising=False)
    monkeypatch.setattr(plan, "HALF_SEEDS", {"digits": 1})
    monkeypatch.setattr(report, "MAIN_K", 5)
    monkeypatch.setattr(run, "digits", points)
    output = tmp_path / "out"
    words = ["nearsure", "ablation", "--cache", str(tmp_path), "--output", str(output)]
    monkeypatch.setattr("sys.argv", [*words, "--resamples", "10"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert "skipped: esc50: no data folder was given: use --data" in capsys.readouterr().out
    assert "### digits, k = 5, one split" in (output / "README.md").read_text(encoding="utf-8")


def test_digits_are_those_of_scikit_learn() -> None:
    found = run.digits()
    assert found.vectors.shape == (1797, 64)
    np.testing.assert_array_equal(np.unique(found.codes), np.arange(10))


def test_points_of_a_file_are_x_and_y(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float16)
    np.savez(tmp_path / "trec6_minilm.npz", x=vectors, y=np.array(["b", "a", "b", "c"]))
    found = run.load_points(tmp_path, "trec")
    np.testing.assert_array_equal(found.vectors, vectors.astype(np.float32))
    np.testing.assert_array_equal(found.codes, [1, 0, 1, 2])


def test_birds_have_codes_of_their_sorted_names(data: Path) -> None:
    found = load_birds(data)
    order = np.argsort(np.argsort(["owl", "wren", "kiwi", "emu", "tit", "rook", "hen", "jay"]))
    np.testing.assert_array_equal(found.codes, order[points().codes])


def test_sentences_leave_the_unknown_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {}
    for part, n in (("train", 6), ("val", 2), ("test", 4), ("oos_test", 3)):
        arrays[f"{part}_x"] = rng.standard_normal((n, 3)).astype(np.float16)
        arrays[f"{part}_y"] = np.array(["oos"] * n if "oos" in part else ["yes", "no"] * (n // 2))
    np.savez(tmp_path / "clinc150_minilm.npz", **arrays)  # type: ignore[arg-type]
    every, gallery, queries = load_sentences(tmp_path)
    assert [len(part.codes) for part in (every, gallery, queries)] == [12, 6, 4]
    np.testing.assert_array_equal(gallery.vectors, arrays["train_x"].astype(np.float32))
    np.testing.assert_array_equal(queries.vectors, arrays["test_x"].astype(np.float32))
    np.testing.assert_array_equal(queries.codes, [1, 0, 1, 0])


def test_corrupted_queries_are_scored_with_what_clean_ones_fitted(tmp_path: Path) -> None:
    data = points()
    support = frozen_supports(data.vectors, data.codes, None, seed=0)["gallery_and_queries"]
    rows = np.flatnonzero(support.may_ask(np.arange(len(data.codes))))
    clean = Labelled(data.vectors[rows], data.codes[rows])

    def queries_of(cell: str) -> Labelled:
        severity = 0 if cell == "clean" else int(cell[-1])
        noise = 0.5 * severity * np.random.default_rng(severity).standard_normal((len(rows), 4))
        return Labelled(clean.vectors + noise, clean.codes)

    found = cached_corrupted(tmp_path, "own", support, rows, queries_of, k=10)
    assert found.n_cells == len(CELLS) == 75
    by_name = {row.variant: row for row in found.mean}
    means = []
    for severity in range(1, 6):
        moved = queries_of(f"fog-{severity}")
        sq_distances, ids = support.index.search(moved.vectors, 1)
        nearest = Posterior(np.arange(len(ids) + 1), support.codes[ids[:, 0]], np.ones(len(ids)), 8)
        assert sq_distances.shape == (len(rows), 1)
        means.append(measure(Method("1nn"), nearest, moved.codes, seed=0).accuracy)
    assert by_name["1nn"].accuracy == pytest.approx(np.mean(means))
    assert by_name[DEFAULT.name].ece > {row.variant: row for row in found.clean}[DEFAULT.name].ece
    assert cached_corrupted(tmp_path, "own", support, rows, queries_of, k=10) == found
