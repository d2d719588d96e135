"""`score_partitions`: predictions for partitioned embeddings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import chain
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Literal

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
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
from nearsure.classifier import NEDClassifier, Prediction
from nearsure.embedding_files.parquet import (
    arrow,
    open_parquet,
    read_vectors,
)
from nearsure.engines.contract import Engine
from nearsure.errors import EmbeddingsFileError, InvalidInputError, ModelFileError
from nearsure.model_file import sha256_of
from nearsure.posterior import Posterior

if TYPE_CHECKING:
    import pyarrow as pa


# The classifier of a worker: opened once in each process, by names that mean the same in all.
#
# What is sent to a worker is the path of a model file and the name of a function, never an object:
# no pickle, and no secret, as an engine's address comes from the worker's own environment.


@dataclass
class _Opened:
    classifier: NEDClassifier
    engine: Engine | None
    n_users: int = 0


_lock = RLock()
_opened: dict[tuple[str, str, str | None], _Opened] = {}


@contextmanager
def borrow_classifier(path: str, sha256: str, open_engine: str | None) -> Iterator[NEDClassifier]:
    """The classifier in a model file; it stays open until another is asked for.

    Parameters
    ----------
    path : str
        The model file.
    sha256 : str
        Its digest, so that no worker scores with another model of the same name.
    open_engine : str or None
        "module:function", which takes nothing and opens the engine that holds the points; None if
        the model file holds them.
    """
    key = (path, sha256, open_engine)
    with _lock:
        if key not in _opened:
            close_classifiers()
            _opened[key] = _open(path, sha256, open_engine)
        entry = _opened[key]
        entry.n_users += 1
    try:
        yield entry.classifier
    finally:
        with _lock:
            entry.n_users -= 1


def close_classifiers() -> None:
    """Close the classifiers of this process that are not in use."""
    with _lock:
        for key, entry in list(_opened.items()):
            if not entry.n_users:
                del _opened[key]
                if entry.engine is not None:
                    entry.engine.close()


def file_sha256(path: str | PathLike[str]) -> str:
    """The digest of a file."""
    try:
        return sha256_of(Path(path))
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no model file at {path}.") from None


def check_open_engine(open_engine: str | None) -> None:
    """Raise an error unless this could name a function; a worker checks that there is one."""
    if open_engine is not None and not all(
        part.strip() for part in open_engine.partition(":")[::2]
    ):
        raise InvalidInputError(
            "open_engine must name a function that workers can import, as "
            f"'package.module:function'. Got {open_engine!r} instead."
        )


def _open(path: str, sha256: str, open_engine: str | None) -> _Opened:
    if file_sha256(path) != sha256:
        raise ModelFileError(
            f"{path} is not the model that scoring was started with: it has changed, or this "
            "machine has another. Start again."
        )
    engine = None if open_engine is None else _open_engine(open_engine)
    try:
        return _Opened(NEDClassifier.load(path, engine), engine)
    except BaseException:
        if engine is not None:
            engine.close()
        raise


def _open_engine(open_engine: str) -> Engine:
    module, function = open_engine.partition(":")[::2]
    try:
        opening = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            "open_engine must name a function that workers can import. "
            f"{open_engine!r} cannot be: {error}."
        ) from error
    engine: Engine = opening()
    return engine


ROW, ID = "row", "id"
LABEL, CONFIDENCE, P_KNOWN, VERDICT = "label", "confidence", "p_known", "verdict"
RANKED_LABELS, RANKED_PROBABILITIES = "ranked_labels", "ranked_probabilities"

Ranked = int | Literal["all"] | None


def scored_table(
    prediction: Prediction,
    classes: AnyArray,
    *,
    names: tuple[str, "pa.Array"],
    ranked: Ranked,
) -> "pa.Table":
    """One row for each query.

    Parameters
    ----------
    prediction : Prediction
        Of n queries.
    classes : array of shape (n_classes,)
        The labels that class codes index.
    names : pair of str and pyarrow array of shape (n,)
        The first column: what the queries are called.
    ranked : int, "all" or None
        How many of each query's classes to list, best first, with their probabilities.
    """
    pa = arrow()
    columns = dict([names])
    columns[LABEL] = label_column(prediction.labels)
    columns[CONFIDENCE] = pa.array(prediction.confidence, pa.float64())
    if prediction.p_known is not None:
        columns[P_KNOWN] = pa.array(prediction.p_known, pa.float64())
    if prediction.verdicts is not None:
        columns[VERDICT] = pa.array(prediction.verdicts.tolist(), pa.string())
    if ranked is not None:
        offsets, codes, probabilities = _best(prediction.posterior, ranked)
        edges = pa.array(offsets, pa.int32())
        columns[RANKED_LABELS] = pa.ListArray.from_arrays(edges, label_column(classes[codes]))
        columns[RANKED_PROBABILITIES] = pa.ListArray.from_arrays(
            edges, pa.array(probabilities, pa.float64())
        )
    return pa.table(columns)


def label_column(labels: AnyArray) -> "pa.Array":
    """Labels as Parquet holds them: numbers as they are, everything else as text."""
    pa = arrow()
    if labels.dtype.kind in "biuf":
        return pa.array(labels)
    listed = labels.tolist()
    if not all(isinstance(label, str) for label in listed):
        raise InvalidInputError(
            "Labels must be numbers, or all of them text, to be written to Parquet. Got a mixture."
        )
    return pa.array(listed, pa.string())


def check_ranked(ranked: Ranked) -> None:
    """Raise an error unless this is a number of classes, "all" or None."""
    is_number = isinstance(ranked, int) and not isinstance(ranked, bool) and ranked >= 1
    if not (ranked is None or ranked == "all" or is_number):
        raise InvalidInputError(
            f"ranked must be 'all', None or an integer of at least 1. Got {ranked!r} instead."
        )


def _best(posterior: Posterior, ranked: int | str) -> tuple[IntArray, IntArray, FloatArray]:
    """Offsets, class codes and probabilities of the best classes of each query."""
    lengths = np.diff(posterior.indptr)
    if not isinstance(ranked, str):
        lengths = np.minimum(lengths, ranked)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.repeat(posterior.indptr[:-1] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return offsets, posterior.codes[entries], posterior.probabilities[entries]


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
    n_rows = 0
    with (
        borrow_classifier(job["model_path"], job["model_sha256"], job["open_engine"]) as classifier,
        atomic_write(Path(job["output"])) as draft,
    ):
        tables = _scored_tables(partition, classifier, job)
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
    partition: Partition, classifier: NEDClassifier, job: Job
) -> Iterator["pa.Table"]:
    """Scored rows, a batch at a time; one table without rows for a partition without any."""
    vector_column, id_column = job["vector_column"], job["id_column"]
    columns = [vector_column] if id_column is None else [vector_column, id_column]
    for first_row, batch in partition.read_rows(columns, job["batch_size"]):
        vectors = read_vectors(batch, vector_column, partition.path, first_row)
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
    if not partition.n_rows:
        yield _empty_table(partition, classifier, job)


def _empty_table(partition: Partition, classifier: NEDClassifier, job: Job) -> "pa.Table":
    """No rows, but the columns of all other partitions: what any query has, without it."""
    pa = arrow()
    with open_parquet(partition.path) as file:
        schema = file.schema_arrow
    names = (ROW, pa.array([0], pa.int64()))
    if job["id_column"] is not None:
        names = (ID, pa.nulls(1, schema.field(job["id_column"]).type))
    prediction = classifier.predict_with_confidence(np.ones((1, classifier.n_features_in_)))
    table = scored_table(prediction, classifier.classes_, names=names, ranked=job["ranked"])
    return table.slice(0, 0)
