"""`nearsure audit`: what is typed."""

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
    Labels,
    LabelsKey,
    Metric,
    Neighbors,
    OptionalModel,
    RecordsFile,
    Rows,
    Table,
    VectorsKey,
)
from nearsure.cli.registering import register

EXAMPLES = (
    "nearsure audit gallery.npz -o suspects.csv",
    "nearsure audit --model birds.sqlite --json",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, audit, *EXAMPLES)


def audit(
    points: Annotated[
        str | None,
        typer.Argument(
            metavar="[GALLERY]",
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings, - for "
            "standard input; or give --model.",
        ),
    ] = None,
    *,
    model: OptionalModel = None,
    labels: Labels = None,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    ids_key: IdsKey = None,
    input_format: InputFormat = None,
    k: Neighbors = "auto",
    metric: Metric = None,
    gallery: Gallery = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    output: RecordsFile = None,
    guard_formulas: GuardFormulas = False,
    as_json: Json = False,
    rows: Rows = 10,
) -> None:
    """What is wrong with a gallery: suspect labels, near-duplicates, confusable and small classes.

    Every point is searched among the others. -o writes all suspect labels, the least believed
    first.
    """
    from nearsure.cli.auditing import AuditRequest, audit_gallery  # noqa: PLC0415
    from nearsure.cli.engine_addresses import engine_options  # noqa: PLC0415
    from nearsure.cli.input_files import Columns  # noqa: PLC0415
    from nearsure.cli.numbers import number_or  # noqa: PLC0415

    audit_gallery(
        AuditRequest(
            points,
            Columns(labels, vectors_key, labels_key, ids_key, format=input_format),
            n_neighbors=number_or("-k", k, ("auto", "all")),
            metric=metric,
            model=model,
            gallery=gallery,
            options=engine_options(engine_option, table=table, collection=collection),
        ),
        output=output,
        guard_formulas=guard_formulas,
        as_json=as_json,
        rows=rows,
    )
