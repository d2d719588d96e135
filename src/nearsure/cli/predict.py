"""`nearsure predict`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearsure.cli.console import Advance, progress, tell
from nearsure.cli.files import (
    Columns,
    Destination,
    check_dimension,
    check_files,
    names_of,
    open_file,
)
from nearsure.cli.models import engine_options, open_model
from nearsure.cli.options import (
    Collection,
    EngineOption,
    Gallery,
    GuardFormulas,
    IdsKey,
    InputFormat,
    Json,
    LabelsKey,
    Model,
    OutputFormat,
    Precision,
    RecordsFile,
    Rows,
    Table,
    VectorsKey,
)
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray, FloatArray
    from nearsure.classifier import NEDClassifier, Prediction
    from nearsure.embedding_files import EmbeddingChunk

ROWS_AT_A_TIME = 8192
EXAMPLES = (
    "nearsure predict queries.npz --model model.safetensors --precision 0.99",
    "cat queries.jsonl | nearsure predict - --model birds.sqlite --neighbors 5 --json",
)


def predict(
    queries: Annotated[
        str,
        typer.Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of embeddings, - for standard "
            "input."
        ),
    ],
    *,
    model: Model,
    precision: Precision = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Accept answers of at least this confidence."),
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, help="So many classes of each query, with probabilities.")
    ] = 0,
    neighbors: Annotated[
        int, typer.Option(min=0, help="So many neighbours of each query, as evidence.")
    ] = 0,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    ids_key: IdsKey = None,
    input_format: InputFormat = None,
    gallery: Gallery = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    output: RecordsFile = None,
    output_format: OutputFormat = None,
    guard_formulas: GuardFormulas = False,
    as_json: Json = False,
    rows: Rows = 20,
) -> None:
    """Label queries, and say how sure that is.

    Queries are streamed: a file may be larger than memory. On a terminal the first ones are shown.

    Labels in the file are left aside; --labels-key names their column, lest it be taken for a part
    of the vector. "accepted" is about the confidence alone, whose promise counts unknown queries
    among the wrong answers: an accepted answer may have the verdict "unknown".
    """
    columns = Columns(
        vectors_key=vectors_key, labels_key=labels_key, ids_key=ids_key, format=input_format
    )
    options = engine_options(engine_option, table=table, collection=collection)
    destination = Destination.from_options(
        output, output_format, as_json=as_json, rows=rows, guard_formulas=guard_formulas
    )
    if precision is not None and threshold is not None:
        raise ConfigError("Give --precision or --threshold, not both.")
    check_files({"QUERIES": queries, "--model": model}, {"--output": output})
    with (
        open_model(model, gallery, options) as classifier,
        open_file(queries, columns, labels="none" if labels_key is None else "optional") as stream,
    ):
        check_dimension(stream, classifier, queries)
        if precision is not None:
            chosen = classifier.accept_threshold(precision=precision)
            tell(str(chosen))
            threshold = chosen.threshold
        n_rows = rows if destination.is_table else ROWS_AT_A_TIME
        answers = (
            _answer(classifier, chunk, threshold=threshold, top=top, n_neighbors=neighbors)
            for chunk in stream.chunks(n_rows)
        )
        if destination.is_table:
            first = next(answers)
            n_shown = len(first["label"])
            which = "The first query" if n_shown == 1 else f"The first {n_shown} queries"
            destination.write(f"{which}; -o FILE writes all", [first])
            return
        with progress("predicting", stream.n_rows) as advance:
            destination.write("", _count(answers, advance))


def _count(answers: Iterator[dict[str, Any]], advance: Advance) -> Iterator[dict[str, Any]]:
    for part in answers:
        yield part
        advance(len(part["label"]))


def _answer(
    classifier: "NEDClassifier",
    chunk: "EmbeddingChunk",
    *,
    threshold: float | None,
    top: int,
    n_neighbors: int,
) -> dict[str, Any]:
    """Columns of some queries; names are those of the REST API's answers."""
    prediction = classifier.predict_with_confidence(chunk.vectors)
    columns: dict[str, Any] = {
        "row" if chunk.ids is None else "id": names_of(chunk).tolist(),
        "label": _labels(prediction),
        "confidence": prediction.confidence,
    }
    if threshold is not None:
        columns["accepted"] = (prediction.confidence >= threshold) & (
            prediction.neighbors.counts > 0
        )
    if prediction.p_known is not None and prediction.verdicts is not None:
        columns["p_known"] = prediction.p_known
        columns["verdict"] = prediction.verdicts.tolist()
    if top:
        columns["classes"] = _classes(prediction, classifier.classes_, top)
    if n_neighbors:
        shares = classifier.vote_shares(prediction.neighbors)
        columns["neighbors"] = _neighbors(prediction, classifier.classes_, shares, n_neighbors)
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
    prediction: "Prediction", classes: "AnyArray", shares: "FloatArray", n: int
) -> list[list[dict[str, Any]]]:
    import numpy as np

    found = prediction.neighbors.first(min(n, prediction.neighbors.k))
    ids = np.asarray(found.ids).tolist()
    labels = classes[found.labels].tolist()
    sq_distances, shares_listed = found.sq_distances.tolist(), shares.tolist()
    return [
        [
            {
                "id": ids[row][place],
                "label": labels[row][place],
                "sq_distance": sq_distances[row][place],
                "share": shares_listed[row][place],
            }
            for place in range(count)
        ]
        for row, count in enumerate(found.counts.tolist())
    ]
