"""`nearsure audit`: planted mistakes are found, under their own names."""

import csv
from pathlib import Path

import numpy as np
import pytest
from cli_runs import jsonl, points, refused, succeeded, write_npz

IDS = [f"bird {row}" for row in range(90)]
WRONG = 33


def mislabelled() -> tuple[np.ndarray, np.ndarray]:
    """Far classes, one wrong label, and a duplicate with another label."""
    vectors, labels = points()
    vectors = vectors + 30 * np.eye(4, dtype=np.float32)[np.arange(90) % 3]
    labels = labels.copy()
    labels[WRONG] = labels[WRONG + 1]
    vectors[50] = vectors[51]
    assert labels[50] != labels[51]
    return vectors, labels


@pytest.fixture(scope="module")
def stdin() -> bytes:
    vectors, labels = mislabelled()
    return jsonl(vectors, labels.tolist(), IDS)


def test_a_wrong_label_is_named_first(stdin: bytes, tmp_path: Path) -> None:
    said = succeeded("audit", "-", "--json", stdin=stdin).json
    _, labels = mislabelled()
    names = [one["id"] for one in said["suspects"]]
    assert "bird 33" in names[:2]
    first = said["suspects"][names.index("bird 33")]
    assert (first["label"], first["suggested"]) == (labels[WRONG], labels[WRONG - 3])
    pair = said["duplicates"][0]
    assert {pair["first_id"], pair["second_id"]} == {"bird 50", "bird 51"}
    assert said["n_points"] == 90

    shown = succeeded("audit", "-", "-o", tmp_path / "s.csv", "--rows", 1, stdin=stdin).out
    estimate = f"about {said['n_wrong']} of 90 points, between {said['n_wrong_low']} and"
    assert estimate in " ".join(shown.split())
    assert names[0] in shown
    assert shown.endswith(f"wrote {tmp_path / 's.csv'}\n")
    with (tmp_path / "s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == names
    assert [float(row["trust"]) for row in rows] == [one["trust"] for one in said["suspects"]]


def test_a_model_is_audited_where_its_points_are(stdin: bytes, tmp_path: Path) -> None:
    expected = succeeded("audit", "-", "--json", stdin=stdin).json
    succeeded("fit", "-", "-o", tmp_path / "g.sqlite", stdin=stdin)
    said = succeeded("audit", "-m", tmp_path / "g.sqlite", "--json").json
    assert {one["id"] for one in said["suspects"]} == {one["id"] for one in expected["suspects"]}
    assert said["n_duplicates"] == expected["n_duplicates"]


def test_json_stays_json_when_a_file_is_written_too(stdin: bytes, tmp_path: Path) -> None:
    run = succeeded("audit", "-", "--json", "-o", tmp_path / "s.jsonl", stdin=stdin)
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == run.json["n_suspects"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Give a file of embeddings or --model"),
        (["birds.sqlite"], "nearsure audit --model birds.sqlite"),
        (["g.npz", "-m", "m.safetensors"], "and only one of them"),
        (["-m", "m.safetensors", "-k", "5"], "-k must be left out with --model"),
        (["-m", "m.safetensors", "--labels-key", "x"], "Names of columns must be left out"),
        (["g.npz", "--gallery", "milvus"], "must be given with --model"),
        (["g.npz", "-o", "x.txt"], ".json, .parquet. Got x.txt instead."),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "g.npz", *points())
    assert sentence in refused("audit", *words)
