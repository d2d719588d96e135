"""`nearsure calibrate`: distances and labels alone give the classifier's own confidence."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import nearsure, points, refused, succeeded

from nearsure import NEDClassifier, fit_confidence
from nearsure.arrays import AnyArray, FloatArray
from nearsure.index import unit_vectors
from nearsure.labels import codes_of
from nearsure.loo import leave_one_out
from nearsure.neighbors import Neighbors

GALLERY, LABELS = points()
QUERIES, TRUTH = points(40, seed=1)
K = 20


def found(metric: str = "euclidean") -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Squared distances and rows of the neighbours of gallery points and of queries."""
    own, asked = (
        unit_vectors(one) if metric == "cosine" else one
        for one in (GALLERY.astype(np.float64), QUERIES.astype(np.float64))
    )

    def nearest(of: FloatArray, k: int) -> tuple[AnyArray, AnyArray]:
        sq_distances = ((of[:, None] - own) ** 2).sum(axis=2)
        ids = np.argsort(sq_distances, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(sq_distances, ids, axis=1), ids

    return *nearest(own, K + 1), *nearest(asked, K)


def hits(
    path: Path, distances: AnyArray, ids: AnyArray, *, truth: AnyArray | None, named: bool
) -> Path:
    """What an engine returned, as lines of JSON."""
    lines = []
    for row, own in enumerate(ids.tolist()):
        line: dict[str, Any] = {
            "distances": distances[row].tolist(),
            "labels": LABELS[own].tolist(),
        }
        if named:
            line |= {"ids": own, "id": row}
        if truth is not None:
            line["truth"] = str(truth[row])
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    own, own_ids, asked, asked_ids = found()
    return (
        hits(tmp_path / "own.jsonl", np.sqrt(own), own_ids, truth=LABELS, named=True),
        hits(tmp_path / "asked.jsonl", np.sqrt(asked), asked_ids, truth=None, named=False),
    )


def expected(metric: str = "euclidean") -> FloatArray:
    classifier = NEDClassifier(K, metric=metric).fit(GALLERY, LABELS)  # type: ignore[arg-type]
    return classifier.predict_with_confidence(QUERIES).confidence


def confidence(*words: object) -> FloatArray:
    return np.array([float(row["confidence"]) for row in succeeded("calibrate", *words).rows])


def test_confidence_is_that_of_the_classifier(files: tuple[Path, Path]) -> None:
    own, asked = files
    np.testing.assert_allclose(
        confidence(own, "--queries", asked, "--distance", "l2"), expected(), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("distance", "metric", "convert"),
    [
        ("squared-l2", "euclidean", lambda sq_distances: sq_distances),
        ("cosine-distance", "cosine", lambda sq_distances: sq_distances / 2),
        ("cosine-similarity", "cosine", lambda sq_distances: 1 - sq_distances / 2),
        ("inner-product", "cosine", lambda sq_distances: 1 - sq_distances / 2),
        ("negative-inner-product", "cosine", lambda sq_distances: sq_distances / 2 - 1),
    ],
)
def test_every_convention_gives_the_same(
    tmp_path: Path, distance: str, metric: str, convert: Callable[[AnyArray], AnyArray]
) -> None:
    own, own_ids, asked, asked_ids = found(metric)
    words = [
        hits(tmp_path / "own.jsonl", convert(own), own_ids, truth=LABELS, named=True),
        "--queries",
        hits(tmp_path / "asked.jsonl", convert(asked), asked_ids, truth=None, named=False),
    ]
    # The classifier's unit vectors are of single precision.
    rtol = 1e-7 if metric == "cosine" else 1e-9
    np.testing.assert_allclose(
        confidence(*words, "--distance", distance), expected(metric), rtol=rtol
    )


def test_a_saved_rule_answers_the_same_without_the_gallery(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    own, asked = files
    rule = tmp_path / "rule.json"
    first = succeeded(
        "calibrate", own, "--queries", asked, "--distance", "l2", "--save", rule, "--json"
    ).json
    again = succeeded("calibrate", "--queries", asked, "--rule", rule, "--json").json
    assert again == first
    document = json.loads(rule.read_text())
    assert (document["version"], document["distance"], document["n_neighbors"]) == (1, "l2", K)
    assert document["classes"] == sorted(set(LABELS.tolist()))
    assert "must be l2" in refused(
        "calibrate", "--queries", asked, "--rule", rule, "--distance", "squared-l2"
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda document: document | {"version": 2}, "has version 2"),
        (lambda document: document | {"version": 0}, "altered or cut off"),
        (lambda document: document | {"kind": "other"}, "not a rule"),
        (lambda document: document | {"distance": "manhattan"}, "altered or cut off"),
        (lambda document: document | {"classes": ["owl"]}, "altered or cut off"),
        (lambda document: document | {"classes": ["owl", "owl", "wren"]}, "altered or cut off"),
        (lambda document: document | {"n_neighbors": 0}, "altered or cut off"),
        (lambda document: document | {"rule": {}}, "altered or cut off"),
        (lambda document: document | {"rule": [1]}, "altered or cut off"),
        (lambda document: [document], "not a rule"),
    ],
)
def test_a_rule_that_was_altered_is_refused(
    files: tuple[Path, Path], tmp_path: Path, change: Callable[[Any], Any], sentence: str
) -> None:
    own, asked = files
    rule = tmp_path / "rule.json"
    succeeded("calibrate", own, "--distance", "l2", "--save", rule)
    rule.write_text(json.dumps(change(json.loads(rule.read_text()))))
    assert sentence in refused("calibrate", "--queries", asked, "--rule", rule)


