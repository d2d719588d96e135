"""The same embeddings in every format, for tests of what is read."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from safetensors.numpy import save_file


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What is written."""

    vectors: NDArray[np.float32]
    labels: list[Any]
    ids: list[Any]
    pictures: list[str | None]


def some_embeddings(n: int = 23, dimension: int = 3, *, named: bool = True) -> Embeddings:
    rng = np.random.default_rng(n)
    codes = rng.integers(0, 4, n).tolist()
    return Embeddings(
        rng.standard_normal((n, dimension)).astype(np.float32),
        [f"bird {code}" for code in codes] if named else codes,
        [f"b{row}" for row in range(n)] if named else list(range(100, 100 + n)),
        [None if row % 3 else f"{row}.png" for row in range(n)],
    )


def write_npz(path: Path, given: Embeddings) -> Path:
    path = path.with_suffix(".npz")
    pictures = np.array([picture or "" for picture in given.pictures])
    np.savez_compressed(
        path, embeddings=given.vectors, labels=given.labels, ids=given.ids, images=pictures
    )
    return path


def write_npz_in_columns(path: Path, given: Embeddings) -> Path:
    path = path.with_suffix(".npz")
    pictures = np.array([picture or "" for picture in given.pictures])
    columns = np.asfortranarray(given.vectors)
    np.savez(path, embeddings=columns, labels=given.labels, ids=given.ids, images=pictures)
    return path


def write_safetensors(path: Path, given: Embeddings) -> Path:
    path = path.with_suffix(".safetensors")
    pictures = [picture or "" for picture in given.pictures]
    metadata = {"labels": given.labels, "ids": given.ids, "images": pictures}
    save_file(
        {"embeddings": given.vectors},
        path,
        metadata={name: json.dumps(entries) for name, entries in metadata.items()},
    )
    return path


def write_parquet(path: Path, given: Embeddings, group_rows: int = 10) -> Path:
    path = path.with_suffix(".parquet")
    table = pa.table(
        {
            "embedding": given.vectors.tolist(),
            "label": given.labels,
            "id": given.ids,
            "image": given.pictures,
        }
    )
    parquet.write_table(table, path, row_group_size=group_rows)
    return path


def write_csv(path: Path, given: Embeddings) -> Path:
    path = path.with_suffix(".csv")
    dimension = given.vectors.shape[1]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *[f"x{entry}" for entry in range(dimension)], "image", "label"])
        for row, vector in enumerate(given.vectors.tolist()):
            writer.writerow([given.ids[row], *vector, given.pictures[row], given.labels[row]])
    return path


def write_csv_of_lists(path: Path, given: Embeddings) -> Path:
    path = path.with_suffix(".csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "vector", "image", "id", "remark"])
        for row, vector in enumerate(given.vectors.tolist()):
            cells = [given.labels[row], json.dumps(vector), given.pictures[row], given.ids[row]]
            writer.writerow([*cells, "not a number"])
    return path


def write_jsonl(path: Path, given: Embeddings) -> Path:
    path = path.with_suffix(".jsonl")
    with path.open("w", encoding="utf-8") as file:
        for row, vector in enumerate(given.vectors.tolist()):
            fields = {"id": given.ids[row], "label": given.labels[row], "vector": vector}
            if given.pictures[row] is not None:
                fields["image"] = given.pictures[row]
            file.write(json.dumps(fields) + "\n")
    return path


WRITERS: list[Callable[[Path, Embeddings], Path]] = [
    write_npz,
    write_npz_in_columns,
    write_safetensors,
    write_parquet,
    write_csv,
    write_csv_of_lists,
    write_jsonl,
]
