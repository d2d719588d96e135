"""CSV and JSON lines: types that hold for the whole file, and every fault named with its line."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nearsure.embedding_files import EmbeddingChunk, load_embeddings, open_embeddings
from nearsure.errors import EmbeddingsFileError

# The csv module of Python 3.10 refuses a zero byte by itself.
CSV_NUL = "" if sys.version_info >= (3, 11) else "|cannot be read as .csv: line contains NUL"


def read(path: Path, content: str | bytes) -> EmbeddingChunk:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with open_embeddings(path) as stream:
        chunks = list(stream.chunks(1))
        whole = stream.read_all()
    for chunk in chunks:
        for part, all_of_it in ((chunk.labels, whole.labels), (chunk.ids, whole.ids)):
            assert (part is None) == (all_of_it is None)
            if part is not None and all_of_it is not None:
                # No type changes between chunks.
                assert part.dtype.kind == all_of_it.dtype.kind
                assert part.tolist() == all_of_it[chunk.first_row : chunk.first_row + 1].tolist()
    return whole


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["7", "-3"], [7, -3]),
        (["7", "owl"], ["7", "owl"]),
        (["7", "007"], ["7", "007"]),
        (["7", "7.0"], ["7", "7.0"]),
        (["7", " 8"], ["7", " 8"]),
        (["1", str(2**63)], ["1", str(2**63)]),
        (["0", str(2**63 - 1)], [0, 2**63 - 1]),
        (["True", "False"], ["True", "False"]),
        (["1", "9" * 5000], ["1", "9" * 5000]),
    ],
)
def test_csv_labels_are_integers_if_all_are(
    labels: list[str], expected: list[int | str], tmp_path: Path
) -> None:
    text = "label,x\n" + "".join(f"{label},1\n" for label in labels)
    read_labels = read(tmp_path / "x.csv", text).labels
    assert read_labels is not None
    assert read_labels.tolist() == expected
    assert load_embeddings(tmp_path / "x.csv").labels.tolist() == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_of_any_line_ends_with_or_without_a_mark(end: str, mark: str, tmp_path: Path) -> None:
    text = mark + end.join(["id,label,x,y", "", '1,"a, ""b""",0.5,1e-3', "2,b,-2,3", ""])
    whole = read(tmp_path / "x.csv", text)
    assert whole.vectors.tolist() == np.array([[0.5, 1e-3], [-2, 3]], np.float32).tolist()
    assert whole.labels is not None
    assert whole.labels.tolist() == ['a, "b"', "b"]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_json_lines_with_blank_ones_and_a_mark(mark: str, tmp_path: Path) -> None:
    text = mark + '\r\n{"embedding": [1, 2.5], "other": {}}\r\n\r\n{"embedding": [3, 4]}'
    whole = read(tmp_path / "x.ndjson", text)
    assert whole.vectors.tolist() == [[1, 2.5], [3, 4]]
    assert whole.labels is None
    assert whole.ids is None
    assert whole.pictures is None


def test_a_header_of_numbers_as_pandas_counts_columns(tmp_path: Path) -> None:
    whole = read(tmp_path / "x.csv", "0,1,2\n0.5,1,2\n")
    assert whole.vectors.tolist() == [[0.5, 1, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("label,x\n", "no row below"),
        ("label,x\na,1\nb\n", "Line 3 .* has 1 entries, and the header names 2"),
        ("label,x\na,1\nb,1,2\n", "Line 3 .* has 3 entries"),
        ("label,x\na,nan\n", "Line 2 .* has NaN"),
        ("label,x\na,1\nb,-inf\n", "Line 3 .* has NaN or infinity"),
        ("label,x\na,1e300\n", "Line 2 .* beyond the range of float32"),
        ("label,x\na,1\nb,owl\n", "Line 3 .* number in the column 'x'. Got 'owl'"),
        ("label,x\na,1\nb,\n", "Line 3 .* number in the column 'x'. Got ''"),
        ("label,x\na,1\n,2\n", "Line 3 .* has no label"),
        ("label,id,x\na,1,1\nb,,2\n", "Line 3 .* has no id"),
        ("label,x,x\na,1,2\n", "more than one column 'x'"),
        ("label,Labels,x\na,b,2\n", "'label' and 'Labels' could each"),
        (",label,x\n0,a,1\n", "Column 1 .* has no name.*index=False"),
        ("1.5,2.5\n3.5,4.5\n", "must begin with a line of names"),
        ("label;x\na;1\n", "commas between"),
        ("label,id\na,1\n", "must have columns for the vector"),
        ("label,vector,embedding\na,[1],[2]\n", "say which"),
        ('label,vector\na,"[1, 2"\n', "'vector' in line 2 .* is not JSON"),
        ("label,vector\na,3\n", "list of numbers as its vector. Got 3"),
        ('label,vector\na,"[1,2]"\nb,"[1]"\n', "Line 3 .* vector of 1 numbers"),
        ('label,x\na,1\n"b,1\n', "unexpected end of data"),
        ('label,x\n"a"b,1\n', "cannot be read as .csv"),
        (b"label,x\n\xff\xfe,1\n", "cannot be read as .csv: .*utf-8"),
        (f"label,vector\na,{'1' * 140_000}\n", "field limit"),
        ("label,x\na\0,1\n", "zero byte" + CSV_NUL),
    ],
)
def test_a_faulty_csv_is_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(EmbeddingsFileError, match=message):
        read(tmp_path / "x.csv", content)