def test_without_queries_the_gallery_is_answered_for(files: tuple[Path, Path]) -> None:
    own, _ = files
    run = succeeded("calibrate", own, "--distance", "l2", "--precision", 0.8, "--json")
    classifier = NEDClassifier(K).fit(GALLERY, LABELS)
    prediction = classifier.predict_own()
    said = run.json
    assert [one["id"] for one in said] == list(range(90))
    assert [one["label"] for one in said] == prediction.labels.tolist()
    np.testing.assert_allclose(
        [one["confidence"] for one in said], prediction.confidence, rtol=1e-9
    )
    chosen = classifier.accept_threshold(precision=0.8)
    assert [one["accepted"] for one in said] == chosen.accepts(prediction.confidence).tolist()
    right = np.mean([one["label"] == one["truth"] for one in said])
    assert f"{right:.2%} of 90 answers are right" in run.err


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_a_point_among_its_own_neighbours_is_suspected(tmp_path: Path, noise: float) -> None:
    own, ids, *_ = found()
    own = own.copy()
    # Half-precision similarities are seldom exactly 1.
    own[::2, 0] += noise
    path = hits(tmp_path / "own.jsonl", own, ids, truth=LABELS, named=False)
    run = succeeded("calibrate", path, "--distance", "squared-l2", "--rule", "knn")
    assert "warning: most points have a neighbour of their class that is as good" in run.err
    alone = hits(tmp_path / "alone.jsonl", own[:, 1:], ids[:, 1:], truth=LABELS, named=False)
    assert "warning" not in succeeded("calibrate", alone, "--distance", "squared-l2").err


def test_ids_of_another_numbering_are_refused(tmp_path: Path) -> None:
    own, ids, *_ = found()
    lines = []
    for row in range(90):
        one = {"id": row, "distances": own[row].tolist(), "labels": LABELS[ids[row]].tolist()}
        lines.append(one | {"ids": (ids[row] + 1).tolist(), "truth": str(LABELS[row])})
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    run = nearsure("calibrate", path, "--distance", "squared-l2")
    assert run.code == 2
    assert "Most points found themselves, but only" in run.err
    # Whoever has left the points out before may have any ids.
    for line in lines:
        line |= {name: line[name][1:] for name in ("distances", "labels", "ids")}
    path.write_text("\n".join(map(json.dumps, lines)))
    run = succeeded("calibrate", path, "--distance", "squared-l2")
    assert "points were among their own neighbours" in run.err


