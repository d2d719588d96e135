"""Exact search in a gallery that lies in many Parquet files, larger than any machine's memory."""

import os
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray
from nearsure.batch.parquet_rows import check_columns, kind_of, opened
from nearsure.batch.partitions import ROWS_PER_PARTITION, Partition
from nearsure.batch.running import Job, Scheduler, check_scheduler, run_merged
from nearsure.batch.shard_chunks import (
    Chunk,
    Metric,
    ShardColumns,
    check_metric,
    read_chunks,
    shard_jobs,
)
from nearsure.engines.checks import checked_queries
from nearsure.engines.contract import Found
from nearsure.engines.hits import nothing_of
from nearsure.engines.merge import merge_found
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.index import ExactIndex, unit_vectors
from nearsure.labels import codes_of
from nearsure.neighbors import Neighbors


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

    Each task reads one shard, some 256 MB at a time, and answers all queries; answers are merged in
    pairs. Distances are the same to the last bit, and equal ones are in the order of ids.

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
    given = np.asarray(queries)
    asked = checked_queries(given, given.shape[1] if given.ndim == 2 else 0)  # noqa: PLR2004
    asked = unit_vectors(asked) if metric == "cosine" else asked
    columns = ShardColumns(vector_column, label_column, id_column)
    jobs = shard_jobs(shards, columns, metric, rows_per_shard)
    jobs = [(name, job | {"k": k}) for name, job in jobs]
    found: Found = run_merged(
        search_shard,
        jobs,
        asked,
        merge=partial(_merge_pair, k=k),
        scheduler=scheduler,
        description="search",
    )
    return found


def search_shard(job: Job, queries: AnyArray) -> Found:
    """The k nearest points of one shard, in whatever process.

    Parameters
    ----------
    job : dict
        Paths, names and numbers alone.
    queries : array of shape (n, dimension)
        At unit length for metric "cosine".
    """
    found = _nothing_found(job, len(queries))
    for chunk in read_chunks(job):
        if chunk.vectors.shape[1] != queries.shape[1]:
            raise EmbeddingsFileError(
                f"The vectors of the gallery have {chunk.vectors.shape[1]} entries, and those of "
                f"the queries {queries.shape[1]}: they must be of one model."
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


def _search_chunk(chunk: Chunk, queries: AnyArray, k: int) -> Found:
    n, k = len(queries), min(k, len(chunk.ids))
    vectors, ids, labels = chunk.vectors, chunk.ids, chunk.labels
    if len(np.unique(ids)) < len(ids):
        raise EmbeddingsFileError("ids must be distinct. Got some more than once in one shard.")
    if ids.dtype.kind == "U":
        # The index knows integers alone: rows in the order of ids break ties as ids would.
        order = np.argsort(ids)
        vectors, ids = vectors[order], ids[order]
        labels = None if labels is None else labels[order]
        index = ExactIndex(vectors)
    else:
        index = ExactIndex(vectors, ids)
    sq_distances, rows = index.search_rows(queries, k)
    return Found(
        sq_distances,
        ids[rows],
        np.full(n, k),
        None if labels is None else labels[rows],
    )


def _nothing_found(job: Job, n: int) -> Found:
    """The answer of a shard without points, of the kinds that its columns have."""
    path, columns = Partition(**job["partition"]).path, ShardColumns(*job["columns"])
    with opened(path) as file:
        check_columns(file, path, columns.names)
        schema = file.schema_arrow

    def nothing(column: str | None) -> AnyArray:
        dtype = np.int64 if column is None else kind_of(schema.field(column).type, column, path)
        empty: AnyArray = np.empty(0, dtype)
        return np.full((n, 1), nothing_of(empty), empty.dtype)

    return Found(
        np.full((n, 1), np.inf),
        nothing(columns.id),
        np.zeros(n, np.int64),
        None if columns.label is None else nothing(columns.label),
    )


def _merge_pair(one: Found, other: Found, k: int) -> Found:
    return merge_found([one, other], k)
