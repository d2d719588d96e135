"""Embeddings files: what was written comes back, doubt is named, broken files are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from nearsure.arrays import AnyArray
from nearsure.embedding_files import load_embeddings
from nearsure.errors import EmbeddingsFileError

VECTORS = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
NAMES = np.array(["owl", "owl", "wren", "wren", "kiwi", "kiwi"])
CODES = np.array([2, 2, 7, 7, 1, 1])


def npz(folder: Path, **arrays: Any) -> Path:  # noqa: ANN401
    path = folder / "birds.npz"
    np.savez(path, **arrays)
    return path


def parquet_table(folder: Path, **columns: Any) -> Path:  # noqa: ANN401
    path = folder / "birds.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def as_npz(folder: Path) -> Path:
    return npz(folder, embeddings=VECTORS, labels=NAMES)


def as_npz_compressed_of_float16(folder: Path) -> Path:
    path = folder / "birds.npz"
    np.savez_compressed(path, e=VECTORS.astype(np.float16), who=NAMES)
    return path


def as_parquet_of_lists(folder: Path) -> Path:
    return parquet_table(folder, vector=VECTORS.tolist(), label=NAMES.tolist())


def as_parquet_of_fixed_lists(folder: Path) -> Path:
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 3)
    return parquet_table(folder, v=fixed, bird=pa.array(NAMES.tolist()).dictionary_encode())


def as_safetensors_with_names(folder: Path) -> Path:
    path = folder / "birds.safetensors"
    metadata = {"labels": json.dumps(NAMES.tolist()), "model": "net"}
    save_file({"embeddings": VECTORS}, path, metadata=metadata)
    return path


@pytest.mark.parametrize(
    "write",
    [
        as_npz,
        as_npz_compressed_of_float16,
        as_parquet_of_lists,
        as_parquet_of_fixed_lists,
        as_safetensors_with_names,
    ],
)
def test_what_was_written_comes_back(write: Callable[[Path], Path], tmp_path: Path) -> None:
    loaded = load_embeddings(write(tmp_path))
    exact = "float16" not in write.__name__
    assert loaded.vectors.dtype == np.float32
    np.testing.assert_allclose(loaded.vectors, VECTORS, rtol=0 if exact else 1e-3)
    assert loaded.labels.tolist() == NAMES.tolist()


def test_integer_labels_of_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "birds.safetensors"
    save_file({"a": VECTORS, "y": CODES}, path)
    assert load_embeddings(path).labels.tolist() == CODES.tolist()


@pytest.mark.parametrize(
    ("name", "text", "key", "expected"),
    [
        ("l.txt", "owl\nowl\nwren\nwren\nkiwi\nkiwi\n", None, NAMES),
        ("l.txt", "2\n2\n7\n7\n1\n1", None, CODES),
        ("l.txt", "02\n02\n7\n7\n1\n1\n", None, np.array(["02", "02", "7", "7", "1", "1"])),
        ("l.csv", "label\n2\n2\n7\n7\n1\n1\n", None, CODES),
        ("l.csv", "2\n2\n7\n7\n1\n1\n", None, CODES),
        ("l.csv", 'id,bird\n1,"a, b"\n2,b\n3,b\n4,b\n5,b\n6,b\n', "bird", ["a, b", *"bbbbb"]),
    ],
)
def test_labels_of_a_text_file(
    tmp_path: Path, name: str, text: str, key: str | None, expected: np.ndarray | list[str]
) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    (tmp_path / name).write_text(text)
    loaded = load_embeddings(tmp_path / "v.npy", labels_path=tmp_path / name, labels_key=key)
    assert loaded.labels.tolist() == np.asarray(expected).tolist()


def test_labels_of_an_npy_file_go_before_those_of_the_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", CODES)
    loaded = load_embeddings(as_npz(tmp_path), labels_path=tmp_path / "l.npy")
    assert loaded.labels.tolist() == CODES.tolist()


def test_keys_choose_gallery_and_queries_of_one_file(tmp_path: Path) -> None:
    path = npz(tmp_path, train_x=VECTORS, train_y=NAMES, test_x=VECTORS[:2] + 1, test_y=NAMES[:2])
    queries = load_embeddings(path, vectors_key="test_x", labels_key="test_y")
    assert np.array_equal(queries.vectors, VECTORS[:2] + 1)
    assert len(load_embeddings(path, vectors_key="train_x", labels_key="train_y")) == 6
    with pytest.raises(
        EmbeddingsFileError, match=r"'train_x', 'test_x' could each .*vectors_key.*float32 \(6, 3\)"
    ):
        load_embeddings(path)


def test_usual_names_decide_among_several(tmp_path: Path) -> None:
    path = npz(tmp_path, X=VECTORS, logits=VECTORS * 2, y=CODES, files=NAMES)
    loaded = load_embeddings(path)
    assert np.array_equal(loaded.vectors, VECTORS)
    assert loaded.labels.tolist() == CODES.tolist()


def test_bytes_and_whole_floats_are_labels(tmp_path: Path) -> None:
    assert load_embeddings(npz(tmp_path, x=VECTORS, y=NAMES.astype("S"))).labels[0] == "owl"
    floats = load_embeddings(npz(tmp_path, x=VECTORS, y=CODES.astype(float))).labels
    assert floats.dtype == np.int64
    with pytest.raises(EmbeddingsFileError, match="one label, an integer or a text"):
        load_embeddings(npz(tmp_path, x=VECTORS, y=CODES + 0.5))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": VECTORS}, r"one label for each of its 6 vectors.*labels_path.*'x' float32 \(6, 3\)"),
        ({"y": NAMES}, r"must hold an array of vectors.*'y' <U4 \(6\)"),
        ({"x": VECTORS, "a": NAMES, "b": CODES}, "'a', 'b' could each be the labels.*labels_key"),
        ({"x": VECTORS, "y": NAMES[:5]}, "one label for each of its 6 vectors"),
        ({"x": VECTORS.astype(float) * 1e300, "y": CODES}, "Row 0 has a value beyond the range"),
        ({"x": np.where(np.eye(6, 3, -1) > 0, np.nan, VECTORS), "y": CODES}, "Row 1 has NaN"),
        ({"x": VECTORS[:0], "y": CODES[:0]}, "at least one row"),
    ],
)
def test_what_is_missing_or_doubtful_is_named(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(EmbeddingsFileError, match=message):
        load_embeddings(npz(tmp_path, **arrays))


def test_an_unknown_key_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingsFileError, match=r"no array 'vecs' .*'embeddings'"):
        load_embeddings(as_npz(tmp_path), vectors_key="vecs")
    with pytest.raises(EmbeddingsFileError, match=r"no array 'who' .*labels_key"):
        load_embeddings(as_npz(tmp_path), labels_key="who")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = npz(tmp_path, x=VECTORS, y=NAMES.astype(object))
    with pytest.raises(EmbeddingsFileError, match=r"'y' .* Python objects.*dtype=str"):
        load_embeddings(path)
    # Such an array in the same file is in nobody's way.
    path = npz(tmp_path, x=VECTORS, y=NAMES, extra=np.array([{}], object))
    assert len(load_embeddings(path)) == 6


@pytest.mark.parametrize("write", [as_npz, as_parquet_of_lists, as_safetensors_with_names])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_cut_off_file_is_refused(
    write: Callable[[Path], Path], share: float, tmp_path: Path
) -> None:
    path = write(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(EmbeddingsFileError, match=r"cannot be read as \."):
        load_embeddings(path)


@pytest.mark.parametrize("size", [0, 60, 150])
def test_a_cut_off_npy_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "v.npy"
    np.save(path, VECTORS)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(EmbeddingsFileError, match=r"cannot be read as \.npy"):
        load_embeddings(path, labels_path=tmp_path / "l.txt")


def test_missing_files_and_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingsFileError, match="There is no file"):
        load_embeddings(tmp_path / "none.npz")
    with pytest.raises(EmbeddingsFileError, match=r"There is no file .*birds\.mat"):
        load_embeddings(tmp_path / "birds.mat")
    (tmp_path / "birds.mat").touch()
    with pytest.raises(EmbeddingsFileError, match=r"must end in \.npz.*Got birds\.mat"):
        load_embeddings(tmp_path / "birds.mat")
    with pytest.raises(EmbeddingsFileError, match=r"There is no file .*l\.txt"):
        load_embeddings(as_npz(tmp_path), labels_path=tmp_path / "l.txt")
    with pytest.raises(EmbeddingsFileError, match=r"labels must end in \.npy, \.txt or \.csv"):
        load_embeddings(as_npz(tmp_path), labels_path=tmp_path / "l.json")


def test_keys_that_choose_nothing_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    (tmp_path / "l.txt").write_text("a\n" * 6)
    with pytest.raises(EmbeddingsFileError, match="leave out the key 'x'"):
        load_embeddings(tmp_path / "v.npy", labels_path=tmp_path / "l.txt", vectors_key="x")
    with pytest.raises(EmbeddingsFileError, match="leave out the key 'y'"):
        load_embeddings(tmp_path / "v.npy", labels_path=tmp_path / "l.txt", labels_key="y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n" * 7, r"each of the 6 vectors.*\(7,\)"),  # not taken for a header and six labels
        ("a,b\n" * 6, "2 columns"),
        ("a\n" * 5, r"\(5,\)"),
        ("", r"\(0,\)"),
    ],
)
def test_a_csv_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(EmbeddingsFileError, match=message):
        load_embeddings(tmp_path / "v.npy", labels_path=tmp_path / "l.csv")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [[1.0, 2.0], [1.0]], "y": [0, 1]}, "Row 0 has 2 entries, and row 1 1"),
        ({"x": [[1.0], None], "y": [0, 1]}, "Row 1 has none"),
        ({"x": [[1.0], [None]], "y": [0, 1]}, "Row 1 has NaN"),
        ({"x": [[1.0], [2.0]], "y": ["a", None]}, "'y' .* Row 1 has none"),
    ],
)
def test_holes_in_parquet_are_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(EmbeddingsFileError, match=message):
        load_embeddings(parquet_table(tmp_path, **columns))


def test_bfloat16_is_refused_with_a_remedy(tmp_path: Path) -> None:
    header = {
        "x": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]},
        "y": {"dtype": "I32", "shape": [2], "data_offsets": [4, 12]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "b.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(12))
    with pytest.raises(EmbeddingsFileError, match="BF16, which numpy does not support"):
        load_embeddings(path, vectors_key="x")


def test_integers_too_large_for_64_bits_are_names(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(2))
    (tmp_path / "y.txt").write_text(f"{10**19}\n{10**20}\n", encoding="utf-8")
    labels = load_embeddings(tmp_path / "x.npy", labels_path=tmp_path / "y.txt").labels
    assert labels.tolist() == [str(10**19), str(10**20)]


@pytest.mark.parametrize("labels", [np.array([1.0, np.inf]), np.array([b"a", b"\xff"])])
def test_labels_that_are_no_labels_are_refused(tmp_path: Path, labels: AnyArray) -> None:
    np.savez(tmp_path / "x.npz", vectors=np.eye(2), labels=labels)
    with pytest.raises(EmbeddingsFileError, match="must be"):
        load_embeddings(tmp_path / "x.npz", labels_key="labels")
