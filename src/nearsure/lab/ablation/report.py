"""The ablation to a folder: README.md, ablation.json, figures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import isotonic_regression

from nearsure.arrays import FloatArray
from nearsure.displays.canvas import BLUE, GREEN, GREY, VERMILION
from nearsure.extras import require
from nearsure.lab.ablation import tables
from nearsure.lab.ablation.results import AblationResults, Group
from nearsure.lab.ablation.run import MAIN_K
from nearsure.lab.ablation.variants import (
    BASELINE_RULES,
    CALIBRATED_BASELINES,
    CLASSIFIER,
    DEFAULT,
    MAIN_VARIANTS,
    NED,
    NEIGHBORS_ALONE,
    PROBES,
    RAW_BASELINES,
    TEMPERED_PROBES,
    UNCORRECTED,
)
from nearsure.lab.cache import to_plain
from nearsure.lab.figures import legend_below, new_figure, save_figure
from nearsure.lab.report import Page, versions
from nearsure.lab.robust.methods import RAW, STEP_TITLES, Method, base_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def spread(
    places: Sequence[float], gap: float, *, low: float = -np.inf, high: float = np.inf
) -> FloatArray:
    """The nearest places, by least squares, that are `gap` or more apart in the same order.

    Labels that would touch form a block that is moved as a whole about its mean.

    Parameters
    ----------
    places : sequence of n floats
        Where the labels belong.
    gap : float
        How far apart they must be.
    low, high : float
        Where the lowest and the highest may be; there must be room for all between them.

    Returns
    -------
    array of shape (n,)
        Where they go.

    Examples
    --------
    >>> spread([0.0, 10.0, 10.0], gap=2.0)
    array([ 0.,  9., 11.])
    """
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(order))
    # Less its rank times the gap, a label must only not lie below the one before it.
    moved = isotonic_regression(np.asarray(places, np.float64)[order] - steps).x
    found = np.empty(len(order))
    found[order] = np.clip(moved, low, high - steps[-1]) + steps
    return found


PALE, DARK, ORANGE, VIOLET = "#9a9a9a", "#333333", "#c98500", "#7b4ea3"
# Panels beside each other; more data sets go on below.
PANELS_A_ROW = 4
MARKERS = {
    RAW: "o",
    "isotonic": "^",
    "platt": "s",
    "shrunk": "D",
    "beta": "v",
    "histogram": "P",
    "bbq": "X",
    "temperature": "<",
    "missed share": "1",
    "missed by confidence": "2",
}
LABEL_SIZE = 8.5
# Height of a label beside a panel, as a share of the panel.
LABEL_HEIGHT = 0.034
# What is less accurate than the neighbours alone by more than this is named, not drawn.
SHOWN_BELOW_NEIGHBORS = 0.045
TITLE_WIDTH = 64


def draw_accuracy_and_calibration(results: AblationResults, k: int, path: Path) -> Path:
    """Accuracy against ECE above its floor, all variants, a panel for each data set.

    A calibrator leaves labels alone, so the variants of one base lie on one level, which is named
    at the right.

    Parameters
    ----------
    results : AblationResults
        The numbers.
    k : int
        Neighbours.
    path : path
        Where to write the PNG.
    """
    groups = [group for group in results.groups("half") if group.first.k == k]
    what = f"Accuracy and calibration of every variant, k = {k}, half splits"
    figure, panels = _panels(len(groups), (6.0, 8.5), what)
    for ax, group in zip(panels, groups, strict=True):
        _draw_field(ax, group)
    _marker_legend(figure)
    return save_figure(figure, path)


def draw_calibration_by_k(results: AblationResults, path: Path) -> Path:
    """ECE against k, a panel for each data set.

    Parameters
    ----------
    results, path
        As of `draw_accuracy_and_calibration`.
    """
    names = results.datasets
    what = "ECE against the number of neighbours, half splits"
    figure, panels = _panels(len(names), (5.4, 5.6), what)
    for ax, name in zip(panels, names, strict=True):
        _draw_curves(ax, [group for group in _half(results) if group.first.dataset == name])
        ax.set_title(name)
    legend_below(figure, 4)
    return save_figure(figure, path)


def _panels(n: int, size: tuple[float, float], title: str) -> "tuple[Figure, list[Axes]]":
    """A figure with n panels of a size in inches, as many in each row as possible."""
    n_columns = min(n, PANELS_A_ROW)
    n_rows = -(-n // n_columns)
    figure = new_figure((n_columns * size[0], n_rows * size[1]), title)
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for ax in axes[n:]:
        ax.remove()
    return figure, axes[:n]


def _draw_field(ax: "Axes", group: Group) -> None:
    level_of = {variant.base: group.mean(variant).accuracy for variant in group.variants}
    lowest = level_of[NEIGHBORS_ALONE.base] - SHOWN_BELOW_NEIGHBORS
    shown = {base: level for base, level in level_of.items() if level >= lowest}
    for variant in group.variants:
        if variant.base not in shown:
            continue
        row = group.mean(variant)
        emphasised = variant == DEFAULT
        ax.scatter(
            100 * row.excess,
            row.accuracy,
            s=260 if emphasised else 46,
            marker="*" if emphasised else MARKERS[variant.step],
            color=_color(variant),
            edgecolor="black" if emphasised else None,
            zorder=4 if emphasised else 3,
            alpha=1.0 if emphasised else 0.8,
        )
    ax.axvline(100 * tables.ALLOWED_EXCESS, color=GREY, linestyle=":", linewidth=1)
    # Even steps up to one point, then powers of ten: both ends of the field stay readable.
    ax.set_xscale("symlog", linthresh=1.0, linscale=1.6)
    ax.set_xticks([-1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50])
    ax.set_xticks([], minor=True)
    ax.xaxis.set_major_formatter(lambda excess, _: f"{excess:g}")
    what = "ECE less its floor, points (dotted: one point)"
    ax.set(xlim=(-0.7, 60), xlabel=what, ylabel="Accuracy")
    ticker = require("matplotlib.ticker", extra="plot", purpose="A figure")
    ax.yaxis.set_major_locator(ticker.MultipleLocator(0.01))
    below = [f"{base_title(base)} {level_of[base]:.1%}" for base in level_of if base not in shown]
    title = f"{group.first.dataset}, mean of {len(group.rows(DEFAULT))} splits"
    named = fill(f"far below: {', '.join(below)}", TITLE_WIDTH) if below else ""
    ax.set_title(f"{title}\n{named}", fontsize=11)
    ax.grid(visible=True, alpha=0.25)
    ax.yaxis.set_major_formatter("{x:.0%}")
    _name_levels(ax, shown)


def _name_levels(ax: "Axes", level_of: Mapping[str, float]) -> None:
    """The bases at the right, each beside its accuracy."""
    low, high = ax.get_ylim()
    names = list(level_of)
    gap = LABEL_HEIGHT * (high - low)
    places = spread([level_of[name] for name in names], gap, low=low + gap / 2, high=high - gap / 2)
    for name, place in zip(names, places, strict=True):
        color = _color(Method(name))
        ax.annotate(
            base_title(name),
            (1.0, level_of[name]),
            (1.06, place),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize=LABEL_SIZE,
            color=GREY if color == PALE else color,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": PALE,
                "linewidth": 0.6,
                "relpos": (0.0, 0.5),
                "shrinkA": 0,
            },
        )
    # Lines to labels must not move the limits that they were placed by.
    ax.set_ylim(low, high)


def _marker_legend(figure: "Figure") -> None:
    """What the shapes mean; colours are named beside the panels."""
    lines = require("matplotlib.lines", extra="plot", purpose="A figure")
    shapes = [(STEP_TITLES.get(step, step), shape, GREY, 7) for step, shape in MARKERS.items()]
    shapes.append(("the default of NEDClassifier", "*", VERMILION, 15))
    handles = [
        lines.Line2D([], [], linestyle="", marker=shape, color=color, markersize=size, label=name)
        for name, shape, color, size in shapes
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)


def _draw_curves(ax: "Axes", groups: list[Group]) -> None:
    ks = [group.first.k for group in groups]

    def line(variant: Method, **style: Any) -> None:  # noqa: ANN401
        ax.plot(ks, [group.mean(variant).ece for group in groups], **style)

    for place, variant in enumerate(RAW_BASELINES[1:]):
        dash = ("-", "--", "-.")[place]
        line(variant, color=PALE, linestyle=dash, marker="o", markersize=4, label=variant.title)
    for rivals, what, marker in (
        (CALIBRATED_BASELINES, "best calibrated baseline, chosen at each k", "s"),
        (TEMPERED_PROBES, "best tempered probe, which has no k", "x"),
    ):
        least = [group.mean(group.best(rivals, "ece")).ece for group in groups]
        color = GREY if rivals is CALIBRATED_BASELINES else DARK
        ax.plot(ks, least, color=color, linestyle=":", marker=marker, label=what)
    line(NED, color=BLUE, marker="o", label=NED.title)
    line(Method("adaptive"), color=GREEN, marker="^", label="Adaptive, before Platt")
    line(NEIGHBORS_ALONE, color=ORANGE, marker="D", label="Neighbours alone")
    line(DEFAULT, color=VERMILION, marker="*", markersize=12, linewidth=2, label="Default")
    floors = [group.mean(DEFAULT).floor for group in groups]
    ax.plot(ks, floors, color=VERMILION, linestyle=(0, (1, 3)), label="Default's floor")
    ax.set(xlabel="k", xticks=ks, yscale="log", ylabel="Expected calibration error")
    ax.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    ax.set_yticks([], minor=True)
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    ax.grid(visible=True, alpha=0.25)


def _color(variant: Method) -> str:
    base = variant.base.removesuffix(UNCORRECTED)
    if base in BASELINE_RULES:
        return PALE
    if base in PROBES:
        return DARK
    named = {"ned": BLUE, "adaptive": ORANGE, "sharpened": GREEN, CLASSIFIER: VERMILION}
    return named.get(base, VIOLET)


INTRODUCTION = """\
Every rule and form of nearsure with every calibrator, all fitted on the gallery's leave-one-out
scores and measured on queries that no fit has seen (but for "every point against all others", where
it says so). "Nearsure (default)" is `NEDClassifier` as it comes, and what the goals are about. What
it makes of the neighbours alone is the adaptive form with the leave-one-out correction and shrunk
Platt scaling. Here that is fitted on all gallery points; the classifier takes 10,000 at most. The
full class covariance is slow, and is measured at k = 50 on fewer half splits.

