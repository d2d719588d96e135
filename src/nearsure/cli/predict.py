"""`nearsure predict`."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, starmap
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nearsure.cli import options, outputs
from nearsure.cli.inputs import end_encoded, engine_options, names_of, open_model, open_queries
from nearsure.cli.outputs import (
    Advance,
    check_files,
    choose_format,
    notice,
    progress,
    show_records,
    write_records,
)
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray, FloatArray
    from nearsure.classifier import NEDClassifier, Prediction
    from nearsure.decisions import AcceptThreshold
    from nearsure.embedding_files import EmbeddingChunk

ROWS_AT_A_TIME = 8192
# Enough to compare them with the gallery, however few are shown.
ROWS_SHOWN = 500
# Queries that a promise is adjusted to.
LARGEST_SAMPLE = 5000


def predict(
    queries: Annotated[
        list[str],
        Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of embeddings, - for standard "
            "input; or images, folders of images or files of texts, if the model has an "
            "encoder."
        ),
    ],
    *,
    model: options.Model,
    precision: options.Precision = None,
    threshold: Annotated[
        float | None, Option(min=0.0, max=1.0, help="Accept answers with at least this confidence.")
    ] = None,
    top: Annotated[
        int, Option(min=0, help="Number of classes to list for each query, with probabilities.")
    ] = 0,
    neighbors: Annotated[
        int, Option(min=0, help="Number of neighbours to list for each query.")
    ] = 0,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    ids_key: options.IdsKey = None,
    input_format: options.InputFormat = None,
    encoder: options.Encoder = None,
    gallery: options.Gallery = None,
    table: options.Table = None,
    collection: options.Collection = None,
    engine_option: options.EngineOption = None,
    output: options.RecordsFile = None,
    output_format: options.OutputFormat = None,
    guard_formulas: options.GuardFormulas = False,
    as_json: options.Json = False,
    rows: options.Rows = 20,
    quiet: options.Quiet = False,
) -> None:
    """Label queries, with calibrated confidence.

    Queries are streamed: a file may be larger than memory. On a terminal the first ones are shown.

    Labels in the file are ignored; --labels-key names their column, so that it is not taken for a
    part of the vector. "accepted" depends on the confidence alone; an accepted answer may still
    have the verdict "unknown", and unknown queries count as wrong answers in the promise.

    The first queries are compared with the gallery. If they differ, the promise of --precision is
    adjusted to them, or withdrawn: nothing is accepted then, unless --threshold overrides it.

    Example: nearsure predict queries.npz --model model.safetensors --precision 0.99

    Example: nearsure predict photos --model birds.sqlite -o answers.csv

    Example: nearsure predict one.jpg two.jpg --model birds.sqlite

    Example: cat queries.jsonl | nearsure predict - --model birds.sqlite --neighbors 5 --json
    """
    outputs.set_quiet(quiet)
    settings = engine_options(engine_option, table=table, collection=collection)
    chosen = choose_format(output, output_format, as_json=as_json, guard_formulas=guard_formulas)
    if precision is not None and threshold is not None:
        raise ConfigError("Give --precision or --threshold, not both.")
    options.check_precision(precision)
    for source in queries:
        check_files({"QUERIES": source, "--model": model}, {"--output": output})
    with (
        open_model(model, gallery, settings) as classifier,
        open_queries(
            *queries,
            classifier=classifier,
            vectors_key=vectors_key,
            labels_key=labels_key,
            ids_key=ids_key,
            format=input_format,
            encoder=encoder,
            labels="none" if labels_key is None else "optional",
        ) as stream,
    ):
        chunks = stream.chunks(max(rows, ROWS_SHOWN) if chosen is None else ROWS_AT_A_TIME)
        answered = ((chunk, classifier.predict_with_confidence(chunk.vectors)) for chunk in chunks)
        with progress("predicting", stream.n_rows) as advance:
            first = next(answered)
            if precision is not None:
                promised = _promise(classifier, precision, *first)
                notice(str(promised))
                threshold = promised.threshold
            list_answers = partial(
                _list_answers, classifier, threshold=threshold, top=top, n_neighbors=neighbors
            )
            if chosen is not None:
                answers = _count(starmap(list_answers, chain([first], answered)), advance)
                write_records(answers, output, chosen, guard_formulas=guard_formulas)
        if chosen is None:
            shown = list_answers(*first)
            n_shown = min(rows, len(shown["label"]))
            which = "The first query" if n_shown == 1 else f"The first {n_shown} queries"
            show_records(f"{which}; -o FILE writes all", shown, rows)
        end_encoded(stream)


def _promise(
    classifier: "NEDClassifier", precision: float, chunk: "EmbeddingChunk", found: "Prediction"
) -> "AcceptThreshold":
    """The promise for queries like the gallery, or for these if they differ."""
    from nearsure.drift import FEWEST

    alike = found.differences == () or len(chunk) < FEWEST
    queries = None if alike else chunk.vectors[:: -(-len(chunk) // LARGEST_SAMPLE)]
    return classifier.accept_threshold(precision=precision, queries=queries)


def _count(answers: Iterable[dict[str, Any]], advance: Advance) -> Iterator[dict[str, Any]]:
    for part in answers:
        yield part
        advance(len(part["label"]))


def _list_answers(
    classifier: "NEDClassifier",
    chunk: "EmbeddingChunk",
    prediction: "Prediction",
    *,
    threshold: float | None,
    top: int,
    n_neighbors: int,
) -> dict[str, Any]:
    """Columns of some queries; names are those of the REST API's answers."""
    columns: dict[str, Any] = {
        "row" if chunk.ids is None else "id": names_of(chunk).tolist(),
        "label": _labels(prediction),
        "confidence": prediction.confidence,
    }
    if chunk.texts is not None:
        columns["text"] = chunk.texts
    if threshold is not None:
        columns["accepted"] = (prediction.confidence >= threshold) & (
            prediction.neighbors.counts > 0
        )
    if prediction.p_known is not None:
        columns["p_known"] = prediction.p_known
    if prediction.verdicts is not None:
        columns["verdict"] = prediction.verdicts.tolist()
    if top:
        columns["classes"] = _classes(prediction, classifier.classes_, top)
    if n_neighbors:
        from nearsure.report.document import plain_number

        support = classifier.support(prediction)
        if support.head is not None:
            columns["p_neighbors"] = support.neighbors
            columns["p_head"] = [plain_number(p) for p in support.head.tolist()]
        columns["neighbors"] = _neighbors(prediction, classifier, support.shares, n_neighbors)
    return columns


