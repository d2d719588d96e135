"""The points of a gallery in Parquet files, shard by shard, as many at a time as memory holds."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.batch.parquet_rows import read_rows, values_in, vectors_in
from nearsure.batch.partitions import Partition, list_partitions
from nearsure.batch.running import Job
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.index import unit_vectors

# Vectors of a shard that are held at a time.
CHUNK_BYTES = 1 << 28
ROWS_READ_AT_A_TIME = 1 << 14

Metric = Literal["euclidean", "cosine"]


@dataclass(frozen=True)
class ShardColumns:
    """What the columns of a gallery's files are called.

    Parameters
    ----------
    vector : str
        Lists of numbers.
    label, id : str or None
        Integers or texts.
    """

    vector: str
    label: str | None
    id: str | None

    @property
    def names(self) -> list[str]:
        """Those that are there."""
        return [name for name in (self.vector, self.label, self.id) if name is not None]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some points of a shard.

    Parameters
    ----------
    vectors : array of shape (n, dimension)
        Float32 or float64.
    ids : array of shape (n,)
        Int64 or strings.
    labels : array of shape (n,) or None
        Int64 or strings.
    """

    vectors: AnyArray
    ids: AnyArray
    labels: AnyArray | None


def shard_jobs(
    shards: str | os.PathLike[str], columns: ShardColumns, metric: Metric, rows_per_shard: int
) -> list[tuple[str, Job]]:
    """A job for each shard of a gallery."""
    listed = list_partitions(shards, rows_per_shard).checked()
    # Files without rows often have columns of no type; one is kept if there are no others.
    partitions = [partition for partition in listed if partition.n_rows] or listed[:1]
    firsts = accumulate((partition.n_rows for partition in partitions), initial=0)
    return [
        (
            partition.name,
            {
                "partition": partition.to_dict(),
                "columns": [columns.vector, columns.label, columns.id],
                "first_id": first,
                "metric": metric,
            },
        )
        for partition, first in zip(partitions, firsts, strict=False)
    ]


def read_chunks(job: Job) -> Iterator[Chunk]:
    """The points of a shard, as many at a time as memory is meant for, at unit length if asked."""
    partition, columns = Partition(**job["partition"]), ShardColumns(*job["columns"])
    waiting: list[Chunk] = []
    n_bytes = 0
    batches = read_rows(
        partition.path,
        columns.names,
        first_row=partition.first_row,
        n_rows=partition.n_rows,
        batch_size=ROWS_READ_AT_A_TIME,
    )
    for first_row, batch in batches:
        vectors = vectors_in(batch, columns.vector, partition.path, first_row)
        if waiting and vectors.shape[1] != waiting[0].vectors.shape[1]:
            raise EmbeddingsFileError(
                f"The vectors in the column {columns.vector!r} of {partition.path} must have one "
                f"length, {waiting[0].vectors.shape[1]} as before. Row {first_row} has "
                f"{vectors.shape[1]} entries."
            )
        if columns.id is None:
            first_id = job["first_id"] + first_row - partition.first_row
            ids: AnyArray = np.arange(first_id, first_id + len(batch))
        else:
            ids = values_in(batch, columns.id, partition.path, first_row)
        labels = None
        if columns.label is not None:
            labels = values_in(batch, columns.label, partition.path, first_row)
        waiting.append(Chunk(vectors, ids, labels))
        n_bytes += vectors.nbytes
        if n_bytes >= CHUNK_BYTES:
            yield _joined(waiting, job["metric"])
            waiting, n_bytes = [], 0
    if waiting:
        yield _joined(waiting, job["metric"])
    partition.check_unchanged()


def check_metric(metric: str) -> None:
    """Raise an error unless this is one of the two."""
    if metric not in {"euclidean", "cosine"}:
        raise InvalidInputError(f"metric must be 'euclidean' or 'cosine'. Got {metric!r} instead.")


def _joined(parts: list[Chunk], metric: Metric) -> Chunk:
    vectors = np.concatenate([part.vectors for part in parts])
    labels = [part.labels for part in parts if part.labels is not None]
    return Chunk(
        unit_vectors(vectors) if metric == "cosine" else vectors,
        np.concatenate([part.ids for part in parts]),
        np.concatenate(labels) if labels else None,
    )
