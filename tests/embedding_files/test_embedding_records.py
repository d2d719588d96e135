"""Records: what was written comes back; a file is there whole or not at all."""

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pyarrow import parquet

from nearsure.embedding_files import open_embeddings, open_records
from nearsure.errors import EmbeddingsFileError, InvalidInputError

FormatName = Literal["csv", "jsonl", "json", "parquet"]
FORMATS: list[FormatName] = ["csv", "jsonl", "json", "parquet"]
FIRST: dict[str, Any] = {
    "label": np.array(["owl", 'a "b", ü']),
    "confidence": np.array([0.5, np.nan]),
    "n": [np.int64(3), None],
    "accepted": np.array([True, False]),
    "neighbors": [[1, 2], []],
}
SECOND: dict[str, Any] = {
    "n": [4],
    "label": ["wren"],
    "confidence": [0.1],
    "accepted": [None],
    "neighbors": [np.array([7])],
}
EXPECTED = [
    {"label": "owl", "confidence": 0.5, "n": 3, "accepted": True, "neighbors": [1, 2]},
    {"label": 'a "b", ü', "confidence": None, "n": None, "accepted": False, "neighbors": []},
    {"label": "wren", "confidence": 0.1, "n": 4, "accepted": None, "neighbors": [7]},
]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def records_of(content: bytes, format_name: FormatName) -> list[dict[str, Any]]:
    if format_name == "parquet":
        return list(parquet.read_table(io.BytesIO(content)).to_pylist())
    text = content.decode()
    if format_name == "json":
        return list(json.loads(text))
    if format_name == "jsonl":
        return [json.loads(line) for line in text.splitlines()]
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    return [
        {
            name: cell if name == "label" else (json.loads(cell) if cell else None)
            for name, cell in row.items()
        }
        for row in rows
    ]


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_was_written_comes_back(format_name: FormatName, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "records"
    with open_records(path, format_name) as records:
        records.write(FIRST)
        assert not path.exists()
        records.write(SECOND)
        assert records.is_wanted
    assert records_of(path.read_bytes(), format_name) == EXPECTED
    assert names_in(path.parent) == ["records"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_standard_output_gets_the_same_and_stays_open(
    format_name: FormatName, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with open_records(None, format_name) as records:
        records.write(FIRST)
        records.write(SECOND)
    written = capfdbinary.readouterr().out
    assert records_of(written, format_name) == EXPECTED
    sys.stdout.write("more")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"more"


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_after_an_interruption_the_old_file_is_there(
    format_name: FormatName, error: type[BaseException], tmp_path: Path
) -> None:
    path = tmp_path / "records"

    def interrupted() -> None:
        with open_records(path, format_name) as records:
            records.write(FIRST)
            raise error

    with pytest.raises(error):
        interrupted()
    assert not names_in(tmp_path)
    path.write_text("old")
    with pytest.raises(error):
        interrupted()
    assert names_in(tmp_path) == ["records"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_interruption_of_the_last_write_leaves_nothing(
    format_name: FormatName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        open_records(tmp_path / "records", format_name) as records,
    ):
        records.write(FIRST)
    assert not names_in(tmp_path)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_full_disk_is_said(format_name: FormatName) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with (
        pytest.raises(EmbeddingsFileError, match="/dev/full cannot be written: No space left"),
        open_records(Path("/dev/full"), format_name) as records,
    ):
        records.write(FIRST)
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("format_name", FORMATS)
def test_whoever_reads_may_go(format_name: FormatName, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with open_records(None, format_name) as records:
            records.write(FIRST)
            os.close(ours)
            for _ in range(2):
                # Parquet keeps rows until there are enough for a row group.
                records.write({name: list(values) * 5000 for name, values in FIRST.items()})
            assert not records.is_wanted
        # What Python writes at its end must not fail, either.
        output.write("more")


@pytest.mark.parametrize("format_name", ["json", "parquet"])
def test_a_part_on_standard_output_does_not_look_whole(
    format_name: FormatName, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def cut_off() -> None:
        with open_records(None, format_name) as records:
            records.write({name: list(values) * 5000 for name, values in FIRST.items()})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_off()
    written = capfdbinary.readouterr().out
    assert written
    with pytest.raises((ValueError, OSError)):
        records_of(written, format_name)


@pytest.mark.parametrize(
    ("format_name", "expected"), [("csv", b""), ("jsonl", b""), ("json", b"[]\n")]
)
def test_no_records_are_a_file_without_any(
    format_name: FormatName, expected: bytes, tmp_path: Path
) -> None:
    with open_records(tmp_path / "records", format_name):
        pass
    assert (tmp_path / "records").read_bytes() == expected


def test_no_records_are_a_parquet_file_without_any(tmp_path: Path) -> None:
    with open_records(tmp_path / "a", "parquet"):
        pass
    assert parquet.read_table(tmp_path / "a").num_rows == 0
    with open_records(tmp_path / "b", "parquet") as records:
        records.write({"x": np.empty(0, np.float32), "y": []})
    assert parquet.read_table(tmp_path / "b").column_names == ["x", "y"]


def test_small_writes_share_a_row_group_and_keep_their_type(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((9000, 4)).astype(np.float32)
    with open_records(path, "parquet") as records:
        for first in range(0, 9000, 30):
            part = vectors[first : first + 30]
            records.write({"id": np.arange(first, first + len(part)), "vector": part})
    file = parquet.ParquetFile(path)
    assert file.metadata.num_row_groups == 2
    assert str(file.schema_arrow.field("vector").type.value_type) == "float"
    with open_embeddings(path) as stream:
        whole = stream.read_all()
    assert np.array_equal(whole.vectors, vectors)
    assert whole.ids is not None
    assert whole.ids.tolist() == list(range(9000))


def test_a_column_that_changes_its_type_is_refused(tmp_path: Path) -> None:
    def written_twice() -> None:
        with open_records(tmp_path / "r", "parquet") as records:
            records.write({"x": [1, 2]})
            records.write({"x": ["owl"]})

    with pytest.raises(InvalidInputError, match="'x' must be of type int64, as the first are"):
        written_twice()
    with (
        pytest.raises(InvalidInputError, match="column 'x' must be of one type"),
        open_records(tmp_path / "r", "parquet") as records,
    ):
        records.write({"x": [1, "owl"]})
    assert not names_in(tmp_path)


def test_columns_must_fit(tmp_path: Path) -> None:
    with open_records(tmp_path / "r", "csv") as records:
        with pytest.raises(InvalidInputError, match="equally long"):
            records.write({"a": [1], "b": [1, 2]})
        records.write({"a": [1], "b": [2]})
        with pytest.raises(InvalidInputError, match="same columns"):
            records.write({"a": [1]})
    assert (tmp_path / "r").read_text() == "a,b\n1,2\n"


def test_half_a_surrogate_pair_is_written_as_json_has_it(tmp_path: Path) -> None:
    with open_records(tmp_path / "r", "jsonl") as records:
        records.write({"a": ["\ud83e"]})
    assert json.loads((tmp_path / "r").read_text()) == {"a": "\ud83e"}


def test_what_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EmbeddingsFileError, match="is a folder"):
        open_records(tmp_path, "csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddingsFileError, match="cannot be written"):
        open_records(tmp_path / "file" / "r", "csv")
    with pytest.raises(InvalidInputError, match="'format' parameter"):
        open_records(tmp_path / "r", "xlsx")  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(EmbeddingsFileError, match="Standard output is closed"):
        open_records(None, "csv")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with open_records(tmp_path / "link", "csv") as records:
        records.write({"a": [1]})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "a\n1\n"


def test_an_output_of_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    with open_records(None, "csv") as records:
        records.write({"label": ["ü"]})
    assert output.getvalue() == "label\nü\n"
    with pytest.raises(InvalidInputError, match="terminal"):
        open_records(None, "parquet")


@pytest.mark.parametrize("label", ["a\rb", "a\nb", "a\r\n", '"', "a,b", " a "])
def test_marks_and_line_ends_of_a_csv_entry_are_kept(label: str, tmp_path: Path) -> None:
    with open_records(tmp_path / "r", "csv") as records:
        records.write({"label": [label, "b"], "x": [1, 2]})
    assert b"\nb,2\n" in (tmp_path / "r").read_bytes()
    with (tmp_path / "r").open(newline="") as file:
        assert list(csv.reader(file)) == [["label", "x"], [label, "1"], ["b", "2"]]


def test_no_spreadsheet_computes_what_is_guarded(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@a", "\tx", "\rx", "a=b", "'=", ""]
    columns: dict[str, list[Any]] = {"=name": texts, "number": [-1.5] * 9, "list": [["=1"]] * 9}
    with open_records(tmp_path / "a.csv", "csv", guard_formulas=True) as records:
        records.write(columns)
    with (tmp_path / "a.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["'=name", "number", "list"]
    guarded = [f"'{text}" if text[:1] in "=+-@\t\r" and text else text for text in texts]
    assert rows == [[text, "-1.5", '["=1"]'] for text in guarded]
    with open_records(tmp_path / "b.csv", "csv") as records:
        records.write(columns)
    with (tmp_path / "b.csv").open(newline="") as file:
        assert [row[0] for row in csv.reader(file)] == ["=name", *texts]
    with pytest.raises(InvalidInputError, match="guard_formulas"):
        open_records(tmp_path / "c.jsonl", "jsonl", guard_formulas=True)
