"""Hits: the same from every format, ragged where an engine was, refused where they do not fit."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from nearsure.arrays import AnyArray
from nearsure.embedding_files import HitSet, load_hits
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.neighbors import Neighbors

QUERIES: list[dict[str, Any]] = [
    {"id": "q0", "distances": [0.5, 0.25], "labels": [3, 7], "ids": ["a", "b"], "truth": 3},
    {"id": "q1", "distances": [2.0], "labels": [7], "ids": ["c"], "truth": 3},
    {"id": "q2", "distances": [-1.0, 4.0], "labels": [3, 3], "ids": ["a", "c"], "truth": 7},
]


def write_jsonl(path: Path) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(query) + "\n" for query in QUERIES))
    return path


def write_parquet(path: Path) -> Path:
    path = path.with_suffix(".parquet")
    parquet.write_table(pa.Table.from_pylist(QUERIES), path)
    return path


def write_csv(path: Path) -> Path:
    path = path.with_suffix(".csv")
    hits = [
        f"{query['id']},{query['distances'][hit]},{query['labels'][hit]},{query['ids'][hit]},"
        f"{query['truth']}"
        # The second hits stand apart from the first.
        for hit in (0, 1)
        for query in QUERIES
        if hit < len(query["distances"])
    ]
    path.write_text("\n".join(["query,distance,label,neighbor,truth", *hits]))
    return path


def write_npz(path: Path) -> Path:
    path = path.with_suffix(".npz")
    np.savez(
        path,
        distances=[[0.5, 0.25], [2.0, np.nan], [-1.0, 4.0]],
        labels=[[3, 7], [7, 99], [3, 3]],
        ids=[["a", "b"], ["c", "what was there"], ["a", "c"]],
        counts=[2, 1, 2],
        own_ids=["q0", "q1", "q2"],
        truth=[3, 3, 7],
    )
    return path


def assert_expected(hits: HitSet) -> None:
    assert hits.distances.dtype == np.float64
    assert hits.distances.tolist() == [[0.5, 0.25], [2.0, np.inf], [-1.0, 4.0]]
    assert hits.neighbor_labels.tolist() == [[3, 7], [7, -1], [3, 3]]
    assert hits.counts.tolist() == [2, 1, 2]
    assert hits.ids is not None
    assert hits.ids.tolist() == [["a", "b"], ["c", ""], ["a", "c"]]
    assert hits.own_ids is not None
    assert hits.own_ids.tolist() == ["q0", "q1", "q2"]
    assert hits.truth is not None
    assert hits.truth.tolist() == [3, 3, 7]


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_csv, write_npz])
def test_every_format_gives_the_same_hits(
    write: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(tmp_path / "hits")
    assert_expected(load_hits(path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert_expected(load_hits("-"))


def test_hits_become_neighbors(tmp_path: Path) -> None:
    queries = [QUERIES[0], QUERIES[1]]
    path = tmp_path / "hits.jsonl"
    path.write_text("".join(json.dumps(query) + "\n" for query in queries))
    hits = load_hits(path)
    neighbors = Neighbors.from_squared_l2(
        hits.distances, hits.neighbor_labels, ids=hits.ids, counts=hits.counts
    )
    assert neighbors.labels.tolist() == [[7, 3], [7, -1]]
    assert neighbors.counts.tolist() == [2, 1]


def test_only_distances_and_labels_are_needed(tmp_path: Path) -> None:
    save_file(
        {"distances": np.ones((2, 3), np.float32), "labels": np.arange(6).reshape(2, 3)},
        tmp_path / "h.safetensors",
    )
    hits = load_hits(tmp_path / "h.safetensors")
    assert hits.counts.tolist() == [3, 3]
    assert (hits.ids, hits.own_ids, hits.truth) == (None, None, None)
    (tmp_path / "h.csv").write_text("label,distance,query\nowl,1,5\nwren,2,5\n")
    hits = load_hits(tmp_path / "h.csv")
    assert hits.neighbor_labels.tolist() == [["owl", "wren"]]
    assert hits.own_ids is not None
    assert hits.own_ids.tolist() == [5]


def test_ids_of_minus_one_are_no_hits_as_faiss_fills_up(tmp_path: Path) -> None:
    def written(ids: list[list[int]]) -> Path:
        distances = np.array([[1, 2], [3, 3.4e38]], np.float32)
        np.savez(tmp_path / "h.npz", distances=distances, labels=[["a", "b"], ["a", "b"]], ids=ids)
        return tmp_path / "h.npz"

    hits = load_hits(written([[5, 6], [7, -1]]))
    assert hits.counts.tolist() == [2, 1]
    assert hits.distances[1].tolist() == [3, np.inf]
    assert hits.neighbor_labels.tolist() == [["a", "b"], ["a", ""]]
    with pytest.raises(EmbeddingsFileError, match="Row 1 has it before a hit"):
        load_hits(written([[5, 6], [-1, 7]]))


def test_a_query_may_have_no_hit(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(
        '{"distances": [], "labels": []}\n{"distances": [1], "labels": ["a"]}\n', encoding="utf-8"
    )
    hits = load_hits(path)
    assert hits.counts.tolist() == [0, 1]
    assert hits.neighbor_labels.tolist() == [[""], ["a"]]


def test_integers_of_csv_are_texts_if_a_truth_is(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text("query,distance,label,truth\n1,1,3,3\n2,1,3,new\n")
    hits = load_hits(path)
    assert hits.neighbor_labels.tolist() == [["3"], ["3"]]
    assert hits.truth is not None
    assert hits.truth.tolist() == ["3", "new"]


def line(**fields: object) -> str:
    return json.dumps(fields) + "\n"


GOOD = line(distances=[1, 2], labels=["a", "b"], ids=[1, 2], truth="a", id="q")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("h.jsonl", "", "at least one query with a hit"),
        ("h.jsonl", line(distances=[], labels=[]), "at least one query with a hit"),
        ("h.jsonl", line(distances=[1]), "Line 1 .* has no 'labels'"),
        ("h.jsonl", line(labels=["a"], dist=[1]), "has no 'distances'. It has 'labels', 'dist'"),
        ("h.jsonl", line(distances=[1, 2], labels=["a"]), "list of 2 labels.* Got 1"),
        ("h.jsonl", line(distances=[1], labels="a"), 'Got "a"'),
        ("h.jsonl", line(distances=["1"], labels=["a"]), "list of numbers as its distances"),
        ("h.jsonl", line(distances=[True], labels=["a"]), "list of numbers as its distances"),
        ("h.jsonl", line(distances=[10**400], labels=["a"]), "beyond the range"),
        ("h.jsonl", line(distances=[float("nan")], labels=["a"]), "Query 0 has NaN"),
        ("h.jsonl", line(distances=[1, 2], labels=["a", 2]), "label 2, and line 1 .* a text"),
        ("h.jsonl", line(distances=[1], labels=["a"], truth=1), "label 1, and line 1 .* a text"),
        ("h.jsonl", line(distances=[1], labels=[True]), "an integer or a text"),
        ("h.jsonl", GOOD + line(distances=[1], labels=["a"]), "every query must have the same"),
        ("h.jsonl", line(distances=[1], labels=["a"], id=1, own_ids=1), "keep one"),
        ("h.csv", "query,distance\n1,2\n", "one column 'label'"),
        ("h.csv", "query,distance,label,label\n1,2,a,a\n", "one column 'label'"),
        ("h.csv", "query,distance,label\n", "no row below"),
        ("h.csv", "query,distance,label\n1,near,a\n", "Line 2 .* number as its distance"),
        ("h.csv", "query,distance,label\n1,inf,a\n", "Query 0 has NaN or infinity"),
        ("h.csv", "query,distance,label\n1,2\n", "has 2 entries"),
        ("h.csv", "query,distance,label\n1,2,\n", "Query '1' .* has no label"),
        ("h.csv", "query,distance,label,truth\n1,1,a,a\n1,2,a,b\n", "Line 3 .* a query has one"),
        ("h.npy", "", "cannot be read as .npy|must be npz"),
        ("h.npz", "", "cannot be read as .npz"),
        ("h.parquet", "PAR1", "cannot be read as .parquet"),
    ],
)
def test_faulty_hits_are_refused(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(EmbeddingsFileError, match=message):
        load_hits(tmp_path / name)


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"distances": ONES}, "no array 'labels'. It holds 'distances'"),
        ({"labels": ONES}, "no array 'distances'"),
        ({"distances": ONES, "labels": ONES[:, :2]}, "both be of shape"),
        ({"distances": ONES[0], "labels": ONES[0]}, "both be of shape"),
        ({"distances": ONES.astype(str), "labels": ONES}, "'distances' .* must be numbers"),
        ({"distances": ONES, "labels": ONES + 0.5}, "an integer or a text"),
        ({"distances": ONES, "labels": ONES, "ids": ONES[:, :2]}, "ids must be of shape"),
        ({"distances": ONES, "labels": ONES, "truth": ONES[0]}, "truth must be of shape"),
        ({"distances": ONES, "labels": ONES, "truth": ["a", "b"]}, "both be integers or both"),
        ({"distances": ONES, "labels": ONES, "counts": [1, 4]}, "counts must lie in"),
        ({"distances": ONES, "labels": ONES, "counts": [1.5, 2]}, "'counts' .* must be integers"),
        ({"distances": ONES * np.nan, "labels": ONES}, "Query 0 has NaN"),
        ({"distances": ONES[:0], "labels": ONES[:0]}, "at least one query"),
        ({"distances": ONES, "labels": ONES.astype(object)}, "Python objects"),
    ],
)
def test_arrays_that_are_no_hits_are_refused(
    arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "h.npz", **arrays)
    with pytest.raises(EmbeddingsFileError, match=message):
        load_hits(tmp_path / "h.npz")


@pytest.mark.parametrize(
    ("distances", "counts"),
    [(np.ones(3), [1]), (np.ones((1, 3)), [4]), (np.full((1, 3), np.nan), [1])],
)
def test_a_set_of_hits_checks_itself(distances: AnyArray, counts: list[int]) -> None:
    with pytest.raises(InvalidInputError):
        HitSet(distances, np.zeros(distances.shape, int), np.array(counts))
