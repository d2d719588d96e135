"""`nearsure embed`: images or texts to vectors, for those who have none yet."""

from pathlib import Path
from typing import Annotated

import typer

from nearsure.cli.options import OUTPUT
from nearsure.cli.registering import register

EXAMPLES = (
    "nearsure embed photos --encoder image -o gallery.npz",
    "nearsure embed sentences.csv --encoder text -o gallery.parquet",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, embed, *EXAMPLES)


def embed(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of images, a folder for each class; or txt, csv or jsonl file of texts."
        ),
    ],
    *,
    encoder: Annotated[
        str, typer.Option(help="image, text, or module:attribute for one of your own.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="npz, jsonl, csv or parquet file.", rich_help_panel=OUTPUT
        ),
    ],
    skip_broken_images: Annotated[
        bool, typer.Option("--skip-broken-images", help="Leave out images that cannot be decoded.")
    ] = False,
) -> None:
    """Turn images or texts into vectors, with ids and labels.

    An image's label is the folder that it lies in, its id the path below SOURCE. Texts are lines,
    or the column "text" beside "label" and "id".
    """
    from nearsure.cli.embedding import write_embeddings  # noqa: PLC0415

    write_embeddings(source, encoder, output, skip_broken_images=skip_broken_images)