def line(**fields: object) -> str:
    return json.dumps(fields) + "\n"


GOOD = line(id=1, label=2, vector=[1, 2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        (GOOD + "[1, 2]\n", r"Line 2 .* must be a JSON object .* Got \[1, 2\]"),
        (GOOD + GOOD[:-5], "Line 2 .* is not JSON"),
        (GOOD + "[" * 100_000, "Line 2 .* is not JSON"),
        (GOOD + line(id=2, label=2, vector=[1]), "Line 2 .* vector of 1 numbers"),
        (GOOD + line(id=2, label=2, vector=[]), "Line 2 .* list of numbers"),
        (GOOD + line(id=2, label=2, vector=[1, "2"]), 'Line 2 .* Got "2" among them'),
        (GOOD + line(id=2, label=2, vector=[1, True]), "Line 2 .* Got true among them"),
        (GOOD + line(id=2, label=2, vector=[1, None]), "Line 2 .* Got null among them"),
        (GOOD + line(id=2, label=2, vector=[1, [2]]), r"Line 2 .* Got \[2\] among them"),
        (GOOD + line(id=2, label=2, vector=[1, float("nan")]), "Line 2 .* NaN"),
        (GOOD + line(id=2, label=2, vector=[1, 10**400]), "Line 2 .* beyond the range"),
        (GOOD + line(id=2, label=2, vector=[1, 10**100]), "Line 2 .* beyond the range"),
        (GOOD + line(id=2, label=2), "Line 2 .* no field 'vector'"),
        (GOOD + line(id=2, vector=[1, 2]), "Line 2 .* has no label"),
        (GOOD + line(label=2, vector=[1, 2]), "Line 2 .* has no id"),
        (GOOD + line(id=2, label="2", vector=[1, 2]), 'Line 2 .* label "2", and line 1 .* integer'),
        (GOOD + line(id="2", label=2, vector=[1, 2]), 'Line 2 .* id "2", and line 1 .* integer'),
        (GOOD + line(id=2, label=True, vector=[1, 2]), "an integer or a text .* Got true"),
        (GOOD + line(id=2, label=2.0, vector=[1, 2]), r"an integer or a text .* Got 2\.0"),
        (GOOD + line(id=2, label=[2], vector=[1, 2]), "an integer or a text"),
        (GOOD + line(id=2, label=2**63, vector=[1, 2]), "does not fit in 64 bits"),
        (line(label="", vector=[1]), "Line 1 .* has no label"),
        (line(label="a\0", vector=[1]), "zero byte"),
        (line(vector=[1]) + line(label="a", vector=[1]), "Line 2 .* has the first label"),
        (line(vector=[1]) + line(id="a", vector=[1]), "Line 2 .* has the first id"),
        (line(vector=[1], embedding=[1]), "could each be the vector"),
        (line(vector=[1], image=7), "path of a picture"),
        (line(label=1), "no field 'vector' .* 'label'"),
        (b'{"vector": [1], "label": "\xff"}\n', "cannot be read as .jsonl: .*utf-8"),
    ],
)
def test_faulty_json_lines_are_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(EmbeddingsFileError, match=message):
        read(tmp_path / "x.jsonl", content)


@pytest.mark.parametrize(
    ("name", "content"), [("x.csv", "id,x\n1,2\n"), ("x.jsonl", '{"vector": [1]}\n')]
)
def test_labels_that_are_needed_must_be_there(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(EmbeddingsFileError, match=r"no (column|field) 'label' \(labels_key\)"):
        load_embeddings(tmp_path / name)


def test_a_line_without_end_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsure.embedding_files.source.LONGEST_LINE", 100)
    for name in ("x.csv", "x.jsonl"):
        with pytest.raises(EmbeddingsFileError, match="more than 100 characters"):
            read(tmp_path / name, '{"vector": [' + "1," * 100)