def test_duplicates_are_told_from_points_that_found_themselves(tmp_path: Path) -> None:
    own, ids, *_ = found()
    own = own.copy()
    own[:, 1] = 0.0
    twins = LABELS[ids]
    twins[:, 1] = LABELS
    np.savez(
        tmp_path / "own.npz",
        distances=own,
        labels=twins,
        ids=ids,
        own_ids=np.arange(90),
        truth=LABELS,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        run = succeeded("calibrate", tmp_path / "own.npz", "--distance", "squared-l2")
    assert "warning: The loss falls down to T = 0" in run.err
    assert "most points have a near-duplicate of their class" in run.err


@pytest.mark.parametrize("name", ["counts.json", "counts.csv"])
def test_a_sample_takes_the_sizes_of_classes_from_a_file(tmp_path: Path, name: str) -> None:
    own, ids, asked, asked_ids = found()
    sample = np.arange(0, 90, 2)
    queries = hits(tmp_path / "asked.jsonl", asked, asked_ids, truth=None, named=False)
    np.savez(
        tmp_path / "some.npz",
        distances=own[sample],
        labels=LABELS[ids[sample]],
        ids=ids[sample],
        own_ids=sample,
        truth=LABELS[sample],
    )
    sizes = {"owl": 30, "wren": 500, "crow": 30, "emu": 4}
    counts = tmp_path / name
    if counts.suffix == ".json":
        counts.write_text(json.dumps(sizes))
    else:
        counts.write_text("label,count\n" + "".join(f"{key},{sizes[key]}\n" for key in sizes))
    words = [tmp_path / "some.npz", "--queries", queries, "--distance", "squared-l2"]
    classes = sorted(sizes)
    left = leave_one_out(
        Neighbors(own[sample], codes_of(LABELS[ids[sample]], np.array(classes)), ids[sample]),
        sample,
    )
    rule = fit_confidence(
        left,
        codes_of(LABELS[sample], np.array(classes)),
        class_counts=[sizes[label] for label in classes],
    )
    expected = rule.posterior(
        Neighbors(asked, codes_of(LABELS[asked_ids], np.array(classes))), n_classes=4
    )
    said = confidence(*words, "--class-counts", counts)
    np.testing.assert_allclose(said, expected.confidence, rtol=1e-12)
    run = succeeded("calibrate", *words)
    assert "--class-counts must say how large its classes are" in run.err
    assert not np.allclose(said, [float(row["confidence"]) for row in run.rows], rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("c.json", "[1]", "must be a JSON object"),
        ("c.json", "{", "is not JSON"),
        ("c.json", '{"owl": 30, "wren": 30}', "Got none of 'crow'"),
        ("c.json", '{"owl": true}', "must be a whole number. Got True"),
        ("c.csv", "owl,30\n", "must have the columns label,count"),
        ("c.csv", "label,count\nowl,many\n", "Got 'many' instead"),
        ("c.csv", "label,count\nowl,1\nowl,2\n", "more than once"),
        ("c.json", '{"owl": 1, "wren": 30, "crow": 30}', "class_counts must count"),
    ],
)
def test_class_counts_that_cannot_be_are_refused(
    files: tuple[Path, Path], tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    (tmp_path / name).write_text(text)
    words = ["calibrate", files[0], "--distance", "l2", "--class-counts", tmp_path / name]
    assert sentence in refused(*words)


def test_fewer_neighbours_than_at_the_fit_are_warned_of_and_more_are_cut(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    own, asked = files
    rule = tmp_path / "rule.json"
    whole = confidence(own, "--queries", asked, "--distance", "l2", "--save", rule)
    lines = [json.loads(line) for line in asked.read_text().splitlines()]
    for line in lines:
        line["distances"].append(1e3)
        line["labels"].append("owl")
    asked.write_text("\n".join(map(json.dumps, lines)))
    np.testing.assert_array_equal(confidence("--queries", asked, "--rule", rule), whole)
    for line in lines:
        del line["distances"][5:], line["labels"][5:]
    asked.write_text("\n".join(map(json.dumps, lines)))
    run = succeeded("calibrate", "--queries", asked, "--rule", rule)
    assert f"queries have 5 neighbours, while the rule was fitted with {K}" in run.err


def test_ragged_hits_and_a_query_without_any(files: tuple[Path, Path]) -> None:
    own, asked = files
    lines = [json.loads(line) for line in asked.read_text().splitlines()]
    lines[1] = {"distances": [], "labels": []}
    asked.write_text("\n".join(map(json.dumps, lines)))
    # Everything with an answer is right often enough to be accepted; what has none never is.
    words = ["--distance", "l2", "--json", "--rule", "ned", "--precision", 0.2]
    said = succeeded("calibrate", own, "--queries", asked, *words).json
    assert (said[1]["label"], said[1]["confidence"], said[1]["accepted"]) == (None, 0.0, False)
    assert all(one["label"] is not None for one in said[2:])
    assert all(one["accepted"] for one in said[2:])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Give GALLERY_HITS to fit on, or --rule rule.json"),
        (["own.jsonl"], "--distance must say"),
        (["own.jsonl", "--distance", "l2", "--rule", "best"], "rule must be one of"),
        (["asked.jsonl", "--distance", "l2"], "must hold the true label of each point"),
        (["own.jsonl", "--rule", "rule.json"], "GALLERY_HITS must be left out"),
        (["--rule", "rule.json"], "answers --queries"),
        (["--rule", "no.json", "--queries", "asked.jsonl"], "There is no rule at no.json"),
        (["--rule", "bad.json", "--queries", "asked.jsonl"], "bad.json is not JSON"),
        (["-", "--queries", "-", "--distance", "l2"], "can be standard input"),
        (["own.jsonl", "--distance", "cosine-similarity"], "must lie in [-1, 1]"),
        (["own.jsonl", "--queries", "new.jsonl", "--distance", "l2"], "['emu'], too: fit again"),
        (
            ["--rule", "rule.json", "--queries", "asked.jsonl", "--precision", "0.9"],
            "need the points of the gallery",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    succeeded("calibrate", files[0], "--distance", "l2", "--save", "rule.json")
    Path("bad.json").write_text("{")
    Path("new.jsonl").write_text('{"distances": [1.0], "labels": ["emu"]}\n')
    run = nearsure("calibrate", *words)
    assert run.code == 2
    assert "Traceback" not in run.err
    # A sentence about the fit may come before.
    assert sentence in run.err.splitlines()[-1]
