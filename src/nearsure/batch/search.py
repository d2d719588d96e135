"""`search_shards`: neighbours in a gallery of several files, also leaving one out."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearsure.arrays import AnyArray, IntArray
from nearsure.batch.partitions import ROWS_PER_PARTITION, Partition, list_partitions
from nearsure.batch.runner import (
    Job,
    Scheduler,
    check_scheduler,
    require_all,
    run_each,
    run_merged,
)
from nearsure.embedding_files.parquet import (
    check_columns,
    numpy_type,
    open_parquet,
    read_values,
    read_vectors,
)
from nearsure.engines.checks import checked_queries
from nearsure.engines.contract import Found
from nearsure.engines.hits import merge_found, nothing_of
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.index import ExactIndex, unit_vectors
from nearsure.labels import codes_of
from nearsure.loo import leave_one_out
from nearsure.neighbors import Neighbors

# Vectors of a shard that are held at a time.
CHUNK_BYTES = 1 << 28
ROWS_READ_AT_A_TIME = 1 << 14

Metric = Literal["euclidean", "cosine"]


# Arrays of some points of a shard: "vector", float32 or float64; "id" and "label", int64 or text.
Points = dict[str, AnyArray]


def shard_jobs(
    shards: str | os.PathLike[str],
    columns: dict[str, str | None],
    metric: Metric,
    rows_per_shard: int,
) -> list[tuple[str, Job]]:
    """A job for each shard of a gallery; `columns` names those of "vector", "label" and "id"."""
    listed = list_partitions(shards, rows_per_shard).require_readable()
    # Files without rows often have columns of no type; one is kept if there are no others.
    partitions = [partition for partition in listed if partition.n_rows] or listed[:1]
    firsts = accumulate((partition.n_rows for partition in partitions), initial=0)
    return [
        (
            partition.name,
            {
                "partition": asdict(partition),
                "columns": {role: name for role, name in columns.items() if name is not None},
                "first_id": first,
                "metric": metric,
            },
        )
        for partition, first in zip(partitions, firsts, strict=False)
    ]


def read_batches(job: Job, *roles: str) -> Iterator[tuple[int, Points]]:
    """Points of a shard, each batch with the number of its first row in the file."""
    partition = Partition(**job["partition"])
    columns = {role: name for role, name in job["columns"].items() if role in roles}
    length = None
    for first_row, batch in partition.read_rows(list(columns.values()), ROWS_READ_AT_A_TIME):
        points: Points = {}
        for role, name in columns.items():
            if role == "vector":
                points[role] = read_vectors(batch, name, partition.path, first_row, length)
                length = points[role].shape[1]
            else:
                points[role] = read_values(batch, name, partition.path, first_row)
        yield first_row, points


def read_chunks(job: Job) -> Iterator[Points]:
    """The points of a shard, up to `CHUNK_BYTES` at a time, at unit length for "cosine"."""
    first_id = job["first_id"] - job["partition"]["first_row"]
    waiting: list[Points] = []
    for first_row, points in read_batches(job, "vector", "label", "id"):
        if "id" not in points:
            points["id"] = first_id + first_row + np.arange(len(points["vector"]))
        waiting.append(points)
        if sum(part["vector"].nbytes for part in waiting) >= CHUNK_BYTES:
            yield _join(waiting, job["metric"])
            waiting = []
    if waiting:
        yield _join(waiting, job["metric"])


def check_metric(metric: str) -> None:
    """Raise an error unless this is one of the two."""
    if metric not in {"euclidean", "cosine"}:
        raise InvalidInputError(f"metric must be 'euclidean' or 'cosine'. Got {metric!r} instead.")


def _join(parts: list[Points], metric: Metric) -> Points:
    joined = {role: np.concatenate([part[role] for part in parts]) for role in parts[0]}
    if metric == "cosine":
        joined["vector"] = unit_vectors(joined["vector"])
    return joined


def search_shards(
    shards: str | os.PathLike[str],
    queries: ArrayLike,
    k: int,
    *,
    vector_column: str = "embedding",
    label_column: str | None = None,
    id_column: str | None = None,
    metric: Metric = "euclidean",
    scheduler: Scheduler = "threads",
    rows_per_shard: int = ROWS_PER_PARTITION,
) -> Found:
    """The k nearest points of a gallery in Parquet files; the same as of one `ExactIndex` over all.

    Each task reads one shard, some 256 MB at a time, and answers all queries; answers are merged as
    they arrive. Distances are the same to the last bit, and equal ones are in the order of ids.

    Parameters
    ----------
    shards : path-like
        A Parquet file, a folder of them, or a pattern. Workers must have it under the same path.
    queries : array of shape (n, dimension)
        Queries. They are sent to every worker, and each answer of shape (n, k) must fit in its
        memory: divide many of them.
    k : int
        How many neighbours; fewer are found if there are no more.
    vector_column : str
        Column of the vectors: lists of numbers.
    label_column : str, optional
        Column of the labels: integers or texts.
    id_column : str, optional
        Column of ids: integers or texts, distinct over all files. By default points are numbered
        from 0, in the order of file names, then of rows.
    metric : {"euclidean", "cosine"}
        "cosine" scales queries and points to unit length.
    scheduler : {"threads", "processes", "synchronous"} or distributed.Client
        What runs the work.
    rows_per_shard : int
        A file of more rows is divided between its row groups.

    Returns
    -------
    Found

    Raises
    ------
    PartitionsFailedError
        If a shard cannot be read or searched: part of a gallery is never taken for all of it.
    """
    check_scheduler(scheduler)
    check_metric(metric)
    if k < 1:
        raise InvalidInputError(f"k must be at least 1. Got {k} instead.")
    columns = {"vector": vector_column, "id": id_column, "label": label_column}
    given = np.asarray(queries)
    points = checked_queries(given, given.shape[1] if given.ndim == 2 else 0)  # noqa: PLR2004
    return _search(shard_jobs(shards, columns, metric, rows_per_shard), points, k, scheduler)


def _search(jobs: list[tuple[str, Job]], queries: AnyArray, k: int, scheduler: Scheduler) -> Found:
    found: Found = run_merged(
        search_shard,
        [(name, job | {"k": k}) for name, job in jobs],
        unit_vectors(queries) if jobs[0][1]["metric"] == "cosine" else queries,
        merge=lambda one, other: merge_found([one, other], k),
        scheduler=scheduler,
        description="search",
    )
    return found


def search_shard(job: Job, queries: AnyArray) -> Found:
    """The k nearest points of one shard, in any process.

    Parameters
    ----------
    job : dict
        Paths, names and numbers alone.
    queries : array of shape (n, dimension)
        At unit length for metric "cosine".
    """
    found = _no_neighbors(job, len(queries))
    for chunk in read_chunks(job):
        dimension = chunk["vector"].shape[1]
        if dimension != queries.shape[1]:
            raise EmbeddingsFileError(
                f"The vectors of the gallery have {dimension} entries, and those of the queries "
                f"{queries.shape[1]}: they must be of one model."
            )
        found = merge_found([found, _search_chunk(chunk, queries, job["k"])], job["k"])
    return found


def as_neighbors(found: Found, classes: AnyArray) -> Neighbors:
    """What was found, with class codes in place of labels.

    Parameters
    ----------
    found : Found
        With labels.
    classes : array of shape (n_classes,)
        The labels, sorted; codes index it.
    """
    if found.labels is None:
        raise InvalidInputError("found must have labels. Got none: name label_column.")
    valid = np.arange(found.ids.shape[1]) < found.counts[:, None]
    codes = codes_of(found.labels, classes)
    foreign = valid & (codes == len(classes))
    if foreign.any():
        missing = found.labels[foreign].tolist()[0]
        raise InvalidInputError(
            f"classes must hold every label of the gallery. {missing!r} is missing."
        )
    return Neighbors(found.sq_distances, np.where(valid, codes, 0), found.ids, found.counts)


def _search_chunk(chunk: Points, queries: AnyArray, k: int) -> Found:
    ids = chunk["id"]
    if len(np.unique(ids)) < len(ids):
        raise EmbeddingsFileError("ids must be distinct. Got some more than once in one shard.")
    if ids.dtype.kind == "U":
        # The index takes integers alone: rows in the order of ids break ties as ids would.
        order = np.argsort(ids)
        chunk = {role: array[order] for role, array in chunk.items()}
        index = ExactIndex(chunk["vector"])
    else:
        index = ExactIndex(chunk["vector"], ids)
    k = min(k, len(ids))
    sq_distances, rows = index.search_rows(queries, k)
    labels = chunk["label"][rows] if "label" in chunk else None
    return Found(sq_distances, chunk["id"][rows], np.full(len(queries), k), labels)


def _no_neighbors(job: Job, n: int) -> Found:
    """The answer of a shard without points, of the types of its columns."""
    path, columns = Partition(**job["partition"]).path, job["columns"]
    with open_parquet(path) as file:
        check_columns(file, path, list(columns.values()))
        schema = file.schema_arrow

    def nothing(role: str) -> AnyArray:
        dtype: type = np.int64
        if role in columns:
            dtype = numpy_type(schema.field(columns[role]).type, columns[role], path)
        empty: AnyArray = np.empty(0, dtype)
        return np.full((n, 1), nothing_of(empty), empty.dtype)

    ids = nothing("id")
    labels = nothing("label") if "label" in columns else None
    return Found(np.full((n, 1), np.inf), ids, np.zeros(n, np.int64), labels)


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
    columns = {"vector": vector_column, "id": id_column, "label": label_column}
    jobs = shard_jobs(shards, columns, metric, rows_per_shard)
    n_rows = [job["partition"]["n_rows"] for _, job in jobs]
    n_points = sum(n_rows)
    if n_points < 2 or k < 1:  # noqa: PLR2004
        raise InvalidInputError(
            "Leaving one out needs at least two points and one neighbour. "
            f"Got {n_points} and {k} instead."
        )
    k = min(k, n_points - 1)
    censuses = require_all(run_each(count_shard, jobs, scheduler, "count"))
    classes, class_counts = _merge_counts(censuses)
    ids = np.concatenate([census[2] for census in censuses]) if id_column else np.arange(n_points)
    rows = _draw_rows(ids, max_samples, random_state)
    firsts = np.cumsum([0, *n_rows])
    fetches = [
        (name, job | {"rows": (rows[(rows >= first) & (rows < last)] - first).tolist()})
        for (name, job), first, last in zip(jobs, firsts[:-1], firsts[1:], strict=True)
    ]
    found_rows = require_all(run_each(fetch_rows, fetches, scheduler, "fetch"))
    fetched: list[Points] = list(chain.from_iterable(found_rows))
    order = np.argsort(ids[rows])
    vectors, labels = (
        np.concatenate([points[role] for points in fetched])[order] for role in ("vector", "label")
    )
    own_ids = ids[rows][order]
    found = _search(jobs, vectors, k + 1, scheduler)
    neighbors = leave_one_out(as_neighbors(found, classes), own_ids, n_neighbors=k)
    codes = np.searchsorted(classes, labels).astype(np.int64)
    return OwnNeighbors(own_ids, neighbors, codes, classes, class_counts)


def count_shard(job: Job) -> tuple[AnyArray, IntArray, AnyArray]:
    """Labels of a shard, how many points have each, and the ids if a column holds them."""
    labels, ids = [], []
    for _, points in read_batches(job, "label", "id"):
        labels.append(np.unique_counts(points["label"]))
        ids += [points["id"]] if "id" in points else []
    classes, counts = _merge_counts(labels)
    return classes, counts, np.concatenate(ids) if ids else np.empty(0, np.int64)


def fetch_rows(job: Job) -> list[Points]:
    """Vectors, as they are stored, and labels of the rows of a shard that a job names."""
    wanted = np.asarray(job["rows"], np.int64) + job["partition"]["first_row"]
    found: list[Points] = []
    if wanted.size:
        for first_row, points in read_batches(job, "vector", "label"):
            places = wanted - first_row
            places = places[(places >= 0) & (places < len(points["label"]))]
            if places.size:
                found.append({role: array[places] for role, array in points.items()})
    return found


def _merge_counts(parts: Sequence[tuple[AnyArray, ...]]) -> tuple[AnyArray, IntArray]:
    """Distinct labels of all parts, sorted, and how often each occurs."""
    there = [part for part in parts if len(part[0])]
    if not there:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    classes, places = np.unique(np.concatenate([part[0] for part in there]), return_inverse=True)
    counts = np.zeros(len(classes), np.int64)
    np.add.at(counts, places, np.concatenate([part[1] for part in there]))
    return classes, counts


def _draw_rows(ids: AnyArray, max_samples: int | None, random_state: int) -> IntArray:
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
