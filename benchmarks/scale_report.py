"""The costs of several sizes as a table and a picture."""

import json
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl

from benchmarks.scale_cost import Cost

HEADS = (
    "index",
    "points",
    "build",
    "fit of T",
    "queries/s: bare, NED",
    "NED adds",
    "default adds",
    "one query, p50 / p99 ms: bare",
    "NED",
    "memory, MiB",
    "recall@50",
    "NED: accuracy, ECE",
    "default: accuracy, ECE",
)
COLORS = {"exact": "#4477aa", "hnsw": "#cc6677"}


def table(costs: list[Cost]) -> str:
    """All figures, a line an index and size, in Markdown."""
    rows = [
        (
            cost.index,
            f"{cost.n_points:,}",
            f"{cost.build:.1f} s",
            f"{cost.fit:.1f} s",
            f"{cost.bare_rate:,.0f}, {cost.ned_rate:,.0f}",
            f"{100 * cost.added:+.1f}%",
            f"{100 * cost.added_by_default:+.1f}%",
            f"{1e3 * cost.bare_p50:.2f} / {1e3 * cost.bare_p99:.2f}",
            f"{1e3 * cost.ned_p50:.2f} / {1e3 * cost.ned_p99:.2f}",
            f"{cost.memory / 2**20:,.0f}",
            f"{100 * cost.recall:.1f}%",
            f"{100 * cost.accuracy:.1f}%, {100 * cost.ece:.1f}%",
            f"{100 * cost.default_accuracy:.1f}%, {100 * cost.default_ece:.1f}%",
        )
        for cost in costs
    ]
    lines = [HEADS, tuple("---" for _ in HEADS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(costs: list[Cost], folder: Path) -> None:
    """The figures as JSON, the table and the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = json.dumps([asdict(cost) for cost in costs], indent=1)
    (folder / "scale.json").write_text(stored + "\n")
    (folder / "table.md").write_text(table(costs) + "\n")
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for index, color in COLORS.items():
        own = [cost for cost in costs if cost.index == index]
        points = [cost.n_points for cost in own]
        lines = (
            ([1e3 * cost.ned_p50 for cost in own], [1e3 * cost.bare_p50 for cost in own]),
            ([cost.fit for cost in own], None),
            ([cost.memory / 2**20 for cost in own], None),
        )
        for axis, (ours, bare) in zip(axes, lines, strict=True):
            axis.loglog(points, ours, "o-", color=color, label=f"{index}, NED" if bare else index)
            if bare:
                axis.loglog(points, bare, "x--", color=color, label=f"{index}, bare faiss")
    titles = ("one query, median (ms)", "fit of T (s)", "memory (MiB)")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("points of 128 numbers")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("")
        axis.grid(visible=True, which="major", color="#dddddd")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=8, frameon=False)
    figure.savefig(folder / "scale.png", dpi=150)
    plt.close(figure)
