"""`nearsure evaluate`: what is typed."""

from pathlib import Path
from typing import Annotated

import typer

from nearsure.cli.options import (
    Collection,
    EngineOption,
    InputFormat,
    Json,
    Labels,
    LabelsKey,
    OptionalModel,
    Precision,
    Resamples,
    Seed,
    Table,
    VectorsKey,
)
from nearsure.cli.registering import register
from nearsure.errors import ConfigError

EXAMPLES = (
    "nearsure evaluate queries.npz --model model.safetensors --precision 0.99",
    (
        "nearsure evaluate sentences.npz --vectors-key test_x --labels-key test_y "
        "--gallery-vectors-key train_x --gallery-labels-key train_y"
    ),
)
TABLES = "The paper's tables, without --model"


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, evaluate, *EXAMPLES)


def evaluate(
    embeddings: Annotated[
        str,
        typer.Argument(
            metavar="QUERIES",
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled queries, - for "
            "standard input.",
        ),
    ],
    *,
    model: OptionalModel = None,
    labels: Labels = None,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    input_format: InputFormat = None,
    gallery: Annotated[
        str | None,
        typer.Option(
            help="File of the gallery, if it is another one. With --model: address of the engine "
            "that holds the points, if the model does not."
        ),
    ] = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    precision: Precision = None,
    seed: Seed = 0,
    resamples: Resamples = 1000,
    as_json: Json = False,
    gallery_labels: Annotated[
        Path | None, typer.Option(help="File of its labels.", rich_help_panel=TABLES)
    ] = None,
    gallery_vectors_key: Annotated[
        str | None, typer.Option(help="Its vectors.", rich_help_panel=TABLES)
    ] = None,
    gallery_labels_key: Annotated[
        str | None, typer.Option(help="Its labels.", rich_help_panel=TABLES)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the data, in titles.", rich_help_panel=TABLES)
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="Neighbours; 50 by default.", rich_help_panel=TABLES),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the report.", rich_help_panel=TABLES),
    ] = None,
) -> None:
    """How good answers and their confidence are, on labelled queries.

    With --model: of a fitted classifier, streamed, so that a file may be larger than memory.

    Without: the paper's tables and figures, rules side by side. Without a gallery, every point is
    searched among the others, and half of the points among the other half.
    """
    if model is None:
        _refuse("which --model has", precision=precision, json=as_json or None, table=table)
        _refuse("which --model has", collection=collection, engine_option=engine_option)
        _refuse("which --model has", input_format=input_format)
        from nearsure.cli.paper_tables import GivenGallery, write_tables  # noqa: PLC0415

        write_tables(
            embeddings,
            labels=labels,
            vectors_key=vectors_key,
            labels_key=labels_key,
            gallery=GivenGallery(gallery, gallery_labels, gallery_vectors_key, gallery_labels_key),
            name=name,
            k=50 if k is None else k,
            seed=seed,
            n_resamples=resamples,
            output=output,
        )
        return
    of_tables = "which is of the tables without --model"
    _refuse(of_tables, gallery_labels=gallery_labels, gallery_vectors_key=gallery_vectors_key)
    _refuse(of_tables, gallery_labels_key=gallery_labels_key, name=name, output=output)
    _refuse(of_tables, k=k)
    from nearsure.cli.engine_addresses import engine_options  # noqa: PLC0415
    from nearsure.cli.evaluating import evaluate_file  # noqa: PLC0415
    from nearsure.cli.input_files import Columns  # noqa: PLC0415

    evaluate_file(
        embeddings,
        Columns(labels, vectors_key, labels_key, format=input_format),
        model=model,
        gallery=gallery,
        options=engine_options(engine_option, table=table, collection=collection),
        precision=precision,
        seed=seed,
        n_resamples=resamples,
        as_json=as_json,
    )


def _refuse(why: str, **options: object) -> None:
    """Nothing that was typed is ignored."""
    for name, value in options.items():
        if value is not None:
            option = "-k" if name == "k" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} must be left out here, {why}.")
