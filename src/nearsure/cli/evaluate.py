"""`nearsure evaluate`."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from nearsure.cli import options, outputs
from nearsure.cli.inputs import (
    end_encoded,
    engine_options,
    labels_of,
    open_model,
    open_queries,
)
from nearsure.cli.outputs import progress, show_facts, show_json, show_table, spinner, tell
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from nearsure.arrays import AnyArray, BoolArray, FloatArray
    from nearsure.classifier import NEDClassifier
    from nearsure.decisions import AcceptThreshold
    from nearsure.embedding_files import EmbeddingStream
    from nearsure.report.document import Estimate

ROWS_AT_A_TIME = 8192
# Queries that a promise is adjusted to.
LARGEST_SAMPLE = 5000


def evaluate(
    embeddings: Annotated[
        str,
        Argument(
            metavar="QUERIES",
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled queries, - for "
            "standard input; or a folder of images or a file of texts, with labels, if the model "
            "has an encoder.",
        ),
    ],
    *,
    model: options.OptionalModel = None,
    labels_path: options.Labels = None,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    input_format: options.InputFormat = None,
    encoder: options.Encoder = None,
    gallery: options.Gallery = None,
    table: options.Table = None,
    collection: options.Collection = None,
    engine_option: options.EngineOption = None,
    precision: options.Precision = None,
    seed: options.Seed = 0,
    resamples: options.Resamples = 1000,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure accuracy and calibration of a fitted model on labelled queries.

    Queries are streamed: a file may be larger than memory. To compare rules
    without a model, use nearsure compare.

    Example: nearsure evaluate queries.npz --model model.safetensors --precision 0.99
    """
    outputs.set_quiet(quiet)
    if model is None:
        raise ConfigError(
            "--model must be given: evaluate measures a fitted model on labelled queries. To "
            "compare rules without one, as the paper's tables do: nearsure compare QUERIES"
        )
    options.check_precision(precision)
    engine = engine_options(engine_option, table=table, collection=collection)
    outputs.check_files({"EMBEDDINGS": embeddings, "--model": model}, {})
    columns: dict[str, Any] = {
        "labels_path": labels_path,
        "vectors_key": vectors_key,
        "labels_key": labels_key,
        "format": input_format,
        "encoder": encoder,
        "labels": "required",
    }
    with (
        open_model(model, gallery, engine) as classifier,
        open_queries(embeddings, classifier=classifier, **columns) as stream,
    ):
        scores, unlike = _score(classifier, stream)
        threshold = None
        if precision is not None:
            threshold = classifier.accept_threshold(precision=precision, queries=unlike)
    _warn(scores)
    _show(scores, threshold, seed=seed, n_resamples=resamples, as_json=as_json)
    end_encoded(stream)


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

    confidence: "FloatArray"
    brier: "FloatArray"
    loss: "FloatArray"
    correct: "BoolArray"
    known: "BoolArray"
    p_known: "FloatArray | None"
    found_itself: "BoolArray"


def _show(
    scores: Scores,
    threshold: "AcceptThreshold | None",
    *,
    seed: int,
    n_resamples: int,
    as_json: bool,
) -> None:
    from nearsure.metrics import calibration_floor
    from nearsure.report.sections import TITLES

    with spinner("resampling"):
        estimates = _estimate(scores, seed=seed, n_resamples=n_resamples)
        floor = calibration_floor(scores.confidence, seed=seed, n_simulations=n_resamples)
    accepted = None if threshold is None else _apply(threshold, scores)
    counts = {"n_queries": len(scores.known), "n_unknown": int((~scores.known).sum())}
    if as_json:
        metrics = {name: asdict(one) for name, one in estimates.items()}
        show_json({**counts, "metrics": metrics, "ece_floor": floor, "threshold": accepted})
        return
    rows = [[TITLES[name], *_cells(name, one)] for name, one in estimates.items()]
    rows.insert(3, ["  by chance alone", f"{floor:.2%}", ""])
    unknown = f", {counts['n_unknown']:,} of classes that the gallery lacks"
    title = f"{counts['n_queries']:,} queries{unknown if counts['n_unknown'] else ''}"
    show_table(title, ("", "value", "95% interval"), rows)
    if accepted is not None:
        show_facts("Accepting", {"promised": accepted["sentence"], "measured": _describe(accepted)})


