"""A page of every command, its arguments and options, from the program's own help."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperArgument

from nearsure.cli.app import app

HEAD = """---
search: {boost: 4}
---

# Commands

Written from the program itself; `nearsure COMMAND --help` says the same.
[The guide to the command line](../command-line.md) shows them at work.
"""
EXAMPLE = "Example: "
COLUMNS = "| | | | default |\n| --- | --- | --- | --- |"


def command_reference() -> str:
    """The page, in Markdown."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="nearsure")
    parts = [HEAD]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        said = f"{command.help or ''}\n\n{command.epilog or ''}".split("\n\n")
        examples = [each.removeprefix(EXAMPLE) for each in said if each.startswith(EXAMPLE)]
        prose = [_safe(each) for each in said if each and not each.startswith(EXAMPLE)]
        parts += [f"## nearsure {name}", *prose, *_block(examples), *_tables(command, context)]
    return "\n\n".join(parts) + "\n"


def _block(lines: list[str]) -> Iterator[str]:
    if lines:
        yield "\n".join(["```text", *lines, "```"])


def _tables(command: Any, context: typer.Context) -> Iterator[str]:  # noqa: ANN401
    """A table for each panel of the help, the one without a name first."""
    panels: dict[str, list[str]] = {"": []}
    for parameter in command.get_params(context):
        if not parameter.hidden and parameter.name != "help":
            row = _row(parameter, context)
            panels.setdefault(parameter.rich_help_panel or "", []).append(row)
    for panel, rows in panels.items():
        if panel and rows:
            yield f"**{panel}**"
        if rows:
            yield "\n".join([COLUMNS, *rows])


def _row(parameter: Any, context: typer.Context) -> str:  # noqa: ANN401
    if isinstance(parameter, TyperArgument):
        called = (parameter.metavar or parameter.name or "").upper()
    else:
        called = ", ".join([*parameter.opts, *parameter.secondary_opts])
    kind = parameter.metavar or parameter.display_type(context).strip("<>").removesuffix(" range")
    if getattr(parameter, "is_flag", False) or isinstance(parameter, TyperArgument):
        kind = ""
    default = "" if callable(parameter.default) else parameter.default
    shown = "required" if parameter.required else _shown(default)
    cells = (f"`{called}`", _kind(kind), _cell(_safe(parameter.help or "")), shown)
    return f"| {' | '.join(cells)} |"


def _kind(kind: str) -> str:
    """A type; of several words each, so that lines can break between them."""
    return " ".join(f"`{word}`" for word in kind.split("|")) if kind else ""


def _shown(default: object) -> str:
    is_nothing = default is None or default is False or default in ("", (), [])
    return "" if is_nothing else f"`{default}`"


def _safe(text: str) -> str:
    """Words like ``--rule`` and ``<file>`` as they were written, not as Markdown reads them."""
    return text.replace("<", "&lt;").replace("*", "\\*")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
