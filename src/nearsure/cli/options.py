"""Options that several commands share, and checks of what was typed."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from nearsure.errors import ConfigError

# Options by panel of the help.
file_option = partial(Option, rich_help_panel="Files")
engine_option = partial(Option, rich_help_panel="Engine")
fitting_option = partial(Option, rich_help_panel="Fitting")
output_option = partial(Option, rich_help_panel="Output")

Seed = Annotated[int, Option(min=0, help="Random seed.")]
Resamples = Annotated[int, Option(min=10, help="Bootstrap resamples for each interval.")]
Precision = Annotated[
    float | None,
    Option(
        help="Accept answers such that at least this share of them is right: between 0 and 1, "
        "for example 0.99."
    ),
]

Labels = Annotated[
    Path | None,
    file_option("--labels", help="npy, txt or csv file of labels, if they are in a separate file."),
]
VectorsKey = Annotated[str | None, file_option(help="Name of the array or column of vectors.")]
LabelsKey = Annotated[str | None, file_option(help="Name of the array or column of labels.")]
GroupsKey = Annotated[
    str | None,
    file_option(
        help="Name of the array or column of groups: rows of a group (a burst, copies of one "
        "image) do not count as each other's neighbours while fitting."
    ),
]
Encoder = Annotated[
    str | None,
    file_option(
        help="image, text or module:attribute: encodes a folder of images or a file of texts, or "
        "lines of text from standard input. By default the one that the model was fitted with."
    ),
]
IdsKey = Annotated[str | None, file_option(help="Name of the array or column of ids.")]
PicturesKey = Annotated[str | None, file_option(help="Name of the array or column of image paths.")]
ImagesRoot = Annotated[
    Path | None,
    file_option(help="Folder that image paths are relative to; by default that of the file."),
]
InputFormat = Annotated[
    Literal["npz", "npy", "parquet", "csv", "safetensors", "jsonl"] | None,
    file_option(help="Format of the file, if not clear from its name, as for standard input."),
]

_model = Option(
    "--model", "-m", help="Model written by nearsure fit: model.safetensors or gallery.sqlite."
)
Model = Annotated[Path, _model]
OptionalModel = Annotated[Path | None, _model]
Gallery = Annotated[
    str | None,
    engine_option(
        help="Where the points are, if not in the model: postgresql://..., https://..., "
        "qdrant:URL, chroma:FOLDER, lance:FOLDER, or postgres, milvus, qdrant, chroma or lance, "
        "with the address in the environment."
    ),
]
Table = Annotated[str | None, engine_option(help="Table of PostgreSQL or LanceDB.")]
Collection = Annotated[str | None, engine_option(help="Collection of Milvus, Qdrant or Chroma.")]
EngineOption = Annotated[
    list[str] | None,
    engine_option(metavar="NAME=VALUE", help="Any other engine option; can be repeated."),
]

Json = Annotated[bool, output_option("--json", help="Write JSON to standard output.")]
Quiet = Annotated[bool, output_option("--quiet", "-q", help="No progress bars and no notices.")]
Rows = Annotated[int, output_option(min=1, help="Rows to show on a terminal.")]
RecordsFile = Annotated[
    Path | None,
    output_option(
        "--output",
        "-o",
        help="csv, jsonl, json or parquet file; by default a table on a terminal, csv to a pipe.",
    ),
]
OutputFormat = Annotated[
    Literal["csv", "jsonl", "json", "parquet"] | None,
    output_option("--format", help="Output format, if not that of the file name."),
]
GuardFormulas = Annotated[
    bool,
    output_option(
        "--guard-formulas",
        help="In csv, put ' before text that begins with = + - @ or a tab, which a spreadsheet "
        "would run as a formula.",
    ),
]

RuleName = Literal["auto", "adaptive", "sharpened", "ned", "gou", "dudani", "knn", "1nn"]
CalibrationName = Literal["auto", "none", "shrunk", "platt", "beta", "isotonic", "histogram", "bbq"]
HeadName = Literal["auto", "means", "logistic", "none"]
MetricName = Literal["euclidean", "cosine"]
Rule = Annotated[RuleName, fitting_option(help="How neighbours are weighted.")]
Head = Annotated[
    HeadName,
    fitting_option(
        help="Model of whole classes used beside the neighbours: class means, logistic regression "
        "or none; auto chooses by the leave-one-out likelihood of the gallery."
    ),
]
Calibration = Annotated[
    CalibrationName, fitting_option(help="How confidence is calibrated after the fit.")
]
Metric = Annotated[
    MetricName | None,
    fitting_option(help="How vectors are compared; by default euclidean, or that of the engine."),
]
Neighbors = Annotated[
    str, fitting_option("-k", help="Number of neighbours: auto, all or a number.")
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


def check_precision(precision: float | None) -> None:
    """Raise an error for a precision that no answers can be promised, before anything is read."""
    from nearsure.validation import check_open_fraction

    if precision is not None:
        check_open_fraction("precision", precision)


def refuse(options: Mapping[str, object], why: str, *, when: bool = True) -> None:
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