def _labels(prediction: "Prediction") -> list[Any]:
    """Labels; None for a query that found no neighbour."""
    import numpy as np

    labels: list[Any] = prediction.labels.tolist()
    for row in np.flatnonzero(prediction.neighbors.counts == 0):
        labels[row] = None
    return labels


def _classes(prediction: "Prediction", classes: "AnyArray", n: int) -> list[list[dict[str, Any]]]:
    codes, probabilities = prediction.posterior.top(n)
    return [
        [
            {"label": label, "probability": probability}
            for code, label, probability in zip(row, classes[row].tolist(), own, strict=True)
            if code >= 0
        ]
        for row, own in zip(codes, probabilities.tolist(), strict=True)
    ]


def _neighbors(
    prediction: "Prediction", classifier: "NEDClassifier", shares: "FloatArray", n: int
) -> list[list[dict[str, Any]]]:
    import numpy as np

    from nearsure.report.answers import texts_of

    found = prediction.neighbors.first(min(n, prediction.neighbors.k))
    ids = np.asarray(found.ids).tolist()
    has_texts = getattr(classifier.engine_, "has_texts", False)
    texts = texts_of(classifier, np.unique(np.asarray(found.ids)))
    labels = classifier.classes_[found.labels].tolist()
    sq_distances, shares_listed = found.sq_distances.tolist(), shares.tolist()
    return [
        [
            {
                "id": ids[row][place],
                "label": labels[row][place],
                "sq_distance": sq_distances[row][place],
                "share": shares_listed[row][place],
                **({"text": texts.get(ids[row][place])} if has_texts else {}),
            }
            for place in range(count)
        ]
        for row, count in enumerate(found.counts.tolist())
    ]
