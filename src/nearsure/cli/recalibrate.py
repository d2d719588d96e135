"""`nearsure recalibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nearsure.cli import inputs, options, outputs
from nearsure.cli.fit import MODEL_SUFFIX, save_model
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import EmbeddingChunk

# What is promised, as far as it can be, if --precision does not say.
PRECISION = 0.95


def recalibrate(
    queries: Annotated[
        str,
        Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled queries, at least "
            "20 and preferably 100, - for standard input; or a folder of images or a file of "
            "texts, if the model has an encoder. With --choose, the queries need no labels."
        ),
    ],
    *,
    model: options.Model,
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            help="model.safetensors: the recalibrated model. An .sqlite gallery keeps it inside. "
            "With --choose: csv, jsonl, json or parquet file of the queries to label.",
        ),
    ] = None,
    choose: Annotated[
        int | None,
        Option(
            min=1,
            help="Do not fit, but choose this many queries to label, spread over confidence and "
            "classes, each query with the same probability.",
        ),
    ] = None,
    precision: options.Precision = None,
    labels_path: options.Labels = None,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    ids_key: options.IdsKey = None,
    input_format: options.InputFormat = None,
    encoder: options.Encoder = None,
    gallery: options.Gallery = None,
    table: options.Table = None,
    collection: options.Collection = None,
    engine_option: options.EngineOption = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    rows: options.Rows = 20,
    quiet: options.Quiet = False,
) -> None:
    """Adjust confidence to labelled queries that differ from the gallery.

    The gallery's own fit is the prior: a few labels change little, several hundred outweigh it.
    What can be promised then rests on the labelled queries alone. They must be a fair sample of the
    queries to come: drawn at random, or chosen with --choose, and all labelled.

    Example: nearsure recalibrate queries.npz --model model.safetensors --choose 100 -o to_label.csv

    Example: nearsure recalibrate labelled.npz --model model.safetensors -o recalibrated.safetensors
    """
    outputs.set_quiet(quiet)
    settings = inputs.engine_options(engine_option, table=table, collection=collection)
    outputs.check_files(
        {"QUERIES": queries, "--labels": labels_path, "--model": model}, {"--output": output}
    )
    if choose is None:
        _check_output(model, output)
        columns: dict[str, Any] = {"labels_path": labels_path, "labels": "required"}
    else:
        fitting = {"--precision": precision, "--labels": labels_path}
        options.refuse(fitting, ": --choose fits nothing")
        chosen = outputs.choose_format(output, None, as_json=as_json, guard_formulas=False)
        columns = {"labels": "none" if labels_key is None else "optional"}
    columns |= {"vectors_key": vectors_key, "labels_key": labels_key, "ids_key": ids_key}
    columns |= {"format": input_format, "encoder": encoder}
    with (
        inputs.open_model(model, gallery, settings, read_only=choose is not None) as classifier,
        inputs.open_queries(queries, classifier=classifier, **columns) as stream,
    ):
        with outputs.progress("reading", stream.n_rows):
            points = stream.read_all()
        if choose is not None:
            records = _choose(classifier, points, choose, seed)
            if chosen is None:
                outputs.show_records(f"{choose:,} queries to label", records, rows)
            else:
                outputs.write_records([records], output, chosen, guard_formulas=False)
            inputs.end_encoded(stream)
            return
        truth = inputs.match_labels(inputs.labels_of(points), classifier.classes_)
        with outputs.spinner(f"asking {len(truth):,} queries"):
            found = classifier.recalibrate(points.vectors, truth)
            promise = classifier.accept_threshold(
                precision=PRECISION if precision is None else precision
            )
        if output is not None:
            save_model(classifier, output, replace=output.exists())
        else:
            classifier.engine_.notes[inputs.MODEL_NOTE] = classifier.to_bytes()  # type: ignore[union-attr]
    if as_json:
        from nearsure.report.document import plain_number

        outputs.show_json(
            {
                "n_labelled": len(found),
                "n_right": found.n_right,
                "mean_confidence_before": found.mean_before,
                "mean_confidence": found.mean_after,
                "like_gallery": found.like_gallery,
                "threshold": plain_number(promise.threshold) if promise.reached else None,
                "coverage": promise.coverage if promise.reached else None,
                "promised": promise.promised,
                "promise": str(promise),
            }
        )
    else:
        outputs.show_facts("Recalibrated", {"rests on": str(found), "promise": str(promise)})
        outputs.print_written(model if output is None else output)
    inputs.end_encoded(stream)


def _check_output(model: Path, output: Path | None) -> None:
    if inputs.is_sqlite(model):
        options.refuse({"--output": output}, f": {model.name} keeps its fit inside")
    elif output is None:
        raise ConfigError("Name an output file: -o model.safetensors")
    elif output.suffix != MODEL_SUFFIX:
        raise ConfigError(f"--output must end in {MODEL_SUFFIX}. Got {output.name} instead.")


def _choose(
    classifier: "NEDClassifier", points: "EmbeddingChunk", n: int, seed: int
) -> dict[str, Any]:
    """Queries to label, with what they are taken for; names as those of `predict`."""
    chosen = classifier.choose_queries_to_label(points.vectors, n, seed=seed)
    prediction = classifier.predict_with_confidence(points.vectors[chosen])
    columns = {
        "row" if points.ids is None else "id": inputs.names_of(points)[chosen].tolist(),
        "predicted": prediction.labels.tolist(),
        "confidence": prediction.confidence,
    }
    if points.texts is not None:
        columns["text"] = [points.texts[place] for place in chosen.tolist()]
    return columns
