"""`nearsure evaluate` of a fitted classifier."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nearsure.arrays import BoolArray, FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.cli.input_files import Columns, check_dimension, labels_like, labels_of, opened_file
from nearsure.cli.opened_model import opened_model
from nearsure.cli.saying import busy, progress
from nearsure.cli.showing import finite, show_facts, show_json, show_table
from nearsure.decisions import AcceptThreshold
from nearsure.embedding_files import EmbeddingStream
from nearsure.metrics import (
    Interval,
    accuracy,
    area_under_risk_coverage,
    bootstrap_interval,
    calibration_floor,
    error_detection_auroc,
    expected_calibration_error,
    row_brier_scores,
    row_negative_log_likelihoods,
)
from nearsure.report.gallery_facts import members_of_classes
from nearsure.report.headline import LEAST_PROBABILITY
from nearsure.report.plain import share_of
from nearsure.report.truths import codes_in_gallery

TITLES = {
    "accuracy": "Accuracy",
    "mean_confidence": "Mean confidence",
    "ece": "Calibration error (ECE)",
    "brier": "Brier score",
    "nll": "Log loss",
    "aurc": "Area under risk-coverage",
    "error_auroc": "Error detection (AUROC)",
    "known_accuracy": "Accuracy on known classes",
    "unknown_auroc": "Unknown detection (AUROC)",
}
NOT_PERCENT = ("brier", "nll")
ROWS_AT_A_TIME = 8192


@dataclass(frozen=True, eq=False)
class Scores:
    """What remains of each query: 34 bytes.

    Parameters
    ----------
    confidence, brier, loss : array of shape (n,)
        Of the answer, and of all probabilities.
    correct, known : array of shape (n,)
        Whether the answer is right, and whether the gallery has the query's class.
    p_known : array of shape (n,) or None
        Where unknown queries are expected.
    """

    confidence: FloatArray
    brier: FloatArray
    loss: FloatArray
    correct: BoolArray
    known: BoolArray
    p_known: FloatArray | None


def evaluate_file(
    source: str,
    columns: Columns,
    *,
    model: Path,
    gallery: str | None,
    options: Mapping[str, Any],
    precision: float | None,
    seed: int,
    n_resamples: int,
    as_json: bool,
) -> None:
    """Answer labelled queries, and say how good the answers are."""
    with (
        opened_model(model, gallery, options) as classifier,
        opened_file(source, columns, labels="required") as stream,
    ):
        check_dimension(stream, classifier, source)
        scores = scored(classifier, stream)
        threshold = None if precision is None else classifier.accept_threshold(precision=precision)
    with busy("resampling"):
        intervals = intervals_of(scores, seed=seed, n_resamples=n_resamples)
        floor = calibration_floor(scores.confidence, seed=seed, n_simulations=n_resamples)
    accepted = None if threshold is None else accepting(threshold, scores)
    counts = {"n_queries": len(scores.known), "n_unknown": int((~scores.known).sum())}
    if as_json:
        metrics = {
            name: {
                "value": finite(interval.estimate),
                "low": finite(interval.low),
                "high": finite(interval.high),
            }
            for name, interval in intervals.items()
        }
        show_json({**counts, "metrics": metrics, "ece_floor": floor, "threshold": accepted})
        return
    rows = [[TITLES[name], *_cells(name, interval)] for name, interval in intervals.items()]
    rows.insert(3, ["  by chance alone", f"{floor:.2%}", ""])
    unknown = f", {counts['n_unknown']:,} of classes that the gallery lacks"
    title = f"{counts['n_queries']:,} queries{unknown if counts['n_unknown'] else ''}"
    show_table(title, ("", "value", "95% interval"), rows)
    if accepted is not None:
        show_facts("Accepting", {"promised": accepted["sentence"], "measured": _measured(accepted)})


def scored(classifier: NEDClassifier, stream: EmbeddingStream) -> Scores:
    """Answer queries, some at a time, and keep what the metrics need."""
    parts: list[tuple[Any, ...]] = []
    sizes, classes = members_of_classes(classifier), classifier.classes_
    with progress("predicting", stream.n_rows) as advance:
        for chunk in stream.chunks(ROWS_AT_A_TIME):
            prediction = classifier.predict_with_confidence(chunk.vectors)
            truth = labels_like(labels_of(chunk), classes)
            codes = codes_in_gallery(truth, classes, sizes)
            posterior = prediction.posterior
            parts.append(
                (
                    posterior.confidence,
                    row_brier_scores(posterior, codes),
                    row_negative_log_likelihoods(posterior, codes, floor=LEAST_PROBABILITY),
                    posterior.labels == codes,
                    codes < len(classes),
                    prediction.p_known,
                )
            )
            advance(len(chunk))
    columns: list[Any] = [
        None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)
    ]
    return Scores(*columns)


def intervals_of(scores: Scores, *, seed: int, n_resamples: int) -> dict[str, Interval]:
    """Each number with its bootstrap interval, by the names of the report's document."""
    resampled = partial(bootstrap_interval, seed=seed, n_resamples=n_resamples)
    confidence, correct, known = scores.confidence, scores.correct, scores.known
    intervals = {
        "accuracy": resampled(accuracy, correct),
        "mean_confidence": resampled(np.mean, confidence, bounds=(0.0, 1.0)),
        "ece": resampled(expected_calibration_error, confidence, correct),
        "brier": resampled(np.mean, scores.brier, bounds=(0.0, 2.0)),
        "nll": resampled(np.mean, scores.loss, bounds=(0.0, -np.log(LEAST_PROBABILITY))),
        "aurc": resampled(area_under_risk_coverage, confidence, correct),
        "error_auroc": resampled(error_detection_auroc, confidence, correct),
    }
    if known.any() and not known.all():
        intervals["known_accuracy"] = resampled(accuracy, correct[known])
        if scores.p_known is not None:
            intervals["unknown_auroc"] = resampled(error_detection_auroc, scores.p_known, known)
    return intervals


def accepting(threshold: AcceptThreshold, scores: Scores) -> dict[str, Any]:
    """What a threshold, chosen on the gallery, does to these queries."""
    accepted = threshold.accepts(scores.confidence)
    n_accepted, n_right = int(accepted.sum()), int(scores.correct[accepted].sum())
    right = share_of(n_right, n_accepted) if n_accepted else None
    return {
        "threshold": finite(threshold.threshold),
        "sentence": str(threshold),
        "accepted": n_accepted,
        "coverage": n_accepted / len(scores.correct),
        "precision": None
        if right is None
        else {"value": right.value, "low": right.low, "high": right.high},
    }


def _measured(accepted: dict[str, Any]) -> str:
    right = accepted["precision"]
    if right is None:
        return "no query is accepted"
    return (
        f"{accepted['coverage']:.1%} of these queries are accepted, {right['value']:.2%} of them "
        f"right ({right['low']:.2%} to {right['high']:.2%})"
    )


def _cells(name: str, interval: Interval) -> list[str]:
    if finite(interval.estimate) is None:
        return ["undefined", ""]
    spec = ".4f" if name in NOT_PERCENT else ".2%"
    value = format(interval.estimate, spec)
    if finite(interval.low) is None or finite(interval.high) is None:
        return [value, ""]
    return [value, f"{interval.low:{spec}} to {interval.high:{spec}}"]
