"""Figures of results as PNG, drawn from stored numbers alone."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearsure.comparison import TITLES
from nearsure.displays import NeighborCurveDisplay, ReliabilityDisplay
from nearsure.displays.canvas import line_style
from nearsure.extras import require
from nearsure.lab.evaluation import Evaluation, Sweep
from nearsure.rules import RuleName

if TYPE_CHECKING:
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
UNSURE_RULES: tuple[RuleName, ...] = ("knn", "dudani", "gou", "ned")


def draw_reliability(evaluation: Evaluation, path: Path, *, name: str) -> Path:
    """Reliability diagrams of kNN, Dudani, Gou and NED (the paper's Figure 1).

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
    title = f"{name}: k = {evaluation.k}, {evaluation.n_queries:,} queries"
    figure = new_figure((10, 10.4), title)
    for ax, rule in zip(figure.subplots(2, 2).flat, UNSURE_RULES, strict=True):
        error = evaluation.result_of(rule).ece.estimate
        ReliabilityDisplay(evaluation.reliability[rule], error, TITLES[rule]).plot(ax=ax)
    return save_figure(figure, path)


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
    display = NeighborCurveDisplay(
        curve.ks,
        {TITLES[rule]: values for rule, values in curve.accuracy.items()},
        # The ECE of a rule that is always sure is its error, and would dwarf the others.
        {TITLES[rule]: curve.ece[rule] for rule in UNSURE_RULES},
    )
    figure = new_figure((12, 5), f"{name}: {evaluation.n_queries:,} queries")
    display.plot(ax=list(figure.subplots(1, 2)))
    return save_figure(figure, path)


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
