"""`nearsure calibrate`: what is typed."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from nearsure.cli.options import (
    FITTING,
    Calibration,
    GuardFormulas,
    Json,
    OutputFormat,
    Precision,
    RecordsFile,
    Rows,
)
from nearsure.cli.registering import register

EXAMPLES = (
    (
        "nearsure calibrate gallery_hits.jsonl --queries hits.jsonl --distance l2 --save rule.json "
        "-o confidences.csv"
    ),
    "nearsure calibrate --queries more_hits.jsonl --rule rule.json",
)
DistanceName = Literal[
    "squared-l2",
    "l2",
    "cosine-distance",
    "cosine-similarity",
    "inner-product",
    "negative-inner-product",
]
HITS = "npz, jsonl, parquet or csv file of distances and labels, - for standard input"


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, calibrate, *EXAMPLES)


def calibrate(
    gallery_hits: Annotated[
        str | None,
        typer.Argument(
            help="What your engine found for points of the gallery, with their true labels: "
            f"{HITS}. With ids of points and neighbours, a point is left out of its own; without, "
            "it must not be there. Not needed with --rule rule.json."
        ),
    ] = None,
    *,
    queries: Annotated[
        str | None, typer.Option(help=f"What it found for queries, to be answered: {HITS}.")
    ] = None,
    distance: Annotated[
        DistanceName | None, typer.Option(help="What your engine calls a distance.")
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            help="adaptive, sharpened, ned, gou, dudani, knn or 1nn; or rule.json, which --save "
            "wrote.",
            rich_help_panel=FITTING,
        ),
    ] = "adaptive",
    calibration: Calibration = "auto",
    save: Annotated[
        Path | None, typer.Option(help="JSON file that keeps what was fitted, for --rule.")
    ] = None,
    class_counts: Annotated[
        Path | None,
        typer.Option(
            help="How many points the gallery has of each class, where GALLERY_HITS is of some of "
            "its points: a csv file label,count or a json file of an object."
        ),
    ] = None,
    input_format: Annotated[
        Literal["npz", "jsonl", "parquet", "csv"] | None,
        typer.Option("--input-format", help="What the files are, where their names do not say."),
    ] = None,
    precision: Precision = None,
    output: RecordsFile = None,
    output_format: OutputFormat = None,
    guard_formulas: GuardFormulas = False,
    as_json: Json = False,
    rows: Rows = 20,
) -> None:
    """Confidence for neighbours from an engine of your own: distances and labels are enough.

    Search every gallery point among the gallery (or a random sample of the points, with
    --class-counts), for one neighbour more than you want to use. What is learned from these holds
    for queries of the same engine.
    """
    from nearsure.cli.calibrating import CalibrateRequest, calibrate_hits  # noqa: PLC0415
    from nearsure.cli.records import Destination  # noqa: PLC0415

    calibrate_hits(
        CalibrateRequest(
            gallery_hits,
            queries,
            distance,
            rule,
            calibration,
            save,
            input_format,
            precision,
            class_counts,
        ),
        Destination.chosen(
            output,
            output_format,
            as_json=as_json,
            rows=rows,
            guard_formulas=guard_formulas,
        ),
    )
