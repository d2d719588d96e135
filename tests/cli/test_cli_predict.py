"""`nearsure predict`: the classifier's answers, wherever they go."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import fitted_model, jsonl, nearsure, points, refused, succeeded, write_npz

from nearsure import NEDClassifier
from nearsure.engines.sqlite import SqliteEngine
from nearsure.model_file import model_bytes, read_model_bytes
from nearsure.neighbors import Neighbors

QUERIES, TRUTH = points(40, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    fitted_model(folder)
    write_npz(folder / "queries.npz", QUERIES, TRUTH)
    succeeded("fit", folder / "gallery.npz", "-o", folder / "gallery.sqlite")
    return folder


@pytest.fixture(scope="module")
def classifier(folder: Path) -> NEDClassifier:
    return NEDClassifier.load(folder / "model.safetensors")


def predict(folder: Path, *words: object) -> tuple[object, ...]:
    return ("predict", folder / "queries.npz", "--model", folder / "model.safetensors", *words)


def test_a_pipe_gets_csv_with_every_answer(folder: Path, classifier: NEDClassifier) -> None:
    expected = classifier.predict_with_confidence(QUERIES)
    rows = succeeded(*predict(folder)).rows
    assert [list(row) for row in rows[:1]] == [["row", "label", "confidence"]]
    assert [int(row["row"]) for row in rows] == list(range(40))
    assert [row["label"] for row in rows] == expected.labels.tolist()
    assert [float(row["confidence"]) for row in rows] == expected.confidence.tolist()


def test_every_format_says_the_same(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    said = succeeded(*predict(folder, "--json", "--top", 2, "--neighbors", 3)).json
    for name in ("out.json", "out.jsonl", "out.csv", "out.parquet", "out.other"):
        path = folder / name
        words = ["--format", "jsonl"] if name == "out.other" else []
        run = succeeded(*predict(folder, "--top", 2, "--neighbors", 3, "-o", path, *words))
        assert run.out == f"wrote {path}\n"
        if path.suffix == ".parquet":
            assert parquet.read_table(path).to_pylist() == said
        elif path.suffix == ".json":
            assert json.loads(path.read_text()) == said
        elif path.suffix == ".csv":
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            assert [json.loads(row["neighbors"]) for row in rows] == [
                one["neighbors"] for one in said
            ]
        else:
            assert [json.loads(line) for line in path.read_text().splitlines()] == said


def test_evidence_is_that_of_the_classifier(folder: Path, classifier: NEDClassifier) -> None:
    said = succeeded(*predict(folder, "--json", "--top", 9, "--neighbors", 50)).json
    prediction = classifier.predict_with_confidence(QUERIES)
    shares = classifier.vote_shares(prediction.neighbors)
    for row, answer in enumerate(said):
        neighbors = answer["neighbors"]
        assert [one["id"] for one in neighbors] == np.asarray(prediction.neighbors.ids)[
            row
        ].tolist()
        assert [one["sq_distance"] for one in neighbors] == prediction.neighbors.sq_distances[
            row
        ].tolist()
        assert [one["share"] for one in neighbors] == shares[row].tolist()
        labels = classifier.support_labels([one["id"] for one in neighbors])
        assert [one["label"] for one in neighbors] == labels.tolist()
        assert sum(one["share"] for one in neighbors) == pytest.approx(1)
        codes = classifier.encode([one["label"] for one in answer["classes"]])
        of_row = prediction.posterior.take(np.full(len(codes), row))
        assert [one["probability"] for one in answer["classes"]] == of_row.probability_of(
            codes
        ).tolist()
        assert answer["classes"][0] == {
            "label": answer["label"],
            "probability": answer["confidence"],
        }


def test_accepted_is_what_the_promise_accepts(folder: Path, classifier: NEDClassifier) -> None:
    chosen = classifier.accept_threshold(precision=0.8)
    assert chosen.reached
    run = succeeded(*predict(folder, "--json", "--precision", 0.8))
    confidence = np.array([one["confidence"] for one in run.json])
    accepted = [one["accepted"] for one in run.json]
    assert accepted == chosen.accepts(confidence).tolist()
    assert 0 < sum(accepted) < 40
    assert str(chosen) in run.err
    by_hand = succeeded(*predict(folder, "--json", "--threshold", chosen.threshold)).json
    assert [one["accepted"] for one in by_hand] == accepted
    # A promise that cannot be kept accepts nothing, and says so.
    run = succeeded(*predict(folder, "--json", "--precision", 0.9999))
    assert not any(one["accepted"] for one in run.json)
    assert "No threshold" in run.err


@pytest.mark.filterwarnings("default::nearsure.errors.QueriesDifferWarning")
def test_a_promise_is_adjusted_to_the_queries_or_withdrawn(
    folder: Path, classifier: NEDClassifier, tmp_path: Path
) -> None:
    states = set()
    plain = classifier.accept_threshold(precision=0.8)
    rng = np.random.default_rng(0)
    for number, noise in enumerate((1.6, 40.0)):
        queries = np.repeat(QUERIES, 5, axis=0)
        queries = (queries + noise * rng.normal(size=queries.shape)).astype(np.float32)
        np.savez(tmp_path / f"{number}.npz", vectors=queries)
        words = ("predict", tmp_path / f"{number}.npz", "-m", folder / "model.safetensors")
        run = succeeded(*words, "--json", "--precision", 0.8)
        chosen = classifier.accept_threshold(precision=0.8, queries=queries)
        assert str(chosen) in run.err
        assert run.err.count("warning: These queries are not like the gallery") == 1
        confidence = np.array([one["confidence"] for one in run.json])
        accepted = [one["accepted"] for one in run.json]
        assert accepted == chosen.accepts(confidence).tolist()
        # A threshold that is given is used.
        run = succeeded(*words, "--json", "--threshold", plain.threshold)
        assert [one["accepted"] for one in run.json] == plain.accepts(confidence).tolist()
        states.add(chosen.state)
    assert states <= {"adjusted", "withdrawn"}
    assert "withdrawn" in states


def test_chunks_and_an_sqlite_gallery_make_no_difference(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--neighbors", 5, "--top", 2]
    whole = succeeded(*predict(folder, *words, "--json")).json
    monkeypatch.setattr("nearsure.cli.predict.ROWS_AT_A_TIME", 7)
    assert succeeded(*predict(folder, *words, "--json")).json == whole
    in_file = succeeded(
        *("predict", folder / "queries.npz", "-m", folder / "gallery.sqlite", *words, "--json")
    ).json
    assert in_file == whole


def test_standard_input_with_names_and_labels_that_are_not_asked_for(folder: Path) -> None:
    expected = succeeded(*predict(folder)).rows
    ids = [f"q{row}" for row in range(40)]
    stdin = jsonl(QUERIES, TRUTH.tolist(), ids)
    rows = succeeded("predict", "-", "-m", folder / "model.safetensors", stdin=stdin).rows
    assert [row["id"] for row in rows] == ids
    assert [row["label"] for row in rows] == [row["label"] for row in expected]


def test_a_terminal_gets_a_table_of_the_first_rows(folder: Path) -> None:
    run = succeeded(*predict(folder, "--rows", 3, "--neighbors", 1), on_terminal=True)
    assert "The first 3 queries" in run.out
    assert "confidence" in run.out
    answers = succeeded(*predict(folder, "--json", "--rows", 3)).json
    assert len(answers) == 40
    shown = [line for line in run.out.splitlines() if "│ 0." in line or "│ 1." in line]
    assert len(shown) == 3
    words = ["predict", "-", "-m", folder / "model.safetensors"]
    for n_rows, said in ((5, "The first 5 queries;"), (1, "The first query;")):
        run = succeeded(*words, stdin=jsonl(QUERIES[:n_rows]), on_terminal=True)
        assert said in run.out
    for line, answer in zip(shown, answers, strict=False):
        assert f"{answer['confidence']:.4f}" in line


def test_a_column_of_labels_of_any_name_is_left_aside(folder: Path, tmp_path: Path) -> None:
    rows = [",".join(map(repr, vector)) for vector in QUERIES.tolist()]
    lines = [f"{row},{label}" for row, label in zip(rows, TRUTH, strict=True)]
    (tmp_path / "q.csv").write_text("\n".join(["a,b,c,d,species", *lines]))
    words = ["predict", tmp_path / "q.csv", "-m", folder / "model.safetensors"]
    assert nearsure(*words).code == 2
    assert succeeded(*words, "--labels-key", "species").out == succeeded(*predict(folder)).out


def test_a_query_without_neighbours_is_never_accepted(
    folder: Path, classifier: NEDClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    prediction = classifier.predict_with_confidence(QUERIES)
    found = prediction.neighbors
    counts = found.counts.copy()
    counts[4] = 0
    none_found = replace(
        prediction,
        neighbors=Neighbors(found.sq_distances, found.labels, found.ids, counts),
    )
    monkeypatch.setattr(NEDClassifier, "predict_with_confidence", lambda *_: none_found)
    said = succeeded(*predict(folder, "--json", "--threshold", 0)).json
    assert [row for row, one in enumerate(said) if not one["accepted"]] == [4]
    assert said[4]["label"] is None


def test_a_label_cannot_move_the_cursor(tmp_path: Path) -> None:
    vectors, _ = points()
    labels = np.array(["red\x1b[31m", "[bold]plain[/bold]", ":smile:"])[np.arange(90) % 3]
    gallery = write_npz(tmp_path / "g.npz", vectors, labels)
    succeeded("fit", gallery, "-o", tmp_path / "m.safetensors")
    words = ["predict", gallery, "-m", tmp_path / "m.safetensors", "--rows", 9]
    shown = succeeded(*words, on_terminal=True).out
    assert "red?[31m" in shown
    assert "[bold]plain" in shown.replace("\n", "")
    assert ":smile:" in shown


def test_unknown_queries_are_judged_where_they_are_expected(tmp_path: Path) -> None:
    model = fitted_model(tmp_path, "--unknown-share", 0.3)
    queries = write_npz(tmp_path / "q.npz", np.vstack([QUERIES, QUERIES[:1] + 100]), np.arange(41))
    said = succeeded("predict", queries, "-m", model, "--json").json
    expected = NEDClassifier.load(model).predict_with_confidence(
        np.load(queries)["embeddings"].astype(np.float32)
    )
    assert expected.verdicts is not None
    assert expected.p_known is not None
    assert [one["verdict"] for one in said] == expected.verdicts.tolist()
    assert [one["p_known"] for one in said] == expected.p_known.tolist()
    assert said[40]["verdict"] == "unknown"


@pytest.mark.parametrize("head", ["means", "none"])
def test_neighbours_come_with_what_they_and_the_class_support(tmp_path: Path, head: str) -> None:
    model = fitted_model(tmp_path, "--head", head)
    queries = write_npz(tmp_path / "q.npz", QUERIES, np.arange(len(QUERIES)))
    said = succeeded("predict", queries, "-m", model, "--neighbors", 2, "--json").json
    classifier = NEDClassifier.load(model)
    support = classifier.support(classifier.predict_with_confidence(QUERIES))
    if support.head is None:
        assert head == "none"
        assert not {"p_neighbors", "p_head"} & said[0].keys()
        return
    assert [one["p_neighbors"] for one in said] == support.neighbors.tolist()
    assert [one["p_head"] for one in said] == support.head.tolist()
    plain = succeeded("predict", queries, "-m", model, "--json").json
    assert not {"p_neighbors", "p_head"} & plain[0].keys()


def test_integer_labels_stay_integers(tmp_path: Path) -> None:
    gallery = write_npz(tmp_path / "g.npz", points()[0], np.arange(90) % 3)
    succeeded("fit", gallery, "-o", tmp_path / "m.safetensors")
    said = succeeded("predict", gallery, "-m", tmp_path / "m.safetensors", "--json").json
    assert {one["label"] for one in said} == {0, 1, 2}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["queries.npz", "-m", "no.safetensors"], "There is no model file at no.safetensors"),
        (["queries.npz", "-m", "no.sqlite"], "There is no gallery at no.sqlite"),
        (["queries.npz", "-m", "queries.npz"], "queries.npz is cut off or is not a nearsure model"),
        (["no.npz", "-m", "model.safetensors"], "no.npz"),
        (["short.npz", "-m", "model.safetensors"], "dimension of the gallery, 4. short.npz has 3"),
        (["queries.npz", "-m", "model.safetensors", "-o", "x.txt"], "--output must end in .csv"),
        (
            ["queries.npz", "-m", "model.safetensors", "-o", "x.csv", "--json"],
            "--json writes to standard output",
        ),
        (["queries.npz", "-m", "model.safetensors", "--table", "x"], "without --gallery"),
        (["queries.npz", "-m", "gallery.sqlite", "--gallery", "milvus"], "--gallery must be left"),
        (
            ["queries.npz", "-m", "model.safetensors", "--precision", "0.9", "--threshold", "0.5"],
            "not both",
        ),
        (["queries.npz", "-m", "model.safetensors", "--precision", "1"], "strictly between 0 and"),
        (["no.npz", "-m", "no.sqlite", "--precision", "99"], "did you mean 0.99?\n"),
        (["queries.npz", "-m", "beside.safetensors"], "say where with --gallery"),
        (
            ["queries.npz", "-m", "gallery.sqlite", "--engine-option", "speed=3"],
            "the engine has no option 'speed'",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(folder)
    write_npz(folder / "short.npz", QUERIES[:, :3], TRUTH)
    if not (folder / "beside.safetensors").exists():
        succeeded("fit", "gallery.sqlite", "-o", "beside.safetensors")
    assert sentence in refused("predict", *words)


def test_what_is_not_a_command_or_an_option_is_said_with_the_same_code(folder: Path) -> None:
    for words, said in (
        (("predicts",), "Did you mean 'predict'?"),
        (("predict",), "Missing argument"),
        ((*predict(folder), "--speed", "3"), "No such option: --speed"),
    ):
        run = nearsure(*words)
        assert run.code == 2
        assert said in run.err
        assert "Traceback" not in run.err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda manifest: manifest.pop("n_features"), "'n_features' is missing"),
        (lambda manifest: manifest["rule"].update(temperature="x"), "'temperature' must be"),
        (lambda manifest: manifest.update(classes_dtype="M8[s]"), "Got the type 'M8[s]'"),
    ],
)
@pytest.mark.parametrize("kind", ["model.safetensors", "gallery.sqlite"])
def test_an_altered_model_is_refused_with_a_sentence(
    folder: Path,
    tmp_path: Path,
    kind: str,
    change: Callable[[dict[str, Any]], object],
    sentence: str,
) -> None:
    path = tmp_path / kind
    path.write_bytes((folder / kind).read_bytes())
    if path.suffix == ".sqlite":
        with SqliteEngine(path) as engine:
            manifest, tensors = read_model_bytes(engine.notes["model"])
            change(manifest)
            engine.notes["model"] = model_bytes(manifest, tensors)
    else:
        manifest, tensors = read_model_bytes(path.read_bytes())
        change(manifest)
        path.write_bytes(model_bytes(manifest, tensors))
    said = refused("predict", folder / "queries.npz", "--model", path)
    assert sentence in said
    assert "Traceback" not in said