ECE has 15 bins of equal width. Its floor is what a perfectly calibrated forecaster with the same
confidences would show. Brier scores are over all classes. "Half and half": a random half of every
class is the gallery, the other half asks; numbers are means over the splits, and an interval after
a difference is Student's at 95%, paired by split. Splits of one data set share their points, so
these intervals are about the split, not about other data.

The baselines are 1NN, kNN, and the weighted rules of Dudani and of Gou. "The best calibrated
baseline" is the best of kNN, Dudani and Gou with any of seven calibrators. It is chosen by the very
number that it is compared in, which favours it; and histograms and BBQ have few distinct
confidences, which fill fewer bins and have a lower floor. 1NN is not among them: its confidence is
always 1, calibrated it is one number for every query, the base rate, and the ECE of that is about 0
and says nothing.

Probes use the vectors and no neighbours, and are the same at every k: the nearest class mean,
linear discriminant analysis with Ledoit and Wolf's shrinkage, and multinomial logistic regression,
raw and with one temperature, which is fitted on scores out of fold (5 folds of the gallery), as is
the penalty of logistic regression. "The best tempered probe" is chosen by the very number, too.

Halves of ESC-50 are random: clips of one recording may be on both sides."""
ALL_AGAINST_OTHERS = """\
Every point asks all the others, and everything is fitted on the very points that are scored: an
isotonic or histogram calibrator has an ECE of 0 here by construction, so no goal is read off these
tables. A query's own class lacks one member, too, which the leave-one-out correction gives back as
if the query came from outside."""
CORRUPTED = """\
Gallery, parameters and calibrators are those of clean images. Means over 15 corruptions at 5 \
severities, strict protocol."""
CLOUD, CURVES = "accuracy-and-calibration.png", "calibration-by-k.png"
GOALS_HEAD = {
    "half": "Means over the splits:",
    "given": "The data set's own split:",
    "scarce": "Galleries of 2 to 12 members a class, for which no goal was set:",
}


def write_ablation(folder: Path, results: AblationResults, *, command: str) -> list[Path]:
    """Write everything.

    Parameters
    ----------
    folder : Path
        Where; it is made if need be.
    results : AblationResults
        The numbers.
    command : str
        What a reader types to get the same.
    """
    document = {
        "command": command,
        "versions": versions(),
        **to_plain(results),
        "goals": to_plain(list(tables.all_goals(results))),
    }
    draw_accuracy_and_calibration(results, MAIN_K, folder / CLOUD)
    draw_calibration_by_k(results, folder / CURVES)
    return make_page(folder, results, command=command).write("ablation.json", document)


def make_page(folder: Path, results: AblationResults, *, command: str) -> Page:
    """The README of an ablation whose pictures are in a folder."""
    page = Page(folder)
    page.add("# Ablation", f"Made by `{command}`.", INTRODUCTION)
    page.add(*_goals(list(tables.all_goals(results))))
    page.add_picture("Accuracy and calibration", folder / CLOUD)
    page.add_picture("ECE by k", folder / CURVES)
    main_groups = [group for group in _half(results) if group.first.k == MAIN_K]
    page.add("## What each part of the default adds", f"Half and half, k = {MAIN_K}, in points.")
    for group in main_groups:
        page.add(f"### {group.first.dataset}", tables.ladder_table(group))
    page.add(f"## Every variant, k = {MAIN_K}")
    for group in main_groups:
        page.add(f"### {_circumstances(group)}", tables.group_table(group))
    page.add("## Main variants at each k")
    for name in results.datasets:
        groups = [group for group in _half(results) if group.first.dataset == name]
        page.add(f"### {name}, half and half", tables.by_k_table(groups, MAIN_VARIANTS))
    page.add("## Single splits, with bootstrap intervals over the queries")
    every = results.groups("all")
    for groups, head in (
        (results.groups("given"), ""),
        (every, ALL_AGAINST_OTHERS if every else ""),
    ):
        page.add(head)
        for group in groups:
            page.add(f"### {_circumstances(group)}", tables.interval_table(group, MAIN_VARIANTS))
    page.add("## Scarce galleries")
    for group in results.groups("scarce"):
        page.add(f"### {_circumstances(group)}", tables.group_table(group, MAIN_VARIANTS))
    page.add(*(("## Corrupted queries", CORRUPTED) if results.corrupted else ()))
    for result in results.corrupted:
        page.add(f"### {result.dataset}, {result.n_queries:,} queries, k = {result.k}")
        page.add(tables.corrupted_table(result))
    page.add(*_remarks(results))
    return page


def _goals(goals: Sequence[tables.Goal]) -> Iterator[str]:
    yield "## Goals"
    for condition, head in GOALS_HEAD.items():
        chosen = [goal for goal in goals if goal.condition == condition]
        if chosen:
            yield f"{head} {tables.goal_sentence(chosen)}"
            yield tables.goal_table(chosen)


def _remarks(results: AblationResults) -> Iterator[str]:
    notes = dict.fromkeys(
        f"{trial.dataset}, {trial.condition}, seed {trial.seed}, k = {trial.k}: {note}"
        for trial in results.trials
        for note in trial.notes
    )
    if results.skipped or notes:
        yield "## Remarks"
        yield "\n".join(
            f"- {line}" for line in (*map("skipped: {}".format, results.skipped), *notes)
        )


def _half(results: AblationResults) -> list[Group]:
    return [group for group in results.groups("half") if DEFAULT in group.variants]


def _circumstances(group: Group) -> str:
    first, n = group.first, len(group.rows(NEIGHBORS_ALONE))
    splits = f"mean of {n} splits" if n > 1 else "one split"
    return (
        f"{first.dataset}, k = {first.k}, {splits}: {first.n_gallery:,} gallery points of "
        f"{first.n_classes} classes, {first.n_queries:,} queries"
    )
