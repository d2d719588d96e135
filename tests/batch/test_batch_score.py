"""Scores are those of one process; what fails is named; a run that was cut off is finished."""

import json
import os
import signal
import subprocess
import sys
import time
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
from nearsure.batch import Scored, evaluate_partitions, score, score_partitions
from nearsure.batch.scorer import file_sha256, label_column
from nearsure.errors import InvalidInputError, PartitionsFailedError


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


def with_nan(path: Path) -> None:
    vectors, _ = drawn(40, seed=5)
    vectors[33, 2] = np.nan
    write_points(path, vectors)


def with_a_missing_entry(path: Path) -> None:
    rows = [[0.0] * DIMENSION, [None] + [0.0] * (DIMENSION - 1)]
    pq.write_table(pa.table({"embedding": pa.array(rows, pa.list_(pa.float32()))}), path)


def with_a_missing_vector(path: Path) -> None:
    rows = [[0.0] * DIMENSION, None]
    pq.write_table(pa.table({"embedding": pa.array(rows, pa.list_(pa.float32()))}), path)


def cut_off(path: Path) -> None:
    write_points(path, drawn(40, seed=5)[0])
    path.write_bytes(path.read_bytes()[:-100])


def with_spoilt_pages(path: Path) -> None:
    """The footer is whole; the rows are not."""
    write_points(path, drawn(40, seed=5)[0])
    spoilt = bytearray(path.read_bytes())
    spoilt[4:200] = bytes(196)
    path.write_bytes(spoilt)


def without_the_column(path: Path) -> None:
    pq.write_table(pa.table({"vector": [[1.0] * DIMENSION]}), path)


def of_another_dimension(path: Path) -> None:
    write_points(path, np.zeros((3, DIMENSION + 1), np.float32))


def of_mixed_lengths(path: Path) -> None:
    rows = [[0.0] * DIMENSION, [0.0]]
    pq.write_table(pa.table({"embedding": pa.array(rows, pa.list_(pa.float32()))}), path)


def of_text(path: Path) -> None:
    pq.write_table(pa.table({"embedding": ["0.1, 0.2"]}), path)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (with_nan, r"must be finite. Row 33 has NaN"),
        (with_a_missing_entry, r"must be finite. Row 1 has NaN"),
        (with_a_missing_vector, r"must have an entry in every row. Row 1 has none"),
        (cut_off, r"cannot be read as \.parquet"),
        (with_spoilt_pages, r"cannot be read as \.parquet"),
        (without_the_column, r"must have a column 'embedding'. It has 'vector'"),
        (of_another_dimension, r"must have 6 entries, as the gallery's have. Row 0 has 7"),
        (of_mixed_lengths, r"must have one length, at least 1. Row 0 has 6 entries, and row 1 1"),
        (of_text, r"must hold lists of numbers. Got string instead"),
    ],
)
def test_one_bad_partition(
    model: Path,
    queries: Path,
    tmp_path: Path,
    make: object,
    reason: str,
) -> None:
    bad, out = queries / "bad.parquet", tmp_path / "out"
    assert callable(make)
    make(bad)
    with pytest.raises(PartitionsFailedError, match=reason) as caught:
        score_partitions(queries, out, classifier=model)
    assert list(caught.value.failed) == ["bad.parquet"]
    assert "1 of 4 partitions failed" in str(caught.value)
    # What is whole is there, and nothing of the one that is not; nor is the folder whole.
    assert list(bytes_of(out)) == ["a.parquet", "b.parquet", "deep/c.parquet"]
    with pytest.raises(InvalidInputError, match=r"It has no scored\.json"):
        evaluate_partitions(out, truth_column="label")
    write_points(bad, drawn(40, seed=5)[0])
    mended = score_partitions(queries, out, classifier=model)
    assert (mended.n_partitions, mended.n_skipped) == (4, 3)


def test_a_failure_after_some_rows_leaves_no_file(model: Path, tmp_path: Path) -> None:
    with_nan(tmp_path / "in.parquet")
    with pytest.raises(PartitionsFailedError, match="Row 33"):
        score_partitions(tmp_path / "in.parquet", tmp_path / "out", classifier=model, batch_size=8)
    assert bytes_of(tmp_path / "out") == {}


