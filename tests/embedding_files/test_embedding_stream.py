"""Streams: every format gives the same rows, whatever the chunks, in a chunk's memory."""

import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from embedding_writers import (
    WRITERS,
    Embeddings,
    some_embeddings,
    write_csv,
    write_jsonl,
    write_npz,
    write_npz_in_columns,
    write_parquet,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from nearsure.embedding_files import EmbeddingChunk, load_embeddings, open_embeddings, open_records
from nearsure.errors import EmbeddingsFileError, InvalidInputError


def assert_same(chunk: EmbeddingChunk, given: Embeddings, rows: slice) -> None:
    assert chunk.vectors.dtype == np.float32
    assert chunk.vectors.flags.writeable
    assert np.array_equal(chunk.vectors, given.vectors[rows])
    assert chunk.labels is not None
    assert chunk.ids is not None
    assert chunk.labels.tolist() == given.labels[rows]
    assert chunk.ids.tolist() == given.ids[rows]
    assert (chunk.pictures or [None] * len(chunk)) == given.pictures[rows]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("names", ["texts", "integers"])
@pytest.mark.parametrize("rows", [1, 7, 10, 23, 1000])
def test_chunks_are_the_rows_in_order(
    write: Callable[[Path, Embeddings], Path], names: str, rows: int, tmp_path: Path
) -> None:
    given = some_embeddings(named=names == "texts")
    with open_embeddings(write(tmp_path / "birds", given)) as stream:
        assert stream.dimension == 3
        assert stream.n_rows in {23, None}
        firsts = []
        for chunk in stream.chunks(rows):
            firsts.append(chunk.first_row)
            assert_same(chunk, given, slice(chunk.first_row, chunk.first_row + rows))
        assert firsts == list(range(0, 23, rows))
        # A file can be read again, and as a whole.
        assert_same(stream.read_all(), given, slice(None))


@pytest.mark.parametrize("write", WRITERS)
def test_loading_agrees_with_the_stream(
    write: Callable[[Path, Embeddings], Path], tmp_path: Path
) -> None:
    given = some_embeddings(named=False)
    loaded = load_embeddings(write(tmp_path / "birds", given))
    assert np.array_equal(loaded.vectors, given.vectors)
    assert loaded.labels.dtype.kind == "i"
    assert loaded.labels.tolist() == given.labels


@pytest.mark.parametrize("write", WRITERS)
def test_labels_of_another_file_go_with_the_chunks(
    write: Callable[[Path, Embeddings], Path], tmp_path: Path
) -> None:
    given = some_embeddings()
    path = write(tmp_path / "birds", given)
    codes = [*range(22), "last"]  # integers until the last line
    (tmp_path / "l.txt").write_text("".join(f"{code}\n" for code in codes))
    with open_embeddings(path, labels_path=tmp_path / "l.txt") as stream:
        first, *_ = stream.chunks(5)
        whole = stream.read_all()
    assert first.labels is not None
    assert whole.labels is not None
    assert first.labels.tolist() == list("01234")
    assert whole.labels.tolist() == [str(code) for code in codes]
    for n in (22, 24):
        (tmp_path / "l.txt").write_text("a\n" * n)
        with (
            pytest.raises(EmbeddingsFileError, match="must be one label"),
            open_embeddings(path, labels_path=tmp_path / "l.txt") as stream,
        ):
            stream.read_all()


@pytest.mark.parametrize("write", WRITERS)
def test_labels_may_be_ignored(write: Callable[[Path, Embeddings], Path], tmp_path: Path) -> None:
    given = some_embeddings()
    with open_embeddings(write(tmp_path / "birds", given), labels="none") as stream:
        whole = stream.read_all()
    assert whole.labels is None
    assert np.array_equal(whole.vectors, given.vectors)


def test_optional_labels_must_be_called_so(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.eye(3), paths=np.array(["a", "b", "c"]))
    with open_embeddings(path) as stream:
        assert stream.read_all().labels is None
    with open_embeddings(path, labels_key="paths", labels="optional") as stream:
        labels = stream.read_all().labels
    assert labels is not None
    assert labels.tolist() == ["a", "b", "c"]


def test_ids_are_not_taken_for_labels(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.eye(3), ids=np.arange(3), who=np.array(["a", "b", "c"]))
    assert load_embeddings(path).labels.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("write", [write_npz, write_parquet, write_csv, write_jsonl])
@pytest.mark.parametrize("key", ["vectors_key", "labels_key", "ids_key"])
def test_a_key_that_is_not_there_is_named(
    write: Callable[[Path, Embeddings], Path], key: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "birds", some_embeddings())
    with pytest.raises(EmbeddingsFileError, match=rf"no (array|column|field) 'nothing' \({key}\)"):
        open_embeddings(path, **{key: "nothing"})  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [write_npz, write_parquet, write_csv, write_jsonl])
