"""Standard input and pipes: sniffed, streamed or kept in a file that goes away."""

import io
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from embedding_writers import WRITERS, Embeddings, some_embeddings, write_csv, write_jsonl

from nearsure.embedding_files import load_embeddings, open_embeddings
from nearsure.errors import EmbeddingsFileError


def give(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("told", ["format", "nothing"])
def test_every_format_comes_through_standard_input(
    write: Callable[[Path, Embeddings], Path],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = some_embeddings()
    path = write(tmp_path / "birds", given)
    give(path.read_bytes(), monkeypatch)
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(kept))
    with open_embeddings("-", format=path.suffix[1:] if told == "format" else None) as stream:
        assert stream.name == "Standard input"
        whole = stream.read_all()
    assert np.array_equal(whole.vectors, given.vectors)
    assert whole.labels is not None
    assert whole.labels.tolist() == given.labels
    assert not list(kept.iterdir())


def test_loading_takes_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = some_embeddings(named=False)
    give(write_csv(tmp_path / "birds", given).read_bytes(), monkeypatch)
    assert load_embeddings("-").labels.tolist() == given.labels


def test_json_lines_are_given_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as reading, os.fdopen(theirs, "wb", buffering=0) as writing:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(reading))
        writing.write(b'{"vector": [1, 2]}\n')
        with open_embeddings("-") as stream:
            chunks = stream.chunks(1)
            # The writer has not gone on: nothing waits for what is still to come.
            assert next(chunks).vectors.tolist() == [[1, 2]]
            writing.write(b'{"vector": [3, 4]}\n{"vector": [5, 6]}\n')
            assert next(chunks).vectors.tolist() == [[3, 4]]
            writing.close()
            assert [chunk.first_row for chunk in chunks] == [2]
        assert not reading.closed


def test_json_lines_can_be_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(write_jsonl(tmp_path / "birds", some_embeddings()).read_bytes(), monkeypatch)
    with open_embeddings("-") as stream:
        assert len(stream.read_all()) == 23
        with pytest.raises(EmbeddingsFileError, match="Standard input can be read once"):
            stream.read_all()


@pytest.mark.parametrize(
    ("content", "format_name", "message"),
    [
        (b"", None, "Standard input is empty"),
        (b"", "csv", "Standard input is empty"),
        (b"", "jsonl", "Standard input is empty"),
        (b"", "npz", "Standard input cannot be read as .npz"),
        (b"PK\x03\x04 and no more", None, "Standard input cannot be read as .npz"),
        (b"PAR1 and no more", None, "Standard input cannot be read as .parquet"),
        (b"\x93NUMPY", None, "Standard input cannot be read as .npy"),
        (b'{"vector": [1]}\n', "csv", "Standard input"),
        (b"id,x\n1,2\n", "jsonl", "Line 1 of Standard input is not JSON"),
    ],
)
def test_what_cannot_be_read_is_said(
    content: bytes, format_name: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(content, monkeypatch)
    with pytest.raises(EmbeddingsFileError, match=message):
        open_embeddings("-", format=format_name).read_all()


def test_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    for stream in (closed, None, io.StringIO("{}")):
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(EmbeddingsFileError, match="Standard input is closed"):
            open_embeddings("-")


def test_a_pipe_with_a_path_is_read_like_standard_input(tmp_path: Path) -> None:
    given = some_embeddings()
    content = write_csv(tmp_path / "birds", given).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    try:
        with open_embeddings(pipe) as stream:
            assert np.array_equal(stream.read_all().vectors, given.vectors)
    finally:
        writer.join()