def test_a_broken_file_that_was_scored_when_it_was_whole(
    model: Path, queries: Path, tmp_path: Path
) -> None:
    score_partitions(queries, tmp_path / "out", classifier=model, rows_per_partition=100)
    for name in ("a.parquet", "b.parquet"):
        (queries / name).write_bytes(b"PAR1 and no more")
    with pytest.raises(PartitionsFailedError) as caught:
        score_partitions(queries, tmp_path / "out", classifier=model, rows_per_partition=100)
    assert list(caught.value.failed) == ["a.parquet", "b.parquet"]


def test_no_secret_in_what_is_said(model: Path, queries: Path, tmp_path: Path) -> None:
    with pytest.raises(PartitionsFailedError) as caught:
        score_partitions(
            queries,
            tmp_path / "out",
            classifier=model,
            open_engine="worker_openers:refused",
        )
    assert len(caught.value.failed) == 3
    assert "ConnectionError: no route to postgresql://ann:***@db/shop" in str(caught.value)
    assert "s3cret" not in f"{caught.value} {caught.value!r} {caught.value.failed}"
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("opener", ["no_such_module:open", "worker_openers:no_such_function"])
def test_an_opener_that_workers_do_not_have(
    model: Path, queries: Path, tmp_path: Path, opener: str
) -> None:
    with pytest.raises(PartitionsFailedError, match=f"'{opener}' cannot be"):
        score_partitions(queries, tmp_path / "out", classifier=model, open_engine=opener)


def test_a_model_that_is_none(queries: Path, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"no model")
    with pytest.raises(PartitionsFailedError, match="is cut off or is not a nearsure model"):
        score_partitions(queries, tmp_path / "out", classifier=tmp_path / "model")


def test_an_output_that_cannot_be_written(model: Path, queries: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/deep").write_text("a file where a folder should be")
    with pytest.raises(PartitionsFailedError) as caught:
        score_partitions(queries, tmp_path / "out", classifier=model)
    assert list(caught.value.failed) == ["deep/c.parquet"]


def test_labels_that_parquet_cannot_hold() -> None:
    with pytest.raises(InvalidInputError, match="all of them text"):
        label_column(np.array(["a", 1], object))
    assert label_column(np.array(["a", "b"], object)).to_pylist() == ["a", "b"]


PROGRAM = """
import sys
from nearsure.batch import score_partitions

source, output, model = sys.argv[1:]
score_partitions(
    source, output, classifier=model, open_engine="worker_openers:gallery",
    scheduler="synchronous", batch_size=16,
)
"""


def test_killed_in_the_middle(engine_model: Path, tmp_path: Path) -> None:
    """A process that is killed leaves whole files alone; the next run gives what one run gives."""
    source, out = tmp_path / "in", tmp_path / "out"
    for number in range(6):
        write_points(source / f"{number}.parquet", drawn(48, seed=number)[0])
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"STOP_IN": str(out), "PYTHONPATH": path}
    program = [sys.executable, "-c", PROGRAM, str(source), str(out), str(engine_model)]
    with subprocess.Popen(program, env=environment) as process:  # noqa: S603
        try:
            until = time.monotonic() + 240
            # Two files are whole, and rows of the third are being written.
            while not (len(finished(out)) == 2 and list(out.glob(".2.*-draft"))):
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
    done = finished(out)
    assert len(done) == 2
    before = {path: path.stat().st_mtime_ns for path in done}
    resumed = resume(source, out, engine_model)
    assert (resumed.n_partitions, resumed.n_skipped) == (6, len(done))
    assert {path: path.stat().st_mtime_ns for path in done} == before
    resume(source, tmp_path / "at-once", engine_model)
    assert bytes_of(out) == bytes_of(tmp_path / "at-once")


def finished(out: Path) -> list[Path]:
    return sorted(out.glob("*.parquet"))


def resume(source: Path, out: Path, model: Path) -> Scored:
    return score_partitions(
        source,
        out,
        classifier=model,
        open_engine="worker_openers:gallery",
        scheduler="synchronous",
        batch_size=16,
    )


