"""Figures of results as PNG, drawn from stored numbers alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearsure.comparison import TITLES, title_of
from nearsure.displays import ReliabilityDisplay
from nearsure.displays.canvas import BLACK, line_style
from nearsure.extras import require
from nearsure.lab.default_rule import DEFAULT, NEIGHBORS_ALONE
from nearsure.lab.evaluation import Evaluation, NeighborCurve, Sweep
from nearsure.metrics import Bins
from nearsure.report.document import shares_of
from nearsure.rules import RULE_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DOTS_PER_INCH = 120


def new_figure(size: tuple[float, float], title: str) -> "Figure":
    """An empty figure of a size in inches."""
    # Not pyplot's, which would keep every figure until it is closed.
    module = require("matplotlib.figure", extra="plot", purpose="A figure")
    figure: Figure = module.Figure(figsize=size)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)  # inches, between panels
    figure.suptitle(title)
    return figure


def legend_below(figure: "Figure", n_columns: int) -> None:
    """One legend for all panels, each label once."""
    handle_of = {
        label: handle
        for ax in figure.axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(handle_of.values()),
        list(handle_of),
        loc="outside lower center",
        ncols=n_columns,
        frameon=False,
    )


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write the PNG; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH, format="png")
    return path


# Those that give a probability: 1NN is always sure.
UNSURE_RULES = ("knn", "dudani", "gou", "ned", DEFAULT)
# Every line of a figure against k, in the order of their styles.
LINES = (*RULE_NAMES, NEIGHBORS_ALONE, DEFAULT)
# Whose intervals are drawn: bands of all would hide each other.
BANDS = ("ned", DEFAULT)
PANELS_A_ROW = 3


def draw_reliability(evaluation: Evaluation, path: Path, *, name: str) -> Path:
    """Reliability diagrams of kNN, Dudani, Gou, NED and the default (the paper's Figure 1).

    Parameters
    ----------
    evaluation : Evaluation
        The numbers.
    path : path
        Where to write the PNG; its folder is made if need be.
    name : str
        Name of the data, for the title.

    Returns
    -------
    Path
        The file.
    """
    rules = [rule for rule in UNSURE_RULES if rule in evaluation.reliability]
    title = f"{name}: k = {evaluation.k}, {evaluation.n_queries:,} queries"
    figure = new_figure((3.3 * len(rules), 5.2), title)
    for place, (ax, rule) in enumerate(
        zip(figure.subplots(1, len(rules), sharey=True), rules, strict=True)
    ):
        bins, error = evaluation.reliability[rule], evaluation.result_of(rule).ece.estimate
        display = ReliabilityDisplay(bins, error).plot(ax=ax)
        ax.get_legend().remove()  # there is one for all, below
        ax.set_title(f"{title_of(rule)}\nECE {100 * error:.1f}%", fontsize=11)
        _draw_bin_intervals(ax, bins)
        if place:
            ax.set_ylabel("")
            if display.counts_ax_ is not None:
                display.counts_ax_.set_ylabel("")
    legend_below(figure, 4)
    return save_figure(figure, path)


def _draw_bin_intervals(ax: "Axes", bins: Bins) -> None:
    """Exact intervals of the accuracy of each bin, where the points are."""
    right = np.rint(np.nan_to_num(bins.accuracy) * bins.counts).astype(np.int64)
    for place, share in enumerate(shares_of(right, bins.counts)):
        if share.low is not None and share.high is not None:
            label = "95% interval of the accuracy" if place == int(bins.counts.argmax()) else ""
            x = bins.mean_confidence[place]
            ax.vlines(x, share.low, share.high, color=BLACK, linewidth=1.1, zorder=4, label=label)


def draw_neighbor_curve(evaluation: Evaluation, path: Path, *, name: str) -> Path:
    """Accuracy and ECE against k (the paper's Figure 2, which has accuracy only).

    Parameters
    ----------
    evaluation, path, name
        As of `draw_reliability`.

    Returns
    -------
    Path
        The file.
    """
    curve = evaluation.curve
    title = f"{name}: {evaluation.n_queries:,} queries; bands: 95% bootstrap intervals"
    figure = new_figure((12, 5.6), title)
    left, right = figure.subplots(1, 2)
    _draw_lines(left, curve, curve.accuracy, bands=True)
    # The ECE of a rule that is always sure is its error, and would dwarf the others.
    errors = {rule: values for rule, values in curve.ece.items() if rule != "1nn"}
    _draw_lines(right, curve, errors)
    left.set_ylabel("Accuracy")
    right.set_ylabel("Expected calibration error")
    right.set_ylim(bottom=0)
    legend_below(figure, 4)
    return save_figure(figure, path)


def draw_neighbor_panels(evaluations: Mapping[str, Evaluation], path: Path) -> Path:
    """Accuracy against k, a panel a data set (the paper's Figure 2).

    Parameters
    ----------
    evaluations : mapping of str to Evaluation
        By data set, one or more.
    path : path
        Where to write the PNG.

    Returns
    -------
    Path
        The file.
    """
    n_columns = min(len(evaluations), PANELS_A_ROW)
    n_rows = -(-len(evaluations) // n_columns)
    title = "Accuracy against k; bands: 95% bootstrap intervals of NED and the default"
    figure = new_figure((4.6 * n_columns, 4.0 * n_rows + 0.8), title)
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for ax, (dataset, evaluation) in zip(axes, evaluations.items(), strict=False):
        _draw_lines(ax, evaluation.curve, evaluation.curve.accuracy, bands=True)
        ax.set_title(f"{dataset}, {evaluation.n_queries:,} queries", fontsize=11)
    for ax in axes[len(evaluations) :]:
        ax.remove()
    legend_below(figure, 4)
    return save_figure(figure, path)


def _draw_lines(
    ax: "Axes",
    curve: NeighborCurve,
    lines: Mapping[str, tuple[float, ...]],
    *,
    bands: bool = False,
) -> None:
    """Fractions against k in percent, each rule where it was asked."""
    ks = np.array(curve.ks)
    for rule in (rule for rule in LINES if rule in lines):
        style, values = line_style(LINES.index(rule)), np.array(lines[rule])
        asked = ~np.isnan(values)
        wide = rule in BANDS
        ax.plot(
            ks[asked],
            values[asked],
            label=title_of(rule),
            color=style.color,
            linestyle=style.dash,
            marker=style.marker,
            linewidth=2.2 if wide else 1.3,
            markersize=6 if wide else 4,
        )
        if bands and wide and rule in curve.accuracy_bands:
            low, high = np.array(curve.accuracy_bands[rule])[asked].T
            ax.fill_between(ks[asked], low, high, color=style.color, alpha=0.2, linewidth=0)
    ax.set_xscale("log")
    ax.set_xticks([k for k in TICKS if ks[0] <= k <= ks[-1]])
    ax.set_xticks([], minor=True)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Neighbours k")
    in_percent(ax)
    ax.grid(visible=True, alpha=0.3)


TICKS = (1, 2, 5, 10, 20, 50, 100, 200)


def in_percent(ax: "Axes") -> None:
    """Write the fractions of the vertical axis in percent, with as many digits as they need."""
    ticker = require("matplotlib.ticker", extra="plot", purpose="A figure")
    ax.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))


def draw_sweep(sweep: Sweep, path: Path, *, name: str) -> Path:
    """Accuracy and ECE of NED against T, with the best baseline of each k as a level.

    Parameters
    ----------
    sweep : Sweep
        The numbers.
    path, name
        As of `draw_reliability`.

    Returns
    -------
    Path
        The file.
    """
    title = f"{name}: NED (lines) and the most accurate baseline (dashed)"
    figure = new_figure((12, 5.4), title)
    left, right = figure.subplots(1, 2)
    for ax, ned, levels in (
        (left, sweep.accuracy, sweep.baseline_accuracy),
        (right, sweep.ece, sweep.baseline_ece),
    ):
        for place, k in enumerate(sweep.ks):
            rule, style = sweep.best_baseline(k), line_style(place)
            look = {"color": style.color, "marker": style.marker, "markersize": 5}
            ax.plot(sweep.factors, ned[place], linewidth=1.8, label=f"NED, k = {k}", **look)
            level, label = levels[rule][place], f"{TITLES[rule]}, k = {k}"
            ax.axhline(level, color=style.color, linestyle="--", linewidth=1.1, label=label)
    right.set_ylim(bottom=0)
    for ax, title in ((left, "Accuracy"), (right, "Expected calibration error")):
        ax.axvline(1.0, color="black", linewidth=0.8, alpha=0.6)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set(xlabel="T / fitted T", ylabel=title)
        ax.grid(visible=True, alpha=0.3)
    legend_below(figure, len(sweep.ks))
    return save_figure(figure, path)


def save_picture(pixels: NDArray[np.uint8], path: str | Path) -> Path:
    """Write pixels as they are, shape (height, width, 3), uint8, to a PNG."""
    require("PIL.Image", extra="plot", purpose="A picture").fromarray(pixels).save(path)
    return Path(path)
