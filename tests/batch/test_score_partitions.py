"""Scored files hold what one process answers about all queries, to the last bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from partitioned_data import (
    DIMENSION,
    SIZES,
    all_queries,
    bytes_of,
    drawn,
    ragged_lists,
    scored_rows,
    write_points,
)
from worker_openers import gallery

from nearsure import NEDClassifier
from nearsure.batch import score, score_partitions
from nearsure.errors import InvalidInputError


def expected_rows(model: Path) -> dict[str, list[Any]]:
    classifier = NEDClassifier.load(model)
    answer = classifier.predict_with_confidence(all_queries()[0])
    assert answer.p_known is not None
    assert answer.verdicts is not None
    return {
        "id": list(range(sum(SIZES))),
        "label": answer.labels.tolist(),
        "confidence": answer.confidence.tolist(),
        "p_known": answer.p_known.tolist(),
        "verdict": answer.verdicts.tolist(),
    }


@pytest.mark.parametrize("batch_size", [7, 32, 10_000])
def test_answers_of_one_process(
    model: Path, queries: Path, tmp_path: Path, batch_size: int
) -> None:
    scored = score_partitions(
        queries, tmp_path / "out", classifier=model, id_column="id", batch_size=batch_size
    )
    assert scored_rows(tmp_path / "out") == expected_rows(model)
    assert (scored.n_partitions, scored.n_skipped, scored.n_rows) == (3, 0, sum(SIZES))
    assert sorted(bytes_of(tmp_path / "out")) == [
        "a.parquet",
        "b.parquet",
        "deep/c.parquet",
        "scored.json",
    ]


def test_one_query_at_a_time(queries: Path, tmp_path: Path) -> None:
    vectors, codes = drawn(300, seed=0)
    classifier = NEDClassifier().fit(vectors, codes)
    classifier.save(tmp_path / "model")
    score_partitions(queries, tmp_path / "out", classifier=tmp_path / "model", batch_size=1)
    expected = classifier.predict_with_confidence(all_queries()[0])
    rows = scored_rows(tmp_path / "out")
    assert rows["label"] == expected.labels.tolist()
    assert rows["confidence"] == expected.confidence.tolist()


def test_ranked_classes(model: Path, queries: Path, tmp_path: Path) -> None:
    classifier = NEDClassifier.load(model)
    posterior = classifier.predict_posterior(all_queries()[0])
    score_partitions(queries, tmp_path / "all", classifier=model, ranked="all")
    rows = scored_rows(tmp_path / "all")
    entries = [slice(*pair) for pair in zip(posterior.indptr, posterior.indptr[1:], strict=False)]
    assert rows["ranked_labels"] == [
        classifier.classes_[posterior.codes[entry]].tolist() for entry in entries
    ]
    assert rows["ranked_probabilities"] == [
        posterior.probabilities[entry].tolist() for entry in entries
    ]
    score_partitions(queries, tmp_path / "two", classifier=model, ranked=2)
    two = scored_rows(tmp_path / "two")
    assert two["ranked_labels"] == [listed[:2] for listed in rows["ranked_labels"]]
    assert two["ranked_probabilities"] == [p[:2] for p in rows["ranked_probabilities"]]


def test_a_large_file_is_divided_between_row_groups(
    model: Path, queries: Path, tmp_path: Path
) -> None:
    """Row groups hold 50 rows: 130 rows become 100 and 30."""
    scored = score_partitions(
        queries, tmp_path / "out", classifier=model, id_column="id", rows_per_partition=110
    )
    assert scored.n_partitions == 4
    names = [name for name in bytes_of(tmp_path / "out") if name.startswith("b")]
    assert names == ["b.rows-000000000000.parquet", "b.rows-000000000100.parquet"]
    assert scored_rows(tmp_path / "out") == expected_rows(model)


def test_rows_are_numbered_by_file_without_ids(model: Path, queries: Path, tmp_path: Path) -> None:
    score_partitions(queries, tmp_path / "out", classifier=model, rows_per_partition=50)
    rows = scored_rows(tmp_path / "out")
    assert "id" not in rows
    assert rows["row"] == [row for size in SIZES for row in range(size)]


def test_a_pattern_or_one_file(model: Path, queries: Path, tmp_path: Path) -> None:
    expected = expected_rows(model)
    some = score_partitions(
        f"{queries}/?.parquet", tmp_path / "some", classifier=model, id_column="id"
    )
    assert some.n_rows == SIZES[0] + SIZES[1]
    assert scored_rows(tmp_path / "some")["confidence"] == expected["confidence"][: some.n_rows]
    one = score_partitions(queries / "b.parquet", tmp_path / "one", classifier=model)
    assert one.n_rows == SIZES[1]


def test_kinds_of_columns(model: Path, tmp_path: Path) -> None:
    """Ragged lists, half precision and text ids."""
    vectors, _ = drawn(20, seed=3)
    names = np.array([f"query-{i}" for i in range(20)])
    half = vectors.astype(np.float16)
    write_points(tmp_path / "in/half.parquet", half, ids=names)
    write_points(tmp_path / "in/list.parquet", vectors, ids=names, embedding=ragged_lists(vectors))
    score_partitions(tmp_path / "in", tmp_path / "out", classifier=model, id_column="id")
    rows = scored_rows(tmp_path / "out")
    assert rows["id"] == [*names, *names]
    classifier = NEDClassifier.load(model)
    for first, points in ((0, half.astype(np.float32)), (20, vectors)):
        answer = classifier.predict_with_confidence(points)
        assert rows["confidence"][first : first + 20] == answer.confidence.tolist()


def test_an_empty_partition_has_the_columns_of_others(
    model: Path, queries: Path, tmp_path: Path
) -> None:
    nothing = np.empty((0, DIMENSION), np.float32)
    write_points(queries / "aa.parquet", nothing, id=pa.array([], pa.int64()))
    score_partitions(queries, tmp_path / "out", classifier=model, id_column="id", ranked=1)
    empty, other = (pq.read_table(tmp_path / "out" / name) for name in ("aa.parquet", "a.parquet"))
    assert len(empty) == 0
    assert empty.schema.equals(other.schema)


def test_jobs_are_strings_and_numbers(
    model: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []

    def noted(job: dict[str, Any]) -> int:
        jobs.append(json.loads(json.dumps(job)) == job)
        return 0

    monkeypatch.setattr(score, "score_partition", noted)
    score_partitions(queries, tmp_path / "out", classifier=model, scheduler="synchronous")
    assert jobs == [True, True, True]


def test_any_engine_opened_by_the_worker(engine_model: Path, queries: Path, tmp_path: Path) -> None:
    score_partitions(
        queries,
        tmp_path / "out",
        classifier=engine_model,
        open_engine="worker_openers:gallery",
    )
    classifier = NEDClassifier.load(engine_model, gallery())
    expected = classifier.predict_with_confidence(all_queries()[0])
    rows = scored_rows(tmp_path / "out")
    assert rows["label"] == expected.labels.tolist()
    assert rows["confidence"] == expected.confidence.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"rows_per_partition": 0}, "rows_per_partition must be at least 1"),
        ({"ranked": 0}, "ranked must be 'all', None or an integer"),
        ({"ranked": "some"}, "ranked must be 'all', None or an integer"),
        ({"scheduler": "cluster"}, "scheduler must be one of 'threads'"),
        ({"scheduler": None}, "scheduler must be one of 'threads'"),
        ({"open_engine": "module.function"}, "open_engine must name a function"),
    ],
)
def test_bad_options(
    model: Path, queries: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        score_partitions(queries, tmp_path / "out", classifier=model, **options)


def test_bad_places(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(FileNotFoundError, match="There is no model file at"):
        score_partitions(queries, out, classifier=tmp_path / "none")
    with pytest.raises(InvalidInputError, match=r"There is no .*nowhere"):
        score_partitions(tmp_path / "nowhere", out, classifier=model)
    with pytest.raises(InvalidInputError, match="at least one file that ends in"):
        score_partitions(f"{queries}/*.csv", out, classifier=model)
    for folder in (queries, queries / "out"):
        with pytest.raises(InvalidInputError, match="output must be a folder of its own"):
            score_partitions(queries, folder, classifier=model)
    before = bytes_of(queries)
    with pytest.raises(InvalidInputError, match="output must be a folder of its own"):
        score_partitions(f"{queries}/*.parquet", queries, classifier=model)
    assert bytes_of(queries) == before
