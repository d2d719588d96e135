"""A fault of one partition is said by name; the others are done all the same."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from partitioned_data import DIMENSION, bytes_of, drawn, write_points

from nearsure.batch import evaluate_partitions, score_partitions
from nearsure.batch.score import label_column
from nearsure.errors import InvalidInputError, PartitionsFailedError


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
