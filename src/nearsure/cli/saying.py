"""What is said beside the results: to standard error, in sentences, and progress to terminals."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nearsure.cli.typed_words import as_typed

Advance = Callable[[int], None]


def tell(sentence: str) -> None:
    """Say something that is no result."""
    sys.stderr.write(f"nearsure: {sentence}\n")


@contextmanager
def sentences_of_warnings() -> Iterator[None]:
    """Warnings as sentences, without the lines of source that raised them."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        tell(f"warning: {as_typed(str(message))}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def progress(work: str, total: int | None) -> Iterator[Advance]:
    """A bar on standard error, if that is a terminal; gives the function that moves it on.

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
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
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
def busy(work: str) -> Iterator[None]:
    """Show on standard error, if that is a terminal, that something takes its time."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status(work):
        yield
