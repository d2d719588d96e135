"""Tables of the ablation in Markdown, from stored numbers alone."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from nearsure.lab.ablation.corrupted_result import CorruptedResult
from nearsure.lab.ablation.measured import Measured
from nearsure.lab.ablation.results import Group
from nearsure.lab.ablation.seeds import difference
from nearsure.lab.ablation.variants import LADDER, Variant
from nearsure.lab.robust.cells import markdown, percent, points
from nearsure.metrics import Interval

Cell = Callable[[Measured], str]
FIGURES: dict[str, Cell] = {
    "accuracy %": lambda row: f"{100 * row.accuracy:.2f}",
    "ECE %": lambda row: f"{100 * row.ece:.2f}",
    "floor %": lambda row: f"{100 * row.floor:.2f}",
    "ECE less floor": lambda row: f"{100 * row.excess:+.2f}",
    "Brier": lambda row: f"{row.brier:.4f}",
    "confidence less accuracy": lambda row: f"{100 * row.overconfidence:+.2f}",
}
# What is best where, or None where neither more nor less is.
BETTER: dict[str, Literal["most", "least"] | None] = {
    "accuracy %": "most",
    "ECE %": "least",
    "floor %": None,
    "ECE less floor": "least",
    "Brier": "least",
    "confidence less accuracy": None,
}
PARTS = (
    "NED",
    "+ a sharpness",
    "+ a query's own scale",
    "+ the leave-one-out correction",
    "+ shrunk Platt (the default)",
)


def variant_table(rows: Sequence[Measured], *, splits: Sequence[int] | None = None) -> str:
    """Every variant with every figure, the best of a column bold.

    Parameters
    ----------
    rows : sequence of Measured
        One for each variant.
    splits : sequence of int, optional
        How many splits each is a mean over, where they differ.
    """
    columns = {"variant": [Variant.from_name(row.variant).title for row in rows]}
    for name, text in FIGURES.items():
        columns[name] = _bold([text(row) for row in rows], BETTER[name])
    if splits is not None and len(set(splits)) > 1:
        columns["splits"] = list(map(str, splits))
    return markdown(columns)


def group_table(group: Group, variants: Sequence[Variant] | None = None) -> str:
    """Means over the splits of a group."""
    shown = group.variants if variants is None else variants
    splits = [len(group.rows(variant)) for variant in shown]
    return variant_table([group.mean(variant) for variant in shown], splits=splits)


def ladder_table(group: Group) -> str:
    """What each part of the default adds to the one before, paired by split."""
    columns: dict[str, list[str]] = {"part": list(PARTS)}
    means = [group.mean(variant) for variant in LADDER]
    for name in ("accuracy %", "ECE %", "floor %", "Brier"):
        columns[name] = [FIGURES[name](row) for row in means]
    for measure, name in (
        ("accuracy", "adds to accuracy"),
        ("ece", "adds to ECE"),
        ("brier", "adds to Brier x 100"),
    ):
        gains = [difference(group, after, before, measure) for before, after in pairwise(LADDER)]
        columns[name] = ["", *(points(gain) for gain in gains)]
    return markdown(columns)


def by_k_table(groups: Sequence[Group], variants: Sequence[Variant]) -> str:
    """Accuracy, ECE and Brier score of some variants at each k."""
    columns = {"variant": [variant.title for variant in variants]}
    for group in groups:
        for name in ("accuracy %", "ECE %", "Brier"):
            cells = [FIGURES[name](group.mean(variant)) for variant in variants]
            columns[f"{name}, k = {group.first.k}"] = _bold(cells, BETTER[name])
    return markdown(columns)


def interval_table(group: Group, variants: Sequence[Variant]) -> str:
    """A single split: accuracy and ECE with bootstrap intervals."""
    rows = [group.rows(variant)[group.first.seed] for variant in variants]
    return markdown(
        {
            "variant": [variant.title for variant in variants],
            "accuracy %": [_ranged(row.accuracy_interval, row.accuracy) for row in rows],
            "ECE %": [_ranged(row.ece_interval, row.ece) for row in rows],
            "floor %": [FIGURES["floor %"](row) for row in rows],
            "Brier": _bold([FIGURES["Brier"](row) for row in rows], "least"),
        }
    )


def corrupted_table(result: CorruptedResult) -> str:
    """Main variants on clean and on corrupted queries."""
    columns = {"variant": [Variant.from_name(row.variant).title for row in result.mean]}
    for name in ("accuracy %", "ECE %"):
        cells = [FIGURES[name](row) for row in result.clean]
        columns[f"clean: {name}"] = _bold(cells, BETTER[name])
    for name, text in FIGURES.items():
        cells = [text(row) for row in result.mean]
        columns[f"corrupted: {name}"] = _bold(cells, BETTER[name])
    return markdown(columns)


def _bold(cells: Sequence[str], better: Literal["most", "least"] | None) -> list[str]:
    """The best cells as they are printed; equals share it."""
    if better is None:
        return list(cells)
    numbers = list(map(float, cells))
    best = max(numbers) if better == "most" else min(numbers)
    return [
        f"**{cell}**" if number == best else cell
        for cell, number in zip(cells, numbers, strict=True)
    ]


def _ranged(interval: Interval | None, value: float) -> str:
    return f"{100 * value:.2f}" if interval is None else percent(interval)
