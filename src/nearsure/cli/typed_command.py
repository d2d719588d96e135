"""What was typed, as reports quote it, and the files that came of it."""

import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import typer

from nearsure.cli.checked_files import ADDRESS

# Options of engines whose values are nobody else's business.
SECRET = re.compile("password|passwd|token|secret|key", re.IGNORECASE)


def typed_command() -> str:
    """What was typed, without the folders of this machine, and without passwords."""
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        name, _, secret = value.partition("=")
        public = f"{name}=..." if secret and SECRET.search(name) else _public(value)
        words.append(f"{option}{equals}{public}")
    return shlex.join(["nearsure", *words])


def _public(value: str) -> str:
    scheme, slashes, _ = value.partition("://")
    if slashes:
        return f"{scheme}://..."
    if ADDRESS.match(value):
        return f"{value.partition(':')[0]}:..."
    path = Path(value)
    return path.name if path.is_absolute() or ".." in path.parts else value


def say_files(files: Iterable[Path]) -> None:
    """Name the files that were written."""
    for path in files:
        typer.echo(f"wrote {path}")
