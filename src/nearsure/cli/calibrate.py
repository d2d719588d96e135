"""`nearsure calibrate`."""

from pathlib import Path
from typing import Annotated, Literal, get_args

from typer import Argument, Option

from nearsure.cli import options, outputs
from nearsure.cli.outputs import (
    check_files,
    check_suffix,
    choose_format,
    show_records,
    write_records,
)
from nearsure.errors import ConfigError

DistanceName = Literal[
    "squared-l2",
    "l2",
    "cosine-distance",
    "cosine-similarity",
    "inner-product",
    "negative-inner-product",
]
HITS = "npz, jsonl, parquet or csv file of distances and labels, - for standard input"


def calibrate(
    gallery_hits: Annotated[
        str | None,
        Argument(
            help="What your engine found for points of the gallery, with their true labels: "
            f"{HITS}. With ids of points and neighbours, each point is left out of its own "
            "neighbours; without, it must not be among them. Not needed with --rule rule.json."
        ),
    ] = None,
    *,
    queries: Annotated[
        str | None, Option(help=f"What your engine found for the queries: {HITS}.")
    ] = None,
    distance: Annotated[
        DistanceName | None, Option(help="What kind of distance your engine returns.")
    ] = None,
    rule: Annotated[
        str,
        options.fitting_option(
            help="adaptive, sharpened, ned, gou, dudani, knn or 1nn; or rule.json, which --save "
            "wrote."
        ),
    ] = "adaptive",
    calibration: options.Calibration = "auto",
    save: Annotated[
        Path | None, Option(help="JSON file to save the fit to, for a later --rule.")
    ] = None,
    class_counts: Annotated[
        Path | None,
        Option(
            help="Number of gallery points in each class, if GALLERY_HITS covers only some of the "
            "points: a csv file with columns label,count, or a json object."
        ),
    ] = None,
    input_format: Annotated[
        Literal["npz", "jsonl", "parquet", "csv"] | None,
        Option("--input-format", help="Format of the files, if not clear from their names."),
    ] = None,
    precision: options.Precision = None,
    output: options.RecordsFile = None,
    output_format: options.OutputFormat = None,
    guard_formulas: options.GuardFormulas = False,
    as_json: options.Json = False,
    rows: options.Rows = 20,
    quiet: options.Quiet = False,
) -> None:
    """Add confidence to the results of your own engine: distances and labels are enough.

    Search the gallery for each of its own points (or for a random sample of them, with
    --class-counts), with one neighbour more than you want to use. The fit then holds for queries to
    the same engine.

    Example: nearsure calibrate gallery_hits.jsonl --queries hits.jsonl --distance l2 --save
    rule.json -o confidences.csv

    Example: nearsure calibrate --queries more_hits.jsonl --rule rule.json
    """
    outputs.set_quiet(quiet)
    chosen = choose_format(output, output_format, as_json=as_json, guard_formulas=guard_formulas)
    is_saved = rule.endswith(".json")
    if is_saved:
        _check_saved(rule, gallery_hits, queries, save, (precision, class_counts, calibration))
    elif gallery_hits is None:
        raise ConfigError("Give GALLERY_HITS to fit on, or --rule rule.json.")
    elif distance is None:
        raise ConfigError(
            "--distance must say what your engine calls a distance: "
            f"{', '.join(get_args(DistanceName))}."
        )
    if gallery_hits == "-" and queries == "-":
        raise ConfigError("Only one of GALLERY_HITS and --queries can be standard input.")
    check_suffix("--save", save, (".json",))
    check_files(
        {"GALLERY_HITS": gallery_hits, "--queries": queries, "--rule": rule if is_saved else None},
        {"--save": save, "--output": output},
    )
    from nearsure.cli import hit_rule
    from nearsure.embedding_files import load_hits

    threshold = None
    if gallery_hits is None or distance is None:
        saved = hit_rule.load_rule(Path(rule), distance)
    else:
        hits = load_hits(gallery_hits, format=input_format)
        saved, neighbors, codes = hit_rule.fit_rule(
            hits, gallery_hits, distance, class_counts, rule=rule, calibration=calibration
        )
        if save is not None:
            saved.save(save)
        if precision is not None:
            threshold = saved.choose_threshold(neighbors, codes, precision)
    if queries is not None:
        hits = load_hits(queries, format=input_format)
        neighbors = hit_rule.query_neighbors(hits, saved)
    columns = hit_rule.answer_columns(hits, neighbors, saved, threshold)
    if chosen is not None:
        write_records([columns], output, chosen, guard_formulas=guard_formulas)
        return
    n_answers = len(columns["label"])
    title = f"The first {min(rows, n_answers)} of {n_answers:,}; -o FILE writes all"
    show_records(title, columns, rows)


def _check_saved(
    rule: str,
    gallery_hits: str | None,
    queries: str | None,
    save: Path | None,
    fitting: tuple[object, ...],
) -> None:
    """Raise an error if options ask a saved rule to fit; `fitting` are the options of a fit."""
    options.refuse(
        {"GALLERY_HITS": gallery_hits},
        f": {rule} was fitted already. Queries are given with --queries",
    )
    if queries is None or save is not None:
        raise ConfigError("--rule rule.json answers --queries, and fits nothing to --save.")
    if fitting != (None, None, "auto"):
        raise ConfigError(
            "--precision, --calibration and --class-counts need the points of the gallery, "
            "which a saved rule has not: give GALLERY_HITS."
        )
