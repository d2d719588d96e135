"""How a command is made known, and its help written."""

import inspect
from collections.abc import Callable

import typer


def register(
    app: typer.Typer, command: Callable[..., None], *examples: str, panel: str | None = None
) -> None:
    """Add a command, whose help is its docstring and ends with examples."""
    app.command(
        help=flowing(inspect.getdoc(command) or ""),
        epilog="\n\n".join(f"Example: {example}" for example in examples),
        rich_help_panel=panel,
    )(command)


def flowing(text: str) -> str:
    r"""Each paragraph on one line, so that the terminal decides where lines break.

    Examples
    --------
    >>> flowing("one\ntwo\n\nthree")
    'one two\n\nthree'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
