"""`evaluate_partitions`: metrics over partitioned embeddings.

Sums of floating-point numbers depend on their order, so no sums are merged: each partition gives
the confidence of its rows and whether they are right, 9 bytes a query, and the metrics are computed
from all rows, in the order of the data set.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.batch.partitions import Partition, read_manifest
from nearsure.batch.runner import Job, Scheduler, check_scheduler, require_all, run_each
from nearsure.batch.scorer import CONFIDENCE, LABEL, RANKED_LABELS, RANKED_PROBABILITIES
from nearsure.embedding_files.parquet import open_parquet, read_rows, read_values
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.metrics import (
    accuracy,
    area_under_risk_coverage,
    error_detection_auroc,
    expected_calibration_error,
    row_brier_scores,
    row_negative_log_likelihoods,
)
from nearsure.posterior import Posterior

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How good the predictions of a data set are; see `nearsure.metrics`.

    Parameters
    ----------
    n_queries : int
        Rows of the data set.
    accuracy, expected_calibration_error : float
        Fractions; the calibration error is over 15 bins of equal width.
    area_under_risk_coverage, error_detection_auroc : float
        How well confidence separates right from wrong answers.
    brier_score, negative_log_likelihood : float or None
        Of all probabilities; None unless ``ranked="all"`` had them written. The likelihood is
        infinite if a true class is not among a query's neighbours.
    confidence, correct : array of shape (n_queries,)
        For every other metric, its bootstrap interval, and displays.
    """

    n_queries: int
    accuracy: float
    expected_calibration_error: float
    area_under_risk_coverage: float
    error_detection_auroc: float
    brier_score: float | None
    negative_log_likelihood: float | None
    confidence: FloatArray
    correct: BoolArray


def evaluate_partitions(
    scored: str | os.PathLike[str],
    *,
    truth_column: str,
    truth: str | os.PathLike[str] | None = None,
    scheduler: Scheduler = "threads",
) -> Evaluation:
    """Compare what `score_partitions` wrote with the truth.

    Parameters
    ----------
    scored : path-like
        Folder that `score_partitions` finished.
    truth_column : str
        Column of the true labels: integers or texts, as the gallery's labels are. No answer is
        right for a query whose label the gallery lacks.
    truth : path-like, optional
        Folder of Parquet files with that column, which have the names and the rows of those that
        were scored; by default these themselves.
    scheduler : {"threads", "processes", "synchronous"} or distributed.Client
        What runs the work.

    Returns
    -------
    Evaluation

    Raises
    ------
    PartitionsFailedError
        If a partition cannot be compared; ``failed`` has names and reasons.
    """
    check_scheduler(scheduler)
    folder = Path(scored).absolute()
    partitions, settings = read_manifest(folder)
    jobs = [
        (
            partition.name,
            {
                "partition": asdict(partition),
                "scored": str(folder / partition.name),
                "truth": None if truth is None else str(Path(truth).absolute() / partition.file),
                "truth_column": truth_column,
                "has_posterior": settings["ranked"] == "all",
            },
        )
        for partition in partitions
    ]
    results = require_all(run_each(compare_partition, jobs, scheduler, "evaluate"))
    rows = _join(results)
    confidence, correct = rows["confidence"], rows["correct"]
    if not len(confidence):
        raise InvalidInputError(f"{folder} has no rows to evaluate: all partitions are empty.")
    return Evaluation(
        len(confidence),
        accuracy(correct),
        expected_calibration_error(confidence, correct),
        area_under_risk_coverage(confidence, correct),
        error_detection_auroc(confidence, correct),
        float(np.mean(rows["brier"])) if "brier" in rows else None,
        float(np.mean(rows["surprise"])) if "surprise" in rows else None,
        confidence,
        correct,
    )


def compare_partition(job: Job) -> dict[str, AnyArray]:
    """Confidence and correctness of the rows of one partition, in any process.

    Parameters
    ----------
    job : dict
        Paths, names and numbers alone.
    """
    partition, path = Partition(**job["partition"]), Path(job["scored"])
    truth_column = job["truth_column"]
    truth_path = partition.path if job["truth"] is None else Path(job["truth"])
    _check_truth(partition, truth_path, path)
    true_rows = read_rows(
        truth_path, [truth_column], first_row=partition.first_row, n_rows=partition.n_rows
    )
    truth = [read_values(batch, truth_column, truth_path, first) for first, batch in true_rows]
    true_labels = np.concatenate(truth) if truth else np.empty(0, np.int64)
    columns = [LABEL, CONFIDENCE]
    nothing: dict[str, AnyArray] = {"confidence": np.empty(0), "correct": np.empty(0, np.bool_)}
    if job["has_posterior"]:
        columns += [RANKED_LABELS, RANKED_PROBABILITIES]
        nothing |= {"brier": np.empty(0), "surprise": np.empty(0)}
    parts = (
        _compare(batch, true_labels[first : first + len(batch)], path, first)
        for first, batch in read_rows(path, columns)
    )
    return _join([nothing, *parts])


def _join(parts: list[dict[str, AnyArray]]) -> dict[str, AnyArray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _compare(
    batch: "pa.RecordBatch", truth: AnyArray, path: Path, first_row: int
) -> dict[str, AnyArray]:
    labels = read_values(batch, LABEL, path, first_row)
    if labels.dtype.kind != truth.dtype.kind:
        raise EmbeddingsFileError(
            f"True labels must be of the kind of the gallery's labels, {labels.dtype}. "
            f"Got {truth.dtype} instead."
        )
    compared: dict[str, AnyArray] = {
        "confidence": batch.column(CONFIDENCE).to_numpy(),
        "correct": labels == truth,
    }
    if RANKED_PROBABILITIES in batch.schema.names:
        posterior, codes = _posterior(batch, truth)
        compared["brier"] = row_brier_scores(posterior, codes)
        compared["surprise"] = row_negative_log_likelihoods(posterior, codes)
    return compared


def _posterior(batch: "pa.RecordBatch", truth: AnyArray) -> tuple[Posterior, AnyArray]:
    """The probabilities of a batch, with codes that hold for this batch alone, and the truth's."""
    probabilities = batch.column(RANKED_PROBABILITIES)
    lengths = probabilities.value_lengths().to_numpy(zero_copy_only=False)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    listed: AnyArray = batch.column(RANKED_LABELS).flatten().to_numpy(zero_copy_only=False)
    labels = listed.astype(str if truth.dtype.kind == "U" else np.int64)
    classes, codes = np.unique(np.concatenate([labels, truth]), return_inverse=True)
    return (
        Posterior(
            indptr,
            codes[: len(labels)],
            probabilities.flatten().to_numpy(zero_copy_only=False),
            len(classes),
        ),
        codes[len(labels) :],
    )


def _check_truth(partition: Partition, truth_path: Path, scored_path: Path) -> None:
    """The scored rows must be those of the truth."""
    with open_parquet(scored_path) as scored, open_parquet(truth_path) as truth:
        n_scored, n_rows = scored.metadata.num_rows, truth.metadata.num_rows
    wrong = partition.first_row + partition.n_rows > n_rows
    wrong |= partition.whole and partition.n_rows != n_rows
    if wrong or n_scored != partition.n_rows:
        raise EmbeddingsFileError(
            f"{truth_path} must have the rows that were scored. It has {n_rows} instead: score "
            "again, or name the files that were scored."
        )
    if truth_path == partition.path:
        partition.check_unchanged()
