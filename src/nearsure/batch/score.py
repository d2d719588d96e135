"""`score_partitions`: predictions for partitioned embeddings."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nearsure.atomic import atomic_write, remove_drafts
from nearsure.batch.partitions import (
    FOOTER_KEY,
    MANIFEST,
    ROWS_PER_PARTITION,
    Partition,
    check_output,
    digest_of,
    is_scored,
    list_partitions,
    write_manifest,
)
from nearsure.batch.runner import (
    Failure,
    Job,
    Scheduler,
    check_scheduler,
    partitions_failed,
    run_each,
)
from nearsure.batch.scorer import (
    Ranked,
    Scorer,
    check_open_engine,
    check_ranked,
    close_classifiers,
    file_sha256,
)
from nearsure.embedding_files.parquet import arrow, open_parquet, read_vectors
from nearsure.errors import EmbeddingsFileError, InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

ROW, ID = "row", "id"
BATCH_SIZE = 8192


@dataclass(frozen=True)
class Scored:
    """What a run of `score_partitions` did.

    Parameters
    ----------
    output : Path
        Folder of the scored files.
    n_partitions : int
        How many there are.
    n_skipped : int
        How many of them were there already.
    n_rows : int
        Queries in all of them.
    """

    output: Path
    n_partitions: int
    n_skipped: int
    n_rows: int


def score_partitions(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    classifier: str | os.PathLike[str],
    vector_column: str = "embedding",
    id_column: str | None = None,
    ranked: Ranked = None,
    open_engine: str | None = None,
    scheduler: Scheduler = "threads",
    batch_size: int = BATCH_SIZE,
    rows_per_partition: int = ROWS_PER_PARTITION,
    rescore: bool = False,
) -> Scored:
    """Write labels and confidence of all queries of a data set; the same as in one process.

    A scored file has the name of its source file, and its rows in the same order: "id" (or "row",
    the row number in the source file), "label", "confidence"; "p_known" and "verdict" if unknown
    queries are expected; "ranked_labels" and "ranked_probabilities" if asked for. Files appear
    whole or not at all, and `scored.json` when all are there. Started again, a run does what is
    missing: partitions that failed, or whose file, model or settings have changed.

    Parameters
    ----------
    source : path-like
        A Parquet file, a folder of them, or a pattern such as "queries/*.parquet". Workers must
        have it, the model and the output under the same paths.
    output : path-like
        A folder of its own.
    classifier : path-like
        A model file that `NEDClassifier.save` wrote.
    vector_column : str
        Column of the embeddings: lists of numbers.
    id_column : str, optional
        Column that names the queries; it is copied.
    ranked : int or "all", optional
        How many classes of each query to list with their probabilities, best first; "all" are
        those among its neighbours, which `evaluate_partitions` needs for Brier score and
        likelihood.
    open_engine : str, optional
        "module:function" that takes nothing and opens the engine that holds the gallery, if the
        model file does not. It is called once in each worker process, whose environment has the
        address and the password; neither is sent. A gallery in an engine changes without the model
        file: pass `rescore` then.
    scheduler : {"threads", "processes", "synchronous"} or distributed.Client
        What runs the work. Processes import the script that starts them: guard it with
        ``if __name__ == "__main__"``.
    batch_size : int
        Queries that are read and scored at a time. Memory depends on it, answers do not.
    rows_per_partition : int
        A file of more rows is divided between its row groups.
    rescore : bool
        Do finished partitions, too.

    Returns
    -------
    Scored

    Raises
    ------
    PartitionsFailedError
        If partitions failed, after all others are done; ``failed`` has names and reasons.
    """
    check_scheduler(scheduler)
    check_ranked(ranked)
    check_open_engine(open_engine)
    if batch_size < 1:
        raise InvalidInputError(f"batch_size must be at least 1. Got {batch_size} instead.")
    model_path = str(Path(classifier).absolute())
    model, folder = file_sha256(model_path), Path(output).absolute()
    settings = {
        "vector_column": vector_column,
        "id_column": id_column,
        "ranked": ranked,
        "open_engine": open_engine,
    }
    listing = list_partitions(source, rows_per_partition)
    check_output(folder, source, listing)
    # Until all is done again, the folder is not whole.
    (folder / MANIFEST).unlink(missing_ok=True)
    remove_drafts(folder)
    jobs: list[tuple[str, Job]] = []
    for partition in listing.partitions:
        digest = digest_of(partition, model, settings)
        if rescore or not is_scored(folder / partition.name, digest):
            job = {
                "partition": asdict(partition),
                "output": str(folder / partition.name),
                "digest": digest,
                "model_path": model_path,
                "model_sha256": model,
                "batch_size": batch_size,
                **settings,
            }
            jobs.append((partition.name, job))
    try:
        results = run_each(score_partition, jobs, scheduler, "score")
    finally:
        close_classifiers()
        remove_drafts(folder)
    failures = [Failure(file, reason) for file, reason in listing.broken.items()]
    failures += [result for result in results if isinstance(result, Failure)]
    if failures:
        raise partitions_failed(failures, len(listing.partitions) + len(listing.broken))
    write_manifest(folder, listing.partitions, model, settings)
    return Scored(
        folder,
        len(listing.partitions),
        len(listing.partitions) - len(jobs),
        sum(partition.n_rows for partition in listing.partitions),
    )


def score_partition(job: Job) -> int:
    """Score one partition, in any process, and count its rows.

    Parameters
    ----------
    job : dict
        Paths, names and numbers alone.
    """
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    partition = Partition(**job["partition"])
    scorer = Scorer(
        job["model_path"], job["open_engine"], ranked=job["ranked"], sha256=job["model_sha256"]
    )
    n_rows = 0
    # Open until the partition is done, whatever else this process is asked for meanwhile.
    with scorer.classifier() as classifier, atomic_write(Path(job["output"])) as draft:
        tables = _scored_tables(partition, scorer, classifier.n_features_in_, job)
        first = next(tables)
        schema = first.schema.with_metadata({FOOTER_KEY: job["digest"].encode()})
        with parquet.ParquetWriter(draft, schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table.replace_schema_metadata(schema.metadata))
                n_rows += len(table)
    # Arrow keeps freed memory, and workers live long.
    pa.default_memory_pool().release_unused()
    return n_rows


def _scored_tables(
    partition: Partition, scorer: Scorer, n_features: int, job: Job
) -> Iterator["pa.Table"]:
    """Scored rows, a batch at a time; one table without rows for a partition without any."""
    pa = arrow()
    vector_column, id_column = job["vector_column"], job["id_column"]
    columns = [vector_column] if id_column is None else [vector_column, id_column]
    for first_row, batch in partition.read_rows(columns, job["batch_size"]):
        vectors = read_vectors(batch, vector_column, partition.path, first_row)
        if vectors.shape[1] != n_features:
            raise EmbeddingsFileError(
                f"The vectors in the column {vector_column!r} of {partition.path} must have "
                f"{n_features} entries, as the gallery's have. Row {first_row} has "
                f"{vectors.shape[1]}."
            )
        if id_column is None:
            names = pa.array(np.arange(first_row, first_row + len(batch)))
        else:
            names = batch.column(id_column)
        yield _with_names(scorer.answer(vectors), names, id_column)
    if not partition.n_rows:
        kind = pa.int64()
        if id_column is not None:
            with open_parquet(partition.path) as file:
                kind = file.schema_arrow.field(id_column).type
        nothing = scorer.answer(np.empty((0, n_features)))
        yield _with_names(nothing, pa.array([], kind), id_column)


def _with_names(answers: "pa.Table", names: "pa.Array", id_column: str | None) -> "pa.Table":
    """The table with what its rows are called before the answers."""
    return answers.add_column(0, ROW if id_column is None else ID, names)
