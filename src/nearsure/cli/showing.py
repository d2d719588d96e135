"""Results on standard output: tables for people, JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite

import typer
from rich.console import Console
from rich.table import Table


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, as for everything else that is written."""
        raise BrokenPipeError


def show_facts(title: str, facts: Mapping[str, str]) -> None:
    """Names with what is to be said of each."""
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(printable(name), printable(fact))
    _show(title, table)


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows beneath a header, if there are any."""
    table = Table()
    for name in header:
        table.add_column(printable(name), overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    _show(title, table if rows else None)


def printable(text: str) -> str:
    r"""Text that cannot move the cursor or change colours, whatever a label holds.

    Examples
    --------
    >>> printable("red\x1b[31m owl")
    'red?[31m owl'
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def _show(title: str, table: Table | None) -> None:
    output = _Output(markup=False, highlight=False, emoji=False)
    output.print(title, style="bold")
    if table is not None:
        output.print(table)


def show_json(document: object) -> None:
    """A document of dicts, lists, strings, numbers and None."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def finite(number: float) -> float | None:
    """A number as JSON has it: None for NaN and infinity."""
    return float(number) if isfinite(number) else None
