"""A page of every command, its arguments and options, from the program's own help."""

import inspect
from collections.abc import Iterator

import typer
from typer.core import TyperArgument

from nearsure.cli.app import app

HEAD = """# Commands

Written from the program itself; `nearsure COMMAND --help` says the same.
[The guide to the command line](../command-line.md) shows them at work.
"""


def command_reference() -> str:
    """The page, in Markdown."""
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="nearsure")
    parts = [HEAD]
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        parts += [f"\n## nearsure {name}\n", _prose(command.help or ""), *_tables(command)]
    return "\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """The help, its example set as code."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).replace("\b", "").split("\n\n"):
        prose, word, example = paragraph.partition("Example:")
        if prose.strip():
            paragraphs.append(prose.strip())
        if word:
            command = " ".join(example.split())
            paragraphs.append(f"```text\n{command}\n```")
    return "\n\n".join(paragraphs) + "\n"


def _tables(command: object) -> Iterator[str]:
    rows = []
    for parameter in command.params:  # type: ignore[attr-defined]
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        if isinstance(parameter, TyperArgument):
            called = (parameter.metavar or parameter.human_readable_name).upper()
        else:
            called = ", ".join([*parameter.opts, *parameter.secondary_opts])
        default = "" if callable(parameter.default) else parameter.default
        shown = "required" if parameter.required else _shown(default)
        rows.append(f"| `{called}` | {_cell(parameter.help or '')} | {shown} |")
    if rows:
        yield "\n".join(["| | | default |", "| --- | --- | --- |", *rows])


def _shown(default: object) -> str:
    return "" if default in (None, "", (), [], False) else f"`{default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