def _score(
    classifier: "NEDClassifier", stream: "EmbeddingStream"
) -> "tuple[Scores, AnyArray | None]":
    """Answer queries, some at a time, and keep what the metrics need.

    Returns
    -------
    scores : Scores
    unlike : array of shape (n, n_features) or None
        Some queries of the first chunk that is not like the gallery; None if all are.
    """
    import numpy as np

    from nearsure.drift import FEWEST
    from nearsure.metrics import row_brier_scores, row_negative_log_likelihoods
    from nearsure.report.answers import codes_in_gallery, nearly_found
    from nearsure.report.sections import LEAST_PROBABILITY

    parts: list[tuple[Any, ...]] = []
    unlike: AnyArray | None = None
    sizes, classes = classifier.class_counts_, classifier.classes_
    with progress("predicting", stream.n_rows) as advance:
        for chunk in stream.chunks(ROWS_AT_A_TIME):
            prediction = classifier.predict_with_confidence(chunk.vectors)
            alike = prediction.differences == () or len(chunk) < FEWEST
            if unlike is None and not alike:
                unlike = chunk.vectors[:: -(-len(chunk) // LARGEST_SAMPLE)]
            truth = comparable_labels(labels_of(chunk), classes)
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
    return Scores(*columns), unlike


def comparable_labels(labels: "AnyArray", classes: "AnyArray") -> "tuple[AnyArray, AnyArray]":
    """Labels and classes that can be compared: as texts, unless both are numbers.

    Files write numbers as texts and texts as numbers, and may mix them; a class that the gallery
    lacks is no mistake.

    Examples
    --------
    >>> import numpy as np
    >>> comparable_labels(np.array(["7", "owl"]), np.array([7, 9]))
    (array(['7', 'owl'], dtype='<U3'), array(['7', '9'], dtype='<U21'))
    """
    if all(array.dtype.kind in "biuf" for array in (labels, classes)):
        return labels, classes
    return labels.astype(str), classes.astype(str)


def _estimate(scores: Scores, *, seed: int, n_resamples: int) -> "dict[str, Estimate]":
    """Metrics with intervals, named and computed as in the report's document."""
    import numpy as np

    from nearsure.metrics import (
        area_under_risk_coverage,
        bootstrap_interval,
        debiased_calibration_error,
        error_detection_auroc,
        expected_calibration_error,
    )
    from nearsure.report.document import Estimate, estimate_of, share_of
    from nearsure.report.sections import LEAST_PROBABILITY

    def resampled(
        metric: Callable[..., float],
        *data: "ArrayLike",
        bounds: tuple[float, float] | None = None,
    ) -> "Estimate":
        return estimate_of(
            bootstrap_interval(metric, *data, seed=seed, n_resamples=n_resamples, bounds=bounds)
        )

    confidence, correct, known = scores.confidence, scores.correct, scores.known
    estimates = {
        "accuracy": share_of(int(correct.sum()), len(correct)),
        "mean_confidence": resampled(np.mean, confidence, bounds=(0.0, 1.0)),
        "ece": Estimate(expected_calibration_error(confidence, correct)),
        "debiased_ece": resampled(debiased_calibration_error, confidence, correct),
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


def _apply(threshold: "AcceptThreshold", scores: Scores) -> dict[str, Any]:
    """What a threshold, chosen on the gallery, does to these queries."""
    from nearsure.report.document import plain_number, share_of

    accepted = threshold.accepts(scores.confidence)
    n_accepted, n_right = int(accepted.sum()), int(scores.correct[accepted].sum())
    right = share_of(n_right, n_accepted) if n_accepted else None
    return {
        "threshold": plain_number(threshold.threshold),
        "promise": threshold.state,
        "sentence": str(threshold),
        "accepted": n_accepted,
        "coverage": n_accepted / len(scores.correct),
        "precision": None if right is None else asdict(right),
    }


def _warn(scores: Scores) -> None:
    from nearsure.report.remarks import on_own_points

    if not scores.known.any():
        tell(
            "warning: no query is of a class of the gallery, so that no answer can be right. Are "
            "labels written alike?"
        )
    own_points = on_own_points(scores.found_itself)
    if own_points is not None:
        tell(f"warning: {own_points}")


def _describe(accepted: dict[str, Any]) -> str:
    right = accepted["precision"]
    if right is None:
        return "no query is accepted"
    return (
        f"{accepted['coverage']:.1%} of these queries are accepted, {right['value']:.2%} of them "
        f"right ({right['low']:.2%} to {right['high']:.2%})"
    )


def _cells(name: str, one: "Estimate") -> list[str]:
    from nearsure.report.sections import NOT_IN_PERCENT

    if one.value is None:
        return ["undefined", ""]
    spec = ".4f" if name in NOT_IN_PERCENT else ".2%"
    value = format(one.value, spec)
    if one.low is None or one.high is None:
        return [value, ""]
    return [value, f"{one.low:{spec}} to {one.high:{spec}}"]
