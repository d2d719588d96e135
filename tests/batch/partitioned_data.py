"""Small data sets in Parquet files, and a gallery that knows their classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nearsure.arrays import AnyArray, IntArray

DIMENSION = 6
CENTRES = 1.3 * np.random.default_rng(99).normal(size=(5, DIMENSION))
NAMES = np.array(["ant", "bee", "cat", "dog", "emu"])
# Rows of the three files of queries that `conftest` writes.
SIZES = (70, 130, 45)


def drawn(n: int, seed: int) -> tuple[AnyArray, IntArray]:
    """Float32 points of five overlapping classes, and class codes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(CENTRES), n)
    points = CENTRES[codes] + rng.normal(size=(n, DIMENSION))
    return points.astype(np.float32), codes


def all_queries() -> tuple[AnyArray, AnyArray]:
    """The queries of those files, in their order, and the true labels."""
    vectors, codes = drawn(sum(SIZES), seed=1)
    return vectors, NAMES[codes]


def fixed_lists(vectors: AnyArray) -> Any:  # noqa: ANN401
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])


def ragged_lists(vectors: AnyArray) -> Any:  # noqa: ANN401
    return pa.array([row.tolist() for row in vectors], pa.list_(pa.float32()))


def write_points(
    path: Path,
    vectors: AnyArray,
    labels: AnyArray | None = None,
    ids: AnyArray | None = None,
    *,
    row_group_size: int = 1 << 20,
    **columns: Any,  # noqa: ANN401
) -> Path:
    """A Parquet file with the columns "embedding", "label" and "id"."""
    columns = {"embedding": fixed_lists(vectors)} | columns
    if labels is not None:
        columns["label"] = pa.array(labels.tolist())
    if ids is not None:
        columns["id"] = pa.array(ids.tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def scored_rows(folder: Path) -> dict[str, list[Any]]:
    """All scored rows of a folder, in the order of its files."""
    files = sorted(folder.rglob("*.parquet"), key=lambda file: file.relative_to(folder).as_posix())
    whole: dict[str, list[Any]] = pa.concat_tables(
        pq.read_table(file) for file in files
    ).to_pydict()
    return whole


def bytes_of(folder: Path) -> dict[str, bytes]:
    """What is in the files of a folder."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