def test_other_names_are_found_by_key(
    write: Callable[[Path, Embeddings], Path], tmp_path: Path
) -> None:
    given = some_embeddings()
    swapped = Embeddings(given.vectors, given.ids, given.labels, given.pictures)
    keys = {"labels_key": "id", "ids_key": "label"}
    if write is write_npz:
        keys = {name: f"{key}s" for name, key in keys.items()}
    path = write(tmp_path / "birds", swapped)
    with open_embeddings(path, **keys) as stream:  # type: ignore[arg-type]
        assert_same(stream.read_all(), given, slice(None))


@pytest.mark.parametrize(
    "arguments",
    [{"labels": "some"}, {"format": "xlsx"}, {"labels": "none", "labels_key": "label"}],
)
def test_parameters_are_checked(arguments: dict[str, str], tmp_path: Path) -> None:
    path = write_csv(tmp_path / "birds", some_embeddings())
    with pytest.raises(InvalidInputError):
        open_embeddings(path, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [0, -1, True, 2.5])
def test_chunks_have_at_least_a_row(rows: int, tmp_path: Path) -> None:
    with (
        open_embeddings(write_csv(tmp_path / "birds", some_embeddings())) as stream,
        pytest.raises(InvalidInputError, match="'rows' parameter"),
    ):
        stream.chunks(rows)


def test_a_format_may_be_said_for_another_suffix(tmp_path: Path) -> None:
    given = some_embeddings()
    path = write_jsonl(tmp_path / "birds", given).rename(tmp_path / "birds.txt")
    with pytest.raises(EmbeddingsFileError, match=r"must end in .*\.jsonl.*Got birds\.txt"):
        open_embeddings(path)
    with open_embeddings(path, format="ndjson") as stream:
        assert_same(stream.read_all(), given, slice(None))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.npz").mkdir()
    with pytest.raises(EmbeddingsFileError, match="is a folder"):
        open_embeddings(tmp_path / "x.npz")
    with pytest.raises(EmbeddingsFileError, match="cannot be read"):
        open_embeddings(f"{'x' * 5000}.npz")


def test_a_fault_deep_in_a_stream_names_its_row(tmp_path: Path) -> None:
    given = some_embeddings()
    given.vectors[17, 1] = np.nan
    for write in WRITERS:
        with open_embeddings(write(tmp_path / "birds", given)) as stream:
            chunks = stream.chunks(5)
            assert sum(len(next(chunks)) for _ in range(3)) == 15
            # Below a header, and counted from one, the line has another number than the row.
            with pytest.raises(EmbeddingsFileError, match=r"(Row 17|Line 18|Line 19).*NaN"):
                next(chunks)


def test_an_altered_npz_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    vectors = np.arange(40_000, dtype=np.float32).reshape(-1, 4)
    np.savez(path, x=vectors)
    content = path.read_bytes()
    place = content.index(vectors[5000:5010].tobytes())
    path.write_bytes(content[:place] + b"\x01" + content[place + 1 :])
    with (
        open_embeddings(path) as stream,
        pytest.raises(EmbeddingsFileError, match="CRC"),
    ):
        stream.read_all()


