"""Cells and columns of Markdown tables: intervals in percent, the paper's number, the best bold."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from nearsure.errors import InvalidInputError
from nearsure.metrics import Interval

Better = Literal["more", "less"]


def percent(interval: Interval, *, bold: bool = False) -> str:
    """An interval in percent.

    Examples
    --------
    >>> percent(Interval(0.75, 0.7, 0.8, 0.95), bold=True)
    '**75.00** (70.00 to 80.00)'
    """
    if np.isnan(interval.estimate):
        return "none"
    estimate = f"{100 * interval.estimate:.2f}"
    estimate = f"**{estimate}**" if bold else estimate
    if np.isnan(interval.low):
        return estimate
    return f"{estimate} ({100 * interval.low:.2f} to {100 * interval.high:.2f})"


def stated(interval: Interval) -> str:
    """An interval in percent, for a sentence.

    Examples
    --------
    >>> stated(Interval(0.75, 0.7, 0.8, 0.95))
    '75.00% (70.00 to 80.00)'
    """
    estimate, _, ends = percent(interval).partition(" ")
    return f"{estimate}% {ends}"


def points(interval: Interval) -> str:
    """A difference in points of percent, with its sign.

    Examples
    --------
    >>> points(Interval(-0.011, -0.02, 0.001, 0.95))
    '-1.10 (-2.00 to +0.10)'
    """
    ends = (100 * end for end in (interval.estimate, interval.low, interval.high))
    estimate, low, high = (f"{end:+.2f}" for end in ends)
    return f"{estimate} ({low} to {high})"


def beside(paper: float | None, ours: float, *, mark: str = "") -> str:
    """The paper's number and our difference from it, to follow a cell; nothing if it has none.

    Examples
    --------
    >>> beside(0.749, 0.639)
    '; paper 74.9, -11.0'
    """
    if paper is None:
        return ""
    return f"; paper {100 * paper:.1f}{mark}, {100 * (ours - paper):+.1f}"


def best_places(intervals: Sequence[Interval], better: Better | None) -> list[bool]:
    """Which cells of a column hold the best value as it is printed: ties share it.

    Parameters
    ----------
    intervals : sequence of Interval
        The column.
    better : {"more", "less"} or None
        Which is best; None where neither is.
    """
    printed = [round(interval.estimate, 4) for interval in intervals]
    known = [value for value in printed if not np.isnan(value)]
    if better is None or not known:
        return [False] * len(printed)
    best = max(known) if better == "more" else min(known)
    return [value == best for value in printed]


def markdown(columns: Mapping[str, Sequence[str]]) -> str:
    """A table of columns of equal length."""
    if len({len(cells) for cells in columns.values()}) != 1:
        raise InvalidInputError(
            "The columns of a table must be equally long. "
            f"Got { {name: len(cells) for name, cells in columns.items()} } instead."
        )
    rows = [list(columns), ["---"] * len(columns), *map(list, zip(*columns.values(), strict=True))]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