def n_scored(queries: Path, out: Path, model: Path, **options: object) -> int:
    """How many partitions a run found to do."""
    scored = score_partitions(queries, out, classifier=model, **options)  # type: ignore[arg-type]
    return scored.n_partitions - scored.n_skipped


def test_what_is_done_is_not_done_again(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert n_scored(queries, out, model) == 3
    before = bytes_of(out)
    assert n_scored(queries, out, model) == 0
    assert n_scored(queries, out, model, batch_size=5, scheduler="synchronous") == 0
    assert bytes_of(out) == before
    assert n_scored(queries, out, model, rescore=True) == 3
    assert bytes_of(out) == before


def test_another_model_means_scoring_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "model"
    n_scored(queries, out, model)
    vectors, codes = drawn(200, seed=8)
    classifier = NEDClassifier(10).fit(vectors, codes)
    classifier.save(other)
    assert n_scored(queries, out, other) == 3
    table = pq.read_table(out / "a.parquet")
    assert table["label"].to_pylist() == (
        classifier.predict(drawn_queries(queries / "a.parquet")).tolist()
    )
    assert "p_known" not in table.column_names


def drawn_queries(path: Path) -> list[list[float]]:
    vectors: list[list[float]] = pq.read_table(path)["embedding"].to_pylist()
    return vectors


def test_other_settings_mean_scoring_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    n_scored(queries, out, model)
    assert n_scored(queries, out, model, id_column="id") == 3
    assert n_scored(queries, out, model, id_column="id", ranked=2) == 3
    assert n_scored(queries, out, model, id_column="id", ranked=2) == 0


def test_a_changed_file_is_scored_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    n_scored(queries, out, model)
    write_points(queries / "b.parquet", drawn(11, seed=4)[0])
    write_points(queries / "new.parquet", drawn(12, seed=5)[0])
    assert n_scored(queries, out, model) == 2
    assert pq.read_metadata(out / "b.parquet").num_rows == 11


def test_a_damaged_result_is_made_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    n_scored(queries, out, model)
    before = bytes_of(out)
    (out / "a.parquet").write_bytes(before["a.parquet"][:-20])
    write_points(out / "b.parquet", drawn(5, seed=0)[0])
    assert n_scored(queries, out, model) == 2
    assert bytes_of(out) == before


def test_a_data_set_may_move(model: Path, queries: Path, tmp_path: Path) -> None:
    n_scored(queries, tmp_path / "out", model)
    moved = queries.rename(tmp_path / "elsewhere")
    assert n_scored(moved, tmp_path / "out", model) == 0


def test_results_of_other_files_are_not_mixed_in(
    model: Path, queries: Path, tmp_path: Path
) -> None:
    """A reader of the folder would count rows twice."""
    out = tmp_path / "out"
    n_scored(queries, out, model)
    with pytest.raises(InvalidInputError, match=r"holds a\.parquet and 1 more files that the"):
        n_scored(queries, out, model, rows_per_partition=50)
    (queries / "b.parquet").unlink()
    with pytest.raises(InvalidInputError, match=r"holds b\.parquet that the source"):
        n_scored(queries, out, model)


def test_an_interrupt_is_an_interrupt(
    model: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_partition = score.score_partition

    def interrupted(job: dict[str, object]) -> int:
        if str(job["output"]).endswith("c.parquet"):
            raise KeyboardInterrupt
        return score_partition(job)

    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(score, "score_partition", interrupted)
        with pytest.raises(KeyboardInterrupt):
            n_scored(queries, out, model, scheduler="synchronous")
    assert "scored.json" not in bytes_of(out)
    n_done = len(list(out.rglob("*.parquet")))
    assert n_scored(queries, out, model) == 3 - n_done


def test_a_model_that_is_exchanged_meanwhile(
    model: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = iter(["0" * 64])
    monkeypatch.setattr(score, "file_sha256", lambda path: next(sent, "") or file_sha256(path))
    with pytest.raises(PartitionsFailedError, match="is not the model that scoring was started"):
        n_scored(queries, tmp_path / "out", model)
