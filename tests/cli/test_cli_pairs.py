"""`nearsure pairs`: learn, compare, accept and report."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import refused, succeeded, write_npz

from nearsure import PairConfidence
from nearsure.arrays import AnyArray


def many_classes(seed: int, n_classes: int = 30, n_each: int = 6) -> tuple[AnyArray, AnyArray]:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), n_each)
    centres = 2.0 * rng.standard_normal((n_classes, 5))
    vectors = centres[codes] + 0.5 * rng.standard_normal((len(codes), 5))
    return vectors.astype(np.float32), np.array([f"class {code:02}" for code in codes])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pairs")
    write_npz(place / "gallery.npz", *many_classes(0))
    vectors, labels = many_classes(1)
    order = np.random.default_rng(2).permutation(len(labels))
    order[: len(order) // 2] = np.arange(len(order) // 2) ^ 1  # the next of the same class
    ids = np.array([f"p{row}" for row in range(len(labels))])
    write_npz(place / "first.npz", vectors, labels, ids=ids)
    write_npz(place / "second.npz", vectors[order], labels[order], ids=ids[order])
    return place


def test_a_seed_of_any_length_is_kept(folder: Path, tmp_path: Path) -> None:
    model, seed = tmp_path / "pairs.safetensors", 2**100
    succeeded("pairs", folder / "gallery.npz", "--save", model, "--seed", seed)
    succeeded("pairs", "--model", model)
    assert PairConfidence.load(model).random_state == seed


def test_learns_saves_and_compares_as_the_library_does(folder: Path) -> None:
    model = folder / "pairs.safetensors"
    learned = succeeded(
        "pairs", folder / "gallery.npz", "--save", model, "--base-rate", 0.2, "--json"
    ).json
    expected = PairConfidence(base_rate=0.2).fit(*many_classes(0))
    assert learned["log_loss"] == pytest.approx(expected.report().log_loss)
    assert learned["base_rate"] == 0.2

    two = ("--first", folder / "first.npz", "--second", folder / "second.npz")
    compared = succeeded("pairs", "--model", model, *two, "--false-accept", 0.05)
    assert "Accept at probability" in compared.err
    first, second = (np.load(folder / f"{name}.npz") for name in ("first", "second"))
    p = expected.probability(first["embeddings"], second["embeddings"])
    assert [float(row["probability"]) for row in compared.rows] == pytest.approx(p.tolist())
    assert [row["second"] for row in compared.rows] == second["ids"].tolist()
    accepts = expected.threshold(false_accept=0.05).accepts(p)
    assert [row["accepted"] for row in compared.rows] == [str(one).lower() for one in accepts]

    shown = succeeded("pairs", "--model", model, *two, "--report", "--json").json
    same = first["labels"] == second["labels"]
    own = expected.report(first["embeddings"], second["embeddings"], same)
    assert shown["brier"] == pytest.approx(own.brier)
    assert (shown["n_same"], shown["n_different"]) == (same.sum(), (~same).sum())


def test_a_file_of_pairs_names_vectors(folder: Path) -> None:
    listed = folder / "pairs.csv"
    listed.write_text("first,second,same\np0,p1,1\np0,p100,0\n")
    words = ("pairs", folder / "gallery.npz", "--pairs", listed, "--vectors", folder / "first.npz")
    rows = succeeded(*words).rows
    assert [(row["first"], row["second"]) for row in rows] == [("p0", "p1"), ("p0", "p100")]
    assert float(rows[0]["probability"]) > 0.5 > float(rows[1]["probability"])
    assert succeeded(*words, "--report", "--json").json["auroc"] == 1.0
    # As spreadsheets write it.
    listed.write_text(listed.read_text(), encoding="utf-8-sig")
    assert succeeded(*words).rows == rows

    by_row = folder / "pairs.jsonl"
    lines = [{"first": 0, "second": 1}, {"first": 0, "second": 100}]
    by_row.write_text("\n".join(map(json.dumps, lines)))
    gallery = folder / "gallery.npz"
    found = succeeded("pairs", gallery, "--pairs", by_row).rows
    vectors = many_classes(0)[0]
    p = PairConfidence().fit(*many_classes(0)).probability(vectors[[0, 0]], vectors[[1, 100]])
    assert [float(row["probability"]) for row in found] == pytest.approx(p.tolist())


def test_few_classes_say_what_they_can_promise(folder: Path) -> None:
    shown = succeeded("pairs", folder / "gallery.npz", "--false-accept", 0.001, "--json").json
    assert shown["threshold"]["threshold"] is None
    assert shown["threshold"]["promised"] == pytest.approx(1 - 0.05 ** (1 / 435))
    assert "add classes" in shown["threshold"]["sentence"]


def test_mistakes_are_named(folder: Path) -> None:
    gallery = folder / "gallery.npz"
    assert "either GALLERY" in refused("pairs")
    assert "--second" in refused("pairs", gallery, "--first", folder / "first.npz")
    assert "nothing is compared" in refused("pairs", gallery, "-o", folder / "x.csv")
    assert "base_rate" in refused("pairs", gallery, "--base-rate", 1)
    # Options are looked at before files.
    assert "--seed must be left out" in refused("pairs", "--model", folder / "m", "--seed", 0)
    listed = folder / "odd.csv"
    listed.write_text("first,second\np0,nobody\n")
    words = ("pairs", gallery, "--pairs", listed, "--vectors", folder / "first.npz")
    assert "'nobody'" in refused(*words)
    assert "column same" in refused(*words[:3], folder / "pairs.jsonl", "--report")
    listed.write_text("first,second,same\np0,p1,perhaps\n")
    assert "'perhaps'" in refused(*words)
    listed.write_text("one,two\n1,2\n")
    assert "first and second" in refused(*words)
    listed.write_text(f"first,second\np0,{'x' * 200_000}\n")  # more than a field may hold
    assert "cannot be read as csv" in refused(*words)
    listed.write_text("first,second\np0,p1\n")
    vectors, labels = many_classes(1)
    ids = np.array([f"p{row // 2}" for row in range(len(labels))])
    write_npz(folder / "repeated.npz", vectors, labels, ids=ids)
    assert "Got 'p0' twice" in refused(*words[:-1], folder / "repeated.npz")
