"""`nearsure evaluate` of a fitted classifier."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.cli.checked_files import check_files
from nearsure.cli.input_files import Columns, check_dimension, labels_of, opened_file
from nearsure.cli.opened_model import opened_model
from nearsure.cli.saying import busy, progress, tell
from nearsure.cli.showing import finite, show_facts, show_json, show_table
from nearsure.decisions import AcceptThreshold
from nearsure.embedding_files import EmbeddingStream
from nearsure.metrics import (
    area_under_risk_coverage,
    bootstrap_interval,
    calibration_floor,
    error_detection_auroc,
    expected_calibration_error,
    row_brier_scores,
    row_negative_log_likelihoods,
)
from nearsure.report.document import Estimate
from nearsure.report.gallery_facts import members_of_classes
from nearsure.report.headline import LEAST_PROBABILITY
from nearsure.report.own_points import nearly_found
from nearsure.report.plain import estimate_of, share_of
from nearsure.report.remarks import on_own_points
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
    """What remains of each query: 35 bytes.

    Parameters
    ----------
    confidence, brier, loss : array of shape (n,)
        Of the answer, and of all probabilities.
    correct, known : array of shape (n,)
        Whether the answer is right, and whether the gallery has the query's class.
    p_known : array of shape (n,) or None
        Where unknown queries are expected.
    found_itself : array of shape (n,)
        Whether it looks like a point of the gallery.
    """

    confidence: FloatArray
    brier: FloatArray
    loss: FloatArray
    correct: BoolArray
    known: BoolArray
    p_known: FloatArray | None
    found_itself: BoolArray


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
    check_files({"EMBEDDINGS": source, "--model": model}, {})
    with (
        opened_model(model, gallery, options) as classifier,
        opened_file(source, columns, labels="required") as stream,
    ):
        check_dimension(stream, classifier, source)
        scores = scored(classifier, stream)
        threshold = None if precision is None else classifier.accept_threshold(precision=precision)
    _warn(scores)
    with busy("resampling"):
        estimates = estimates_of(scores, seed=seed, n_resamples=n_resamples)
        floor = calibration_floor(scores.confidence, seed=seed, n_simulations=n_resamples)
    accepted = None if threshold is None else accepting(threshold, scores)
    counts = {"n_queries": len(scores.known), "n_unknown": int((~scores.known).sum())}
    if as_json:
        metrics = {
            name: {"value": one.value, "low": one.low, "high": one.high}
            for name, one in estimates.items()
        }
        show_json({**counts, "metrics": metrics, "ece_floor": floor, "threshold": accepted})
        return
    rows = [[TITLES[name], *_cells(name, one)] for name, one in estimates.items()]
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
            truth = one_kind(labels_of(chunk), classes)
            codes = codes_in_gallery(*truth, sizes)
            posterior = prediction.posterior
            parts.append(
                (
                    posterior.confidence,
                    row_brier_scores(posterior, codes),
                    row_negative_log_likelihoods(posterior, codes, floor=LEAST_PROBABILITY),
                    posterior.labels == codes,
                    codes < len(classes),
                    prediction.p_known,
                    nearly_found(prediction.neighbors, codes),
                )
            )
            advance(len(chunk))
    columns: list[Any] = [
        None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)
    ]
    return Scores(*columns)


def one_kind(labels: AnyArray, classes: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Labels and classes that can be compared: as texts, unless both are numbers.

    Files write numbers as texts and texts as numbers, and may mix them; a class that the gallery
    lacks is no mistake.

    Examples
    --------
    >>> one_kind(np.array(["7", "owl"]), np.array([7, 9]))
    (array(['7', 'owl'], dtype='<U3'), array(['7', '9'], dtype='<U21'))
    """
    if all(array.dtype.kind in "biuf" for array in (labels, classes)):
        return labels, classes
    return labels.astype(str), classes.astype(str)


def estimates_of(scores: Scores, *, seed: int, n_resamples: int) -> dict[str, Estimate]:
    """Each number with its interval, by the names of the report's document and as it has them."""

    def resampled(
        metric: Callable[..., float],
        *data: ArrayLike,
        bounds: tuple[float, float] | None = None,
    ) -> Estimate:
        return estimate_of(
            bootstrap_interval(metric, *data, seed=seed, n_resamples=n_resamples, bounds=bounds)
        )

    confidence, correct, known = scores.confidence, scores.correct, scores.known
    estimates = {
        "accuracy": share_of(int(correct.sum()), len(correct)),
        "mean_confidence": resampled(np.mean, confidence, bounds=(0.0, 1.0)),
        "ece": resampled(expected_calibration_error, confidence, correct),
        "brier": resampled(np.mean, scores.brier, bounds=(0.0, 2.0)),
        "nll": resampled(np.mean, scores.loss, bounds=(0.0, -np.log(LEAST_PROBABILITY))),
        "aurc": resampled(area_under_risk_coverage, confidence, correct),
        "error_auroc": resampled(error_detection_auroc, confidence, correct),
    }
    if known.any() and not known.all():
        estimates["known_accuracy"] = share_of(int(correct[known].sum()), int(known.sum()))
        if scores.p_known is not None:
            estimates["unknown_auroc"] = resampled(error_detection_auroc, scores.p_known, known)
    return estimates


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


def _warn(scores: Scores) -> None:
    if not scores.known.any():
        tell(
            "warning: no query is of a class of the gallery, so that no answer can be right. Are "
            "labels written alike?"
        )
    own_points = on_own_points(scores.found_itself)
    if own_points is not None:
        tell(f"warning: {own_points}")


def _measured(accepted: dict[str, Any]) -> str:
    right = accepted["precision"]
    if right is None:
        return "no query is accepted"
    return (
        f"{accepted['coverage']:.1%} of these queries are accepted, {right['value']:.2%} of them "
        f"right ({right['low']:.2%} to {right['high']:.2%})"
    )


def _cells(name: str, one: Estimate) -> list[str]:
    if one.value is None:
        return ["undefined", ""]
    spec = ".4f" if name in NOT_PERCENT else ".2%"
    value = format(one.value, spec)
    if one.low is None or one.high is None:
        return [value, ""]
    return [value, f"{one.low:{spec}} to {one.high:{spec}}"]
