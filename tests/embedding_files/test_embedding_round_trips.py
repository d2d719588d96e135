"""Any embeddings, written in one format and from there in every other, come back the same."""

import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from embedding_writers import WRITERS, Embeddings
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsure.embedding_files import EmbeddingChunk, open_embeddings, open_records

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


def assert_equal(found: EmbeddingChunk, expected: Embeddings) -> None:
    assert np.array_equal(found.vectors, expected.vectors)
    assert found.labels is not None
    assert found.ids is not None
    assert found.labels.tolist() == expected.labels
    assert found.ids.tolist() == expected.ids
    assert (found.pictures or [None] * len(found)) == expected.pictures


@settings(max_examples=25, deadline=None)
@given(embeddings(), st.integers(1, 7))
def test_formats_agree(written: Embeddings, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for write in WRITERS:
            found = read(write(Path(folder) / write.__name__, written), rows)
            assert_equal(found, written)


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
            assert_equal(read(path, rows), written)
