"""`nearsure demo`."""

from pathlib import Path
from typing import Annotated

import typer

from nearsure.cli.registering import register

EXAMPLES = ("nearsure demo --output pictures",)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, demo, *EXAMPLES)


def demo(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the pictures.")] = Path(
        "demo-output"
    ),
) -> None:
    """The main job in one run, on handwritten digits: a table, thresholds and pictures."""
    from nearsure.demo import main  # noqa: PLC0415

    main(["--output", str(output)])
