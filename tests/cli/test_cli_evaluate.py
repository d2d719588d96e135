"""`nearsure evaluate --model`: the metrics of the package, from a stream."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import fitted_model, jsonl, points, refused, succeeded, write_npz

from nearsure import NEDClassifier
from nearsure.embedding_files import EmbeddingSet
from nearsure.errors import ConfigError
from nearsure.metrics import (
    accuracy,
    area_under_risk_coverage,
    bootstrap_interval,
    brier_score,
    calibration_floor,
    debiased_calibration_error,
    error_detection_auroc,
    expected_calibration_error,
)

QUERIES, TRUTH = points(60, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    fitted_model(folder)
    write_npz(folder / "queries.npz", QUERIES, TRUTH)
    return folder


def evaluate(folder: Path, *words: object) -> tuple[object, ...]:
    model = folder / "model.safetensors"
    return ("evaluate", folder / "queries.npz", "-m", model, "--resamples", 50, *words)


def test_numbers_are_those_of_the_metrics(folder: Path) -> None:
    said = succeeded(*evaluate(folder, "--json", "--seed", 3)).json
    classifier = NEDClassifier.load(folder / "model.safetensors")
    prediction = classifier.predict_with_confidence(QUERIES)
    confidence, correct = prediction.confidence, prediction.labels == TRUTH
    metrics = {name: one["value"] for name, one in said["metrics"].items()}
    assert metrics["accuracy"] == accuracy(correct)
    assert metrics["mean_confidence"] == confidence.mean()
    assert metrics["ece"] == expected_calibration_error(confidence, correct)
    assert metrics["aurc"] == area_under_risk_coverage(confidence, correct)
    assert metrics["error_auroc"] == error_detection_auroc(confidence, correct)
    assert metrics["brier"] == pytest.approx(
        brier_score(prediction.posterior, classifier.encode(TRUTH))
    )
    codes = classifier.encode(TRUTH)
    losses = -np.log(np.maximum(prediction.posterior.probability_of(codes), 0.001))
    assert metrics["nll"] == pytest.approx(losses.mean())
    interval = bootstrap_interval(
        debiased_calibration_error, confidence, correct, seed=3, n_resamples=50
    )
    assert said["metrics"]["debiased_ece"] == {
        "value": interval.estimate,
        "low": min(interval.low, interval.estimate),
        "high": max(interval.high, interval.estimate),
    }
    assert said["metrics"]["ece"]["low"] is None
    assert said["ece_floor"] == calibration_floor(confidence, seed=3, n_simulations=50)
    assert (said["n_queries"], said["n_unknown"], said["threshold"]) == (60, 0, None)


def test_people_get_the_same_in_percent(folder: Path) -> None:
    said = succeeded(*evaluate(folder, "--json", "--precision", 0.8)).json
    run = succeeded(*evaluate(folder, "--precision", 0.8))
    accuracy = said["metrics"]["accuracy"]
    assert f"{accuracy['value']:.2%}" in run.out
    assert f"{accuracy['low']:.2%} to {accuracy['high']:.2%}" in run.out
    assert f"{said['ece_floor']:.2%}" in run.out
    assert f"{said['threshold']['coverage']:.1%} of these queries" in run.out


def test_a_threshold_of_the_gallery_is_measured_on_the_queries(folder: Path) -> None:
    said = succeeded(*evaluate(folder, "--json", "--precision", 0.8)).json["threshold"]
    classifier = NEDClassifier.load(folder / "model.safetensors")
    chosen = classifier.accept_threshold(precision=0.8)
    prediction = classifier.predict_with_confidence(QUERIES)
    accepted = chosen.accepts(prediction.confidence)
    right = (prediction.labels == TRUTH)[accepted]
    assert (said["accepted"], said["coverage"]) == (accepted.sum(), accepted.mean())
    assert said["precision"]["value"] == right.mean()
    assert said["precision"]["low"] < right.mean() < said["precision"]["high"]
    impossible = succeeded(*evaluate(folder, "--json", "--precision", 0.9999)).json["threshold"]
    assert (impossible["threshold"], impossible["precision"]) == (None, None)


@pytest.mark.filterwarnings("default::nearsure.errors.QueriesDifferWarning")
def test_a_promise_is_made_for_the_queries(folder: Path, tmp_path: Path) -> None:
    model = folder / "model.safetensors"
    queries = 40.0 * np.concatenate([QUERIES, 0.9 * QUERIES]).astype(np.float32)
    np.savez(tmp_path / "far.npz", vectors=queries, labels=np.concatenate([TRUTH, TRUTH]))
    run = succeeded("evaluate", tmp_path / "far.npz", "-m", model, "--precision", 0.8, "--json")
    threshold = run.json["threshold"]
    assert threshold["promise"] == "withdrawn"
    assert threshold["accepted"] == 0
    assert "withdrawn" in threshold["sentence"]
    assert "warning: These queries are not like the gallery" in run.err


def test_chunks_make_no_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = succeeded(*evaluate(folder, "--json")).json
    monkeypatch.setattr("nearsure.cli.evaluate.ROWS_AT_A_TIME", 7)
    assert succeeded(*evaluate(folder, "--json")).json == whole


def test_classes_that_the_gallery_lacks_are_counted_and_wrong(folder: Path) -> None:
    truth = np.where(np.arange(60) < 15, "emu", TRUTH)
    stdin = jsonl(QUERIES, truth.tolist())
    words = ["evaluate", "-", "-m", folder / "model.safetensors", "--resamples", 50, "--json"]
    said = succeeded(*words, stdin=stdin).json
    predicted = NEDClassifier.load(folder / "model.safetensors").predict(QUERIES)
    assert said["n_unknown"] == 15
    assert said["metrics"]["accuracy"]["value"] == (predicted == truth).mean()
    assert said["metrics"]["known_accuracy"]["value"] == (predicted == truth)[15:].mean()
    assert "unknown_auroc" not in said["metrics"]


def test_unknown_queries_are_told_apart_where_they_are_expected(tmp_path: Path) -> None:
    model = fitted_model(tmp_path, "--unknown-share", 0.3)
    far = QUERIES.copy()
    far[:15] += 100
    stdin = jsonl(far, np.where(np.arange(60) < 15, "emu", TRUTH).tolist())
    words = ["evaluate", "-", "-m", model, "--resamples", 50, "--json"]
    said = succeeded(*words, stdin=stdin).json
    assert said["metrics"]["unknown_auroc"]["value"] == 1.0


def test_text_and_integer_labels_of_the_same_classes_meet(tmp_path: Path) -> None:
    codes = np.arange(90) % 3
    for name, labels, other in (
        ("int", codes, codes.astype(str)),
        ("text", codes.astype(str), codes),
    ):
        gallery = write_npz(tmp_path / f"{name}.npz", points()[0], labels)
        model = tmp_path / f"{name}.safetensors"
        succeeded("fit", gallery, "-o", model)
        vectors = points(90, seed=1)[0]
        words = ["evaluate", "-", "-m", model, "--resamples", 10, "--json"]
        run = succeeded(*words, stdin=jsonl(vectors, other.tolist()))
        assert (run.json["n_unknown"], run.err) == (0, "")
        # What is no integer is of a class that the gallery lacks.
        some = ["owl", *other.astype(str)[1:].tolist()]
        assert succeeded(*words, stdin=jsonl(vectors, some)).json["n_unknown"] == 1
        run = succeeded(*words, stdin=jsonl(vectors, [f"00{code}" for code in codes]))
        assert run.json["n_unknown"] == 90
        assert "warning: no query is of a class of the gallery" in run.err


def test_truth_values_meet_their_names(tmp_path: Path) -> None:
    vectors, labels = points()
    model = tmp_path / "m.safetensors"
    gallery = write_npz(tmp_path / "g.npz", vectors, labels == "owl")
    succeeded("fit", gallery, "-o", model)
    words = ["evaluate", "-", "-m", model, "--resamples", 10, "--json"]
    names = (TRUTH == "owl").astype(str).tolist()
    assert succeeded(*words, stdin=jsonl(QUERIES, names)).json["n_unknown"] == 0
    assert succeeded(*words, stdin=jsonl(QUERIES, TRUTH.tolist())).json["n_unknown"] == 60


def test_the_gallerys_own_points_are_suspected(folder: Path) -> None:
    gallery, model = folder / "gallery.npz", folder / "model.safetensors"
    run = succeeded("evaluate", gallery, "-m", model, "--resamples", 10)
    assert "these look like the gallery's own points" in run.err
    document = folder / "own.json"
    words = ["--resamples", 10, "--json", document]
    run = succeeded("report", gallery, "-m", model, *words)
    assert "these look like the gallery's own points" in run.err
    assert "gallery's own points" in document.read_text()
    run = succeeded("report", folder / "queries.npz", "-m", model, *words)
    assert run.err == ""
    assert "gallery's own points" not in document.read_text()


def test_intervals_are_those_of_the_report(folder: Path) -> None:
    said = succeeded(*evaluate(folder, "--json")).json["metrics"]
    document = folder / "same.json"
    model = folder / "model.safetensors"
    words = ["-m", model, "--resamples", 50, "--json", document]
    succeeded("report", folder / "queries.npz", *words)
    metrics = {one["key"]: one for one in json.loads(document.read_text())["metrics"]}
    assert said == {name: metrics[name]["estimate"] for name in said}


def test_standard_input_gives_the_papers_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[EmbeddingSet] = []

    def experiment(_: str, queries: EmbeddingSet, *__: object) -> None:
        given.append(queries)
        raise ConfigError("That is enough.")

    monkeypatch.setattr("nearsure.lab.experiment.run_experiment", experiment)
    vectors, labels = points()
    assert "enough" in refused("compare", "-", stdin=jsonl(vectors, labels.tolist()))
    np.testing.assert_array_equal(given[0].vectors, vectors)
    assert given[0].labels.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--precision", "0.9"], "without one, as the paper's tables do: nearsure compare"),
        (["-m", "model.safetensors", "--precision", "99"], "did you mean 0.99?\n"),
        # Said before a model is read, which may take long.
        (["-m", "absent.safetensors", "--precision", "99"], "did you mean 0.99?\n"),
        (["-m", "model.safetensors", "--labels-key", "none"], "queries.npz has no array 'none'"),
    ],
)
def test_nothing_that_is_typed_is_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(folder)
    assert sentence in refused("evaluate", "queries.npz", *words)