def large(tmp_path: Path, write: Callable[[Path, Embeddings], Path]) -> tuple[Path, int]:
    n, dimension = 4_000, 32
    vectors = np.random.default_rng(0).integers(-9, 9, (n, dimension)).astype(np.float32)
    labels = ["a", "b"] * (n // 2)
    given = Embeddings(vectors, labels, list(range(n)), [None] * n)
    return write(tmp_path / "large", given), vectors.nbytes


@pytest.mark.parametrize("write", [write_npz, write_npz_in_columns, write_csv, write_jsonl])
def test_memory_stays_near_a_chunk(
    write: Callable[[Path, Embeddings], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsure.embedding_files.arrays._PART_BYTES", 1 << 14)
    path, n_bytes = large(tmp_path, write)
    rows = 250
    chunk_bytes = n_bytes * rows // 4_000
    with open_embeddings(path) as stream:
        list(stream.chunks(4_000))  # what is imported and cached on first use
        tracemalloc.start()
        n_rows = sum(len(chunk) for chunk in stream.chunks(rows))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert n_rows == 4_000
    # Numbers of a text are float64 first, and its other entries objects.
    assert peak < 6 * chunk_bytes + (1 << 18)
    assert peak < n_bytes


def test_memory_of_a_parquet_file_stays_near_a_row_group(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    n, dimension = 60_000, 32
    values = pa.array(np.random.default_rng(0).standard_normal(n * dimension, dtype=np.float32))
    table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(values, dimension)})
    parquet.write_table(table, path, row_group_size=1000, compression="none")
    n_bytes = n * dimension * 4
    del table, values
    pool = pa.default_memory_pool()
    before, peak = pool.bytes_allocated(), 0
    with open_embeddings(path) as stream:
        for chunk in stream.chunks(1000):
            assert len(chunk) == 1000
            peak = max(peak, pool.bytes_allocated() - before)
    # Its buffer is of 1 MB, which a fraction of the whole would not show.
    assert peak < n_bytes // 3


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_of_an_npy_file_stays_near_a_chunk(
    order: Literal["C", "F"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsure.embedding_files.arrays._PART_BYTES", 1 << 14)
    path = tmp_path / "large.npy"
    vectors = np.arange(640_000, dtype=np.float32).reshape(20_000, 32)
    np.save(path, np.asarray(vectors, order=order))
    tracemalloc.start()
    with open_embeddings(path) as stream:
        for chunk in stream.chunks(500):
            assert np.array_equal(chunk.vectors, vectors[chunk.first_row : chunk.first_row + 500])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 500 * 32 * 4 + (1 << 16)


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".csv"])
def test_a_file_that_shrinks_while_it_is_read_is_noticed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"birds{suffix}"
    given = some_embeddings(4_000)
    if suffix == ".npy":
        np.save(path, given.vectors)
    else:
        (write_csv if suffix == ".csv" else write_jsonl)(path, given)
    with open_embeddings(path) as stream:
        chunks = stream.chunks(10)
        next(chunks)
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(EmbeddingsFileError, match=r"birds.*(within row|JSON|entries|number)"):
            list(chunks)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
# Texts that are written like integers stay texts, unless all of a CSV column are.
INTEGERS = st.integers(-(2**63), 2**63 - 1)
RECORD_FORMATS: list[Literal["csv", "jsonl", "parquet"]] = ["csv", "jsonl", "parquet"]


@st.composite
def embeddings(draw: st.DrawFn) -> Embeddings:
    n = draw(st.integers(1, 6))
    dimension = draw(st.integers(1, 4))
    vectors = draw(
        st.lists(st.lists(FLOATS, min_size=dimension, max_size=dimension), min_size=n, max_size=n)
    )

    def names() -> list[Any]:
        drawn: list[Any] = draw(
            st.one_of(
                st.lists(INTEGERS, min_size=n, max_size=n),
                st.lists(TEXTS, min_size=n, max_size=n).map(lambda texts: ["a", *texts[1:]]),
            )
        )
        return drawn

    pictures = draw(st.lists(st.none() | TEXTS, min_size=n, max_size=n))
    return Embeddings(np.array(vectors, np.float32), names(), names(), pictures)


def read(path: Path, rows: int) -> EmbeddingChunk:
    with open_embeddings(path) as stream:
        chunks = list(stream.chunks(rows))
        whole = stream.read_all()
    for name in ("vectors", "labels", "ids"):
        parts = [getattr(chunk, name) for chunk in chunks]
        assert np.array_equal(np.concatenate(parts), getattr(whole, name))
        assert {part.dtype.kind for part in parts} == {getattr(whole, name).dtype.kind}
    return whole


@settings(max_examples=25, deadline=None)
@given(embeddings(), st.integers(1, 7))
def test_formats_agree(written: Embeddings, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for write in WRITERS:
            found = read(write(Path(folder) / write.__name__, written), rows)
            assert_same(found, written, slice(None))


@settings(max_examples=25, deadline=None)
@given(embeddings(), st.integers(1, 7))
def test_records_can_be_read_as_embeddings(written: Embeddings, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for format_name in RECORD_FORMATS:
            path = Path(folder) / f"records.{format_name}"
            with open_records(path, format_name) as records:
                for first in range(0, len(written.vectors), rows):
                    part = slice(first, first + rows)
                    records.write(
                        {
                            "id": written.ids[part],
                            "label": written.labels[part],
                            "image": written.pictures[part],
                            "vector": written.vectors[part],
                        }
                    )
            assert_same(read(path, rows), written, slice(None))
