"""Sentences on standard error, progress, and tables or JSON on standard output."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

Advance = Callable[[int], None]


def tell(sentence: str) -> None:
    """Write a sentence to standard error."""
    sys.stderr.write(f"nearsure: {sentence}\n")


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print warnings as sentences, without the source lines that raised them."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        tell(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def progress(work: str, total: int | None) -> Iterator[Advance]:
    """Show a bar on standard error, if that is a terminal; yields the function that advances it.

    Parameters
    ----------
    work : str
        What is being done.
    total : int or None
        How many rows there are; None if that is not known.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bars:
        task = bars.add_task(work, total=total)

        def advance(rows: int) -> None:
            bars.advance(task, rows)

        yield advance


@contextmanager
def spinner(work: str) -> Iterator[None]:
    """Show a spinner on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(work):
        yield


def show_facts(title: str, facts: Mapping[str, str]) -> None:
    """Print names and what is to be read of each."""
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(mask_controls(name), mask_controls(fact))
    _show(title, table)


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows beneath a header, if there are any."""
    from rich.table import Table

    table = Table()
    for name in header:
        table.add_column(mask_controls(name), overflow="fold")
    for row in rows:
        table.add_row(*map(mask_controls, row))
    _show(title, table if rows else None)


def mask_controls(text: str) -> str:
    r"""Replace what could move the cursor or change colours, whatever a label holds.

    Examples
    --------
    >>> mask_controls("red\x1b[31m owl")
    'red?[31m owl'
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def _show(title: str, table: "Table | None") -> None:
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to the command, as for everything else that is written."""
            raise BrokenPipeError

    output = Output(markup=False, highlight=False, emoji=False)
    output.print(title, style="bold")
    if table is not None:
        output.print(table)


def show_json(document: object) -> None:
    """Print a document of dicts, lists, strings, numbers and None."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def finite_or_none(number: float) -> float | None:
    """A number that JSON can hold: None for NaN and infinity."""
    return float(number) if isfinite(number) else None
