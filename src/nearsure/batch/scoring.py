"""Score a data set of embeddings in Parquet files, partition by partition."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.batch.manifest import (
    FOOTER_KEY,
    MANIFEST,
    check_output,
    digest_of,
    is_scored,
    write_manifest,
)
from nearsure.batch.opened_classifier import (
    check_open_engine,
    file_sha256,
    forget_classifiers,
    lent_classifier,
)
from nearsure.batch.parquet_rows import arrow, check_columns, opened, read_rows, vectors_in
from nearsure.batch.partitions import ROWS_PER_PARTITION, Partition, list_partitions
from nearsure.batch.running import Failure, Job, Scheduler, check_scheduler, failed, run_each
from nearsure.batch.scored_table import ID, ROW, Ranked, check_ranked, scored_table
from nearsure.classifier import NEDClassifier
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.whole_files import remove_drafts, written_whole

if TYPE_CHECKING:
    import pyarrow as pa

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
                "partition": partition.to_dict(),
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
        forget_classifiers()
        remove_drafts(folder)
    failures = [Failure(file, reason) for file, reason in listing.broken.items()]
    failures += [result for result in results if isinstance(result, Failure)]
    if failures:
        raise failed(failures, len(listing.partitions) + len(listing.broken))
    write_manifest(folder, listing.partitions, model, settings)
    return Scored(
        folder,
        len(listing.partitions),
        len(listing.partitions) - len(jobs),
        sum(partition.n_rows for partition in listing.partitions),
    )


def score_partition(job: Job) -> int:
    """Score one partition, in whatever process; how many rows it has.

    Parameters
    ----------
    job : dict
        Paths, names and numbers alone.
    """
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    partition = Partition(**job["partition"])
    n_rows = 0
    with (
        lent_classifier(job["model_path"], job["model_sha256"], job["open_engine"]) as classifier,
        written_whole(Path(job["output"])) as draft,
    ):
        tables = _scored_tables(partition, classifier, job)
        first = next(tables)
        schema = first.schema.with_metadata({FOOTER_KEY: job["digest"].encode()})
        with parquet.ParquetWriter(draft, schema) as writer:
            for table in _and_first(first, tables):
                writer.write_table(table.replace_schema_metadata(schema.metadata))
                n_rows += len(table)
        partition.check_unchanged()
    # Arrow keeps what it freed for itself, and workers live long.
    pa.default_memory_pool().release_unused()
    return n_rows


def _scored_tables(
    partition: Partition, classifier: NEDClassifier, job: Job
) -> Iterator["pa.Table"]:
    """Scored rows, a batch at a time; one table without rows for a partition without any."""
    vector_column, id_column = job["vector_column"], job["id_column"]
    columns = [vector_column] if id_column is None else [vector_column, id_column]
    if not partition.n_rows:
        yield _empty_table(partition, classifier, columns, job)
        return
    batches = read_rows(
        partition.path,
        columns,
        first_row=partition.first_row,
        n_rows=partition.n_rows,
        batch_size=job["batch_size"],
    )
    for first_row, batch in batches:
        vectors = vectors_in(batch, vector_column, partition.path, first_row)
        if vectors.shape[1] != classifier.n_features_in_:
            raise EmbeddingsFileError(
                f"The vectors in the column {vector_column!r} of {partition.path} must have "
                f"{classifier.n_features_in_} entries, as the gallery's have. Row {first_row} has "
                f"{vectors.shape[1]}."
            )
        if id_column is None:
            names = (ROW, arrow().array(np.arange(first_row, first_row + len(batch))))
        else:
            names = (ID, batch.column(id_column))
        prediction = classifier.predict_with_confidence(vectors)
        yield scored_table(prediction, classifier.classes_, names=names, ranked=job["ranked"])


def _empty_table(
    partition: Partition, classifier: NEDClassifier, columns: list[str], job: Job
) -> "pa.Table":
    """No rows, but the columns of all other partitions: what any query has, without it."""
    pa = arrow()
    with opened(partition.path) as file:
        check_columns(file, partition.path, columns)
        schema = file.schema_arrow
    names = (ROW, pa.array([0], pa.int64()))
    if job["id_column"] is not None:
        names = (ID, pa.nulls(1, schema.field(job["id_column"]).type))
    prediction = classifier.predict_with_confidence(np.ones((1, classifier.n_features_in_)))
    table = scored_table(prediction, classifier.classes_, names=names, ranked=job["ranked"])
    return table.slice(0, 0)


def _and_first(first: Any, others: Iterator[Any]) -> Iterator[Any]:  # noqa: ANN401
    yield first
    yield from others
