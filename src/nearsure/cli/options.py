"""Options that several commands share, and how a command is registered."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from nearsure.errors import ConfigError

FILES = "Files"
ENGINE = "Engine"
FITTING = "Fitting"
OUTPUT = "Output"

TableNeighbors = Annotated[int, typer.Option("-k", min=1, help="Neighbours of the tables.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of everything random.")]
Resamples = Annotated[int, typer.Option(min=10, help="Bootstrap resamples of each interval.")]

Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        help="npy, txt or csv file of labels, if they are elsewhere.",
        rich_help_panel=FILES,
    ),
]
VectorsKey = Annotated[
    str | None, typer.Option(help="Array or column of the vectors.", rich_help_panel=FILES)
]
LabelsKey = Annotated[
    str | None, typer.Option(help="Array or column of the labels.", rich_help_panel=FILES)
]
IdsKey = Annotated[
    str | None, typer.Option(help="Array or column of the ids.", rich_help_panel=FILES)
]
PicturesKey = Annotated[
    str | None,
    typer.Option(help="Array or column of the paths of images.", rich_help_panel=FILES),
]
ImagesRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder that paths of images start from and lie in; by default that of the file.",
        rich_help_panel=FILES,
    ),
]
InputFormat = Annotated[
    Literal["npz", "npy", "parquet", "csv", "safetensors", "jsonl"] | None,
    typer.Option(
        "--input-format",
        help="What the file is, where its name does not say, as for standard input.",
        rich_help_panel=FILES,
    ),
]

Model = Annotated[
    Path,
    typer.Option(
        "--model", "-m", help="What nearsure fit wrote: model.safetensors or gallery.sqlite."
    ),
]
OptionalModel = Annotated[
    Path | None,
    typer.Option(
        "--model", "-m", help="What nearsure fit wrote: model.safetensors or gallery.sqlite."
    ),
]
Gallery = Annotated[
    str | None,
    typer.Option(
        help="Where the points are, if not in the model: postgresql://..., https://..., or "
        "postgres or milvus, whose address is in the environment.",
        rich_help_panel=ENGINE,
    ),
]
Table = Annotated[str | None, typer.Option(help="Table of PostgreSQL.", rich_help_panel=ENGINE)]
Collection = Annotated[
    str | None, typer.Option(help="Collection of Milvus.", rich_help_panel=ENGINE)
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Any other option of the engine; may be given more than once.",
        rich_help_panel=ENGINE,
    ),
]

Json = Annotated[
    bool, typer.Option("--json", help="JSON to standard output.", rich_help_panel=OUTPUT)
]
Rows = Annotated[
    int, typer.Option(min=1, help="Rows of a table on a terminal.", rich_help_panel=OUTPUT)
]
RecordsFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="csv, jsonl, json or parquet file; by default a table on a terminal, csv to a pipe.",
        rich_help_panel=OUTPUT,
    ),
]
OutputFormat = Annotated[
    Literal["csv", "jsonl", "json", "parquet"] | None,
    typer.Option(
        "--format", help="Instead of what the name of the output says.", rich_help_panel=OUTPUT
    ),
]
GuardFormulas = Annotated[
    bool,
    typer.Option(
        "--guard-formulas",
        help="In csv, put ' before texts that begin with = + - @ or a tab, which a spreadsheet "
        "would compute.",
        rich_help_panel=OUTPUT,
    ),
]

RuleName = Literal["auto", "adaptive", "sharpened", "ned", "gou", "dudani", "knn", "1nn"]
CalibrationName = Literal["auto", "none", "shrunk", "platt", "beta", "isotonic", "histogram", "bbq"]
MetricName = Literal["euclidean", "cosine"]
Rule = Annotated[
    RuleName, typer.Option(help="What turns neighbours into a vote.", rich_help_panel=FITTING)
]
Calibration = Annotated[
    CalibrationName,
    typer.Option(help="What is done to the confidence afterwards.", rich_help_panel=FITTING),
]
Metric = Annotated[
    MetricName | None,
    typer.Option(
        help="How vectors are compared; by default euclidean, or as the engine does.",
        rich_help_panel=FITTING,
    ),
]
Neighbors = Annotated[
    str, typer.Option("-k", help="Neighbours: auto, all or a number.", rich_help_panel=FITTING)
]
Precision = Annotated[
    float | None,
    typer.Option(
        help="Accept answers so that at least this share of them is right: above 0 and below 1, "
        "0.99 say.",
    ),
]


def number_or(option: str, text: str, words: tuple[str, ...]) -> int | str:
    """A whole number of at least 1, or one of the words.

    Examples
    --------
    >>> number_or("-k", "50", ("auto", "all")), number_or("-k", "auto", ("auto", "all"))
    (50, 'auto')
    """
    if text in words:
        return text
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text)
    raise ConfigError(
        f"{option} must be {', '.join(words)} or a whole number of at least 1. "
        f"Got {text!r} instead."
    )


def refuse(options: Mapping[str, object], why: str, *, when: bool) -> None:
    """Raise an error for an option that was given and would be ignored.

    Parameters
    ----------
    options : mapping of str to object
        Values by the name of the option; None and False were not given.
    why : str
        The end of the sentence "... must be left out".
    when : bool
        Whether these options would be ignored.
    """
    for option, value in options.items():
        if when and value is not None and value is not False:
            raise ConfigError(f"{option} must be left out{why}.")


def register(
    app: typer.Typer, command: Callable[..., None], *examples: str, panel: str | None = None
) -> None:
    """Add a command, whose help is its docstring and ends with examples."""
    app.command(
        help=join_lines(inspect.getdoc(command) or ""),
        epilog="\n\n".join(f"Example: {example}" for example in examples),
        rich_help_panel=panel,
    )(command)


def join_lines(text: str) -> str:
    r"""Join each paragraph into one line, so that the terminal decides where lines break.

    Examples
    --------
    >>> join_lines("one\ntwo\n\nthree")
    'one two\n\nthree'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
