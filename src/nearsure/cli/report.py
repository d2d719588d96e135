"""`nearsure report`: what is typed."""

from pathlib import Path
from typing import Annotated

import typer

from nearsure.cli.options import (
    Collection,
    EngineOption,
    Gallery,
    IdsKey,
    ImagesRoot,
    InputFormat,
    Labels,
    LabelsKey,
    Model,
    PicturesKey,
    Resamples,
    Seed,
    Table,
    VectorsKey,
)
from nearsure.cli.registering import register

EXAMPLES = (
    "nearsure report queries.npz --model model.safetensors -o report.html",
    "nearsure report --model birds.sqlite -o birds.html --json birds.json",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, report, *EXAMPLES)


def report(
    queries: Annotated[
        str | None,
        typer.Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled queries, - for "
            "standard input; without it the gallery's own points are asked, each without itself."
        ),
    ] = None,
    *,
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="HTML file that needs no network.")
    ] = None,
    json_output: Annotated[
        Path | None, typer.Option("--json", help="The same as a JSON file; - for standard output.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the report.")] = None,
    labels: Labels = None,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    ids_key: IdsKey = None,
    pictures_key: PicturesKey = None,
    images_root: ImagesRoot = None,
    gallery_images: Annotated[
        str | None,
        typer.Option(
            help="File of the gallery's embeddings, for the images that it names; an .sqlite "
            "gallery has its own."
        ),
    ] = None,
    input_format: InputFormat = None,
    gallery: Gallery = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    mistakes: Annotated[int, typer.Option(min=0, help="Mistakes that are listed.")] = 20,
    suspects: Annotated[int, typer.Option(min=0, help="Suspect labels that are listed.")] = 50,
    seed: Seed = 0,
    resamples: Resamples = 1000,
) -> None:
    """One HTML file about when to trust a match: accuracy, calibration, thresholds, mistakes."""
    from nearsure.cli.engine_addresses import engine_options  # noqa: PLC0415
    from nearsure.cli.input_files import Columns  # noqa: PLC0415
    from nearsure.cli.reporting import ReportRequest, write_report  # noqa: PLC0415

    write_report(
        ReportRequest(
            queries=queries,
            columns=Columns(labels, vectors_key, labels_key, ids_key, pictures_key, input_format),
            images_root=images_root,
            gallery_images=gallery_images,
            title=title,
            n_mistakes=mistakes,
            n_suspects=suspects,
            seed=seed,
            n_resamples=resamples,
        ),
        model=model,
        gallery=gallery,
        options=engine_options(engine_option, table=table, collection=collection),
        html=output,
        json=json_output,
    )
