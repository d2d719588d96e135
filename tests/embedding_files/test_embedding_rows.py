"""Labels and ids that cannot be kept are refused in every format; a set checks itself."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from nearsure.embedding_files import EmbeddingSet, load_hits, open_embeddings
from nearsure.errors import EmbeddingsFileError, InvalidInputError

VECTORS = np.eye(3, dtype=np.float32)
CODES = np.array([2, 7, 1])
# The csv module of Python 3.10 refuses a zero byte by itself.
CSV_NUL = "" if sys.version_info >= (3, 11) else "|cannot be read as .csv: line contains NUL"
Write = Callable[[Path, dict[str, list[str]]], Path]


def npz(folder: Path, columns: dict[str, list[str]]) -> Path:
    arrays = {f"{name}s": np.array(values) for name, values in columns.items()}
    np.savez(folder / "a.npz", vectors=VECTORS, **arrays)  # type: ignore[arg-type]
    return folder / "a.npz"


def parquet(folder: Path, columns: dict[str, list[str]]) -> Path:
    pq.write_table(pa.table({"vector": VECTORS.tolist(), **columns}), folder / "a.parquet")
    return folder / "a.parquet"


def safetensors(folder: Path, columns: dict[str, list[str]]) -> Path:
    metadata = {f"{name}s": json.dumps(values) for name, values in columns.items()}
    save_file({"vectors": VECTORS}, folder / "a.safetensors", metadata)
    return folder / "a.safetensors"


def jsonl(folder: Path, columns: dict[str, list[str]]) -> Path:
    rows = zip(*columns.values(), strict=True)
    lines = [
        json.dumps({"vector": vector, **dict(zip(columns, row, strict=True))})
        for vector, row in zip(VECTORS.tolist(), rows, strict=True)
    ]
    (folder / "a.jsonl").write_text("\n".join(lines))
    return folder / "a.jsonl"


def csv(folder: Path, columns: dict[str, list[str]]) -> Path:
    lines = [",".join([*columns, "x"]), *map(",".join, zip(*columns.values(), "123", strict=True))]
    (folder / "a.csv").write_text("\n".join(lines))
    return folder / "a.csv"


@pytest.mark.parametrize(
    ("text", "what", "write"),
    [
        *[("a\0b", "zero byte", write) for write in (npz, parquet, safetensors, jsonl, csv)],
        # numpy itself has lost it in an npz file.
        *[("a\0", "zero byte", write) for write in (parquet, safetensors, jsonl, csv)],
        # Neither Arrow nor UTF-8 can hold it.
        *[("a\ud800", "half a character", write) for write in (npz, safetensors, jsonl)],
    ],
)
@pytest.mark.parametrize("role", ["label", "id"])
def test_what_cannot_be_kept_is_refused(
    tmp_path: Path, text: str, what: str, write: Write, role: str
) -> None:
    columns = {"label": ["a", "b", "a"], "id": ["x", "y", "z"]}
    columns[role][1] = text
    with (
        pytest.raises(EmbeddingsFileError, match=f"its {role} a text with .*{what}" + CSV_NUL),
        open_embeddings(write(tmp_path, columns), labels="required") as stream,
    ):
        stream.read_all()


@pytest.mark.parametrize("write", [npz, parquet, safetensors, jsonl, csv])
def test_names_that_only_look_odd_are_kept(tmp_path: Path, write: Write) -> None:
    columns = {"label": ["given", "nearsure distance", "=1+1"], "id": ["given", "é", "😀"]}
    with open_embeddings(write(tmp_path, columns), labels="required") as stream:
        rows = stream.read_all()
    assert rows.labels is not None
    assert rows.ids is not None
    assert (rows.labels.tolist(), rows.ids.tolist()) == (columns["label"], columns["id"])


@pytest.mark.parametrize("name", ["l.txt", "l.csv"])
def test_labels_of_their_own_file(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "a.npy", VECTORS)
    (tmp_path / name).write_text("label\na\nb\0\na" if name == "l.csv" else "a\nb\0\na")
    with pytest.raises(EmbeddingsFileError, match="zero byte" + CSV_NUL):
        open_embeddings(tmp_path / "a.npy", labels_path=tmp_path / name)


def test_hits(tmp_path: Path) -> None:
    line = {"distances": [0.1], "labels": ["a\ud800"], "truth": "a"}
    (tmp_path / "h.jsonl").write_text(json.dumps(line))
    with pytest.raises(EmbeddingsFileError, match="half a character"):
        load_hits(tmp_path / "h.jsonl")


@pytest.mark.parametrize(
    ("vectors", "labels"),
    [
        (VECTORS[0], CODES),
        (VECTORS.astype(float), CODES),
        (VECTORS, CODES[:2]),
        (VECTORS, CODES.astype(object)),
        (np.full((3, 3), np.inf, np.float32), CODES),
    ],
)
def test_a_set_checks_itself(vectors: Any, labels: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidInputError):
        EmbeddingSet(vectors, labels)


@pytest.mark.parametrize("name", ["labels", "ids", "images"])
def test_bytes_that_are_no_utf_8_are_refused(name: str, tmp_path: Path) -> None:
    arrays = {"vectors": VECTORS, name: np.array([b"a", b"\xff", b"c"])}
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with (
        pytest.raises(EmbeddingsFileError, match=f"'{name}' in .* must be UTF-8 text"),
        open_embeddings(tmp_path / "a.npz") as stream,
    ):
        stream.read_all()
