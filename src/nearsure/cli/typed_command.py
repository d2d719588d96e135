"""What was typed, as reports quote it, and the files that came of it."""

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import typer


def typed_command() -> str:
    """What was typed, without the folders of this machine, and without passwords."""
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        words.append(f"{option}{equals}{_public(value)}")
    return shlex.join(["nearsure", *words])


def _public(value: str) -> str:
    scheme, slashes, _ = value.partition("://")
    if slashes:
        return f"{scheme}://..."
    path = Path(value)
    return path.name if path.is_absolute() or ".." in path.parts else value


def say_files(files: Iterable[Path]) -> None:
    """Name the files that were written."""
    for path in files:
        typer.echo(f"wrote {path}")
