"""A gallery in Parquet files asked about itself, so that confidence can be fitted on it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from nearsure.arrays import AnyArray, IntArray
from nearsure.batch.parquet_rows import read_rows, values_in, vectors_in
from nearsure.batch.partitions import ROWS_PER_PARTITION, Partition
from nearsure.batch.running import Failure, Job, Scheduler, check_scheduler, failed, run_each
from nearsure.batch.shard_chunks import (
    ROWS_READ_AT_A_TIME,
    Metric,
    ShardColumns,
    check_metric,
    shard_jobs,
)
from nearsure.batch.shards import as_neighbors, search_shards
from nearsure.errors import InvalidInputError
from nearsure.leaving_one_out import leave_one_out
from nearsure.neighbors import Neighbors

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class OwnNeighbors:
    """A sample of a gallery's points with their neighbours among all the others.

    Parameters
    ----------
    ids : array of shape (n,)
        The sample, in the order of ids.
    neighbors : Neighbors
        Of each, without itself.
    codes : array of shape (n,)
        Their classes.
    classes : array of shape (n_classes,)
        All labels of the gallery, sorted; codes index it.
    class_counts : array of shape (n_classes,)
        Members of each class in the whole gallery.
    """

    ids: AnyArray
    neighbors: Neighbors
    codes: IntArray
    classes: AnyArray
    class_counts: IntArray


def leave_one_out_over_shards(
    shards: str | os.PathLike[str],
    k: int,
    *,
    label_column: str,
    vector_column: str = "embedding",
    id_column: str | None = None,
    metric: Metric = "euclidean",
    max_samples: int | None = 10_000,
    random_state: int = 0,
    scheduler: Scheduler = "threads",
    rows_per_shard: int = ROWS_PER_PARTITION,
) -> OwnNeighbors:
    """Neighbours of a random sample of a gallery, each point without itself.

    No machine holds the gallery; this one holds its ids (8 bytes a point; nothing where points are
    numbered) and the vectors of the sample. ``fit_confidence(own.neighbors, own.codes,
    class_counts=own.class_counts)`` then gives what `NEDClassifier` fits on the whole gallery with
    the same k, sample and seed.

    Parameters
    ----------
    shards, vector_column, id_column, metric, scheduler, rows_per_shard
        As of `search_shards`.
    k : int
        How many neighbours.
    label_column : str
        Column of the labels: integers or texts.
    max_samples : int or None
        How many points to draw; None takes all.
    random_state : int
        Seed of that draw, which is `NEDClassifier`'s.

    Returns
    -------
    OwnNeighbors
    """
    check_scheduler(scheduler)
    check_metric(metric)
    if max_samples is not None and max_samples < 1:
        raise InvalidInputError(f"max_samples must be at least 1. Got {max_samples} instead.")
    columns = ShardColumns(vector_column, label_column, id_column)
    jobs = shard_jobs(shards, columns, metric, rows_per_shard)
    n_rows = [job["partition"]["n_rows"] for _, job in jobs]
    n_points = sum(n_rows)
    if n_points < 2 or k < 1:  # noqa: PLR2004
        raise InvalidInputError(
            "Leaving one out needs at least two points and one neighbour. "
            f"Got {n_points} and {k} instead."
        )
    k = min(k, n_points - 1)
    censuses = _all_of(run_each(count_shard, jobs, scheduler, "count"))
    classes, class_counts = _merged_counts(censuses)
    ids = np.concatenate([census[2] for census in censuses]) if id_column else np.arange(n_points)
    rows = _drawn_rows(ids, max_samples, random_state)
    firsts = np.cumsum([0, *n_rows])
    fetches = [
        (name, job | {"rows": (rows[(rows >= first) & (rows < last)] - first).tolist()})
        for (name, job), first, last in zip(jobs, firsts[:-1], firsts[1:], strict=True)
    ]
    fetched = _all_of(run_each(fetch_rows, fetches, scheduler, "fetch"))
    order = np.argsort(ids[rows])
    vectors = np.concatenate([vectors for vectors, _ in fetched if len(vectors)])[order]
    labels = np.concatenate([labels for _, labels in fetched if len(labels)])[order]
    own_ids = ids[rows][order]
    found = search_shards(
        shards,
        vectors,
        k + 1,
        vector_column=vector_column,
        label_column=label_column,
        id_column=id_column,
        metric=metric,
        scheduler=scheduler,
        rows_per_shard=rows_per_shard,
    )
    neighbors = leave_one_out(as_neighbors(found, classes), own_ids, n_neighbors=k)
    codes = np.searchsorted(classes, labels).astype(np.int64)
    return OwnNeighbors(own_ids, neighbors, codes, classes, class_counts)


def count_shard(job: Job) -> tuple[AnyArray, IntArray, AnyArray]:
    """Labels of a shard, how many points have each, and the ids if a column holds them."""
    columns = ShardColumns(*job["columns"])
    label_column, id_column = str(columns.label), columns.id
    labels, ids = [], []
    names = [name for name in (label_column, id_column) if name is not None]
    for path, first_row, batch in _batches(job, names):
        labels.append(np.unique_counts(values_in(batch, label_column, path, first_row)))
        if id_column is not None:
            ids.append(values_in(batch, id_column, path, first_row))
    classes, counts = _merged_counts(labels)
    return classes, counts, np.concatenate(ids) if ids else np.empty(0, np.int64)


def fetch_rows(job: Job) -> tuple[AnyArray, AnyArray]:
    """Vectors, as they are stored, and labels of the rows of a shard that a job names."""
    columns = ShardColumns(*job["columns"])
    wanted = np.asarray(job["rows"], np.int64) + job["partition"]["first_row"]
    vectors, labels = [], []
    if wanted.size:
        for path, first_row, batch in _batches(job, [columns.vector, str(columns.label)]):
            start, stop = np.searchsorted(wanted, [first_row, first_row + len(batch)])
            if start < stop:
                places = wanted[start:stop] - first_row
                vectors.append(vectors_in(batch, columns.vector, path, first_row)[places])
                labels.append(values_in(batch, str(columns.label), path, first_row)[places])
    if not vectors:
        return np.empty((0, 0)), np.empty(0, np.int64)
    return np.concatenate(vectors), np.concatenate(labels)


def _batches(job: Job, columns: list[str]) -> Iterator[tuple[Path, int, "pa.RecordBatch"]]:
    partition = Partition(**job["partition"])
    batches = read_rows(
        partition.path,
        columns,
        first_row=partition.first_row,
        n_rows=partition.n_rows,
        batch_size=ROWS_READ_AT_A_TIME,
    )
    for first_row, batch in batches:
        yield partition.path, first_row, batch
    partition.check_unchanged()


def _merged_counts(parts: Sequence[tuple[AnyArray, ...]]) -> tuple[AnyArray, IntArray]:
    """Distinct labels of all parts, sorted, and how often each occurs."""
    there = [part for part in parts if len(part[0])]
    if not there:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    classes, places = np.unique(np.concatenate([part[0] for part in there]), return_inverse=True)
    counts = np.zeros(len(classes), np.int64)
    np.add.at(counts, places, np.concatenate([part[1] for part in there]))
    return classes, counts


def _drawn_rows(ids: AnyArray, max_samples: int | None, random_state: int) -> IntArray:
    """Rows of the sample, ascending; it is drawn in the order of ids, as a classifier's is."""
    order = np.argsort(ids, kind="stable")
    twice = ids[order[1:]] == ids[order[:-1]]
    if twice.any():
        raise InvalidInputError(
            f"ids must be distinct over all shards. Got {ids[order[1:]][twice][0]!s} in two points."
        )
    if max_samples is not None and max_samples < len(ids):
        generator = check_random_state(random_state)
        order = order[generator.choice(len(ids), max_samples, replace=False)]
    return np.sort(order)


def _all_of(results: list[Any]) -> list[Any]:
    """The results, or an error if one is missing: part of a gallery is not a gallery."""
    failures = [result for result in results if isinstance(result, Failure)]
    if failures:
        raise failed(failures, len(results))
    return results
