"""`nearsure predict`: what is typed."""

from typing import Annotated

import typer

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
from nearsure.cli.registering import register

EXAMPLES = (
    "nearsure predict queries.npz --model model.safetensors --precision 0.99",
    "cat queries.jsonl | nearsure predict - --model birds.sqlite --neighbors 5 --json",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, predict, *EXAMPLES)


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
    from nearsure.cli.engine_addresses import engine_options  # noqa: PLC0415
    from nearsure.cli.input_files import Columns  # noqa: PLC0415
    from nearsure.cli.predicting import Shown, predict_file  # noqa: PLC0415
    from nearsure.cli.records import Destination  # noqa: PLC0415

    predict_file(
        queries,
        Columns(
            vectors_key=vectors_key, labels_key=labels_key, ids_key=ids_key, format=input_format
        ),
        model=model,
        gallery=gallery,
        options=engine_options(engine_option, table=table, collection=collection),
        shown=Shown(top, neighbors, precision, threshold),
        destination=Destination.chosen(
            output,
            output_format,
            as_json=as_json,
            rows=rows,
            guard_formulas=guard_formulas,
        ),
    )
