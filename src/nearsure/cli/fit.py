"""`nearsure fit`: what is typed."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from nearsure.cli.options import (
    ENGINE,
    FITTING,
    Calibration,
    Collection,
    EngineOption,
    IdsKey,
    ImagesRoot,
    InputFormat,
    Json,
    Labels,
    LabelsKey,
    Metric,
    Neighbors,
    PicturesKey,
    Rule,
    Seed,
    Table,
    VectorsKey,
)
from nearsure.cli.registering import register

EXAMPLES = (
    "nearsure fit gallery.npz -o model.safetensors",
    "nearsure fit birds.parquet --ids-key name --metric cosine -o birds.sqlite",
    "nearsure fit postgres --table birds -o birds.safetensors",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, fit, *EXAMPLES)


def fit(
    gallery: Annotated[
        str,
        typer.Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings, - for "
            "standard input; or a gallery that is there already, fitted where it is: "
            "gallery.sqlite, postgresql://..., https://..., postgres or milvus."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="model.safetensors: the fit, and the points unless an engine holds them; or "
            "gallery.sqlite: a gallery to serve, with the fit inside.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an .sqlite gallery that is there already.")
    ] = False,
    labels: Labels = None,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    ids_key: IdsKey = None,
    pictures_key: PicturesKey = None,
    images_root: ImagesRoot = None,
    input_format: InputFormat = None,
    k: Neighbors = "auto",
    rule: Rule = "auto",
    temperature: Annotated[
        float | None,
        typer.Option(
            help="T of rule ned, a squared distance, if it is not to be fitted.",
            rich_help_panel=FITTING,
        ),
    ] = None,
    metric: Metric = None,
    calibration: Calibration = "auto",
    prior: Annotated[
        Literal["support", "uniform"],
        typer.Option(
            help="How frequent classes are among the queries: as in the gallery, or all alike.",
            rich_help_panel=FITTING,
        ),
    ] = "support",
    unknown_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the queries that is of no class of the gallery: below 1.",
            rich_help_panel=FITTING,
        ),
    ] = None,
    max_fit_samples: Annotated[
        str,
        typer.Option(
            help="Fit on at most so many points, drawn at random: all or a number.",
            rich_help_panel=FITTING,
        ),
    ] = "10000",
    seed: Seed = 0,
    engine: Annotated[
        Literal["auto", "exact", "hnsw", "ivf"],
        typer.Option(help="Index of a model or of an .sqlite gallery.", rich_help_panel=ENGINE),
    ] = "auto",
    into: Annotated[
        str | None,
        typer.Option(
            help="Load the points into a new table or collection: postgresql://..., https://..., "
            "or postgres or milvus, whose address is in the environment.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    as_json: Json = False,
) -> None:
    """Fit a gallery: how sure to be of a match is learned from its own points.

    A file is read whole into a model. Into an .sqlite gallery or an engine it is streamed, so that
    it may be larger than memory.
    """
    from nearsure.cli.fitting import FitRequest, fit_gallery  # noqa: PLC0415
    from nearsure.cli.input_files import Columns  # noqa: PLC0415
    from nearsure.cli.numbers import number_or  # noqa: PLC0415

    samples = number_or("--max-fit-samples", max_fit_samples, ("all",))
    fit_gallery(
        FitRequest(
            gallery=gallery,
            output=output,
            replace=replace,
            columns=Columns(labels, vectors_key, labels_key, ids_key, pictures_key, input_format),
            images_root=images_root,
            parameters={
                "n_neighbors": number_or("-k", k, ("auto", "all")),
                "temperature": "auto" if temperature is None else temperature,
                "rule": rule,
                "calibration": calibration,
                "prior": prior,
                "unknown_share": unknown_share,
                "max_fit_samples": None if samples == "all" else samples,
                "random_state": seed,
            },
            metric=metric,
            index=engine,
            into=into,
            engine_option=tuple(engine_option or ()),
            table=table,
            collection=collection,
        ),
        as_json=as_json,
    )
