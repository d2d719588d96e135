"""The ablation in two pictures, from stored numbers alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearsure.displays.canvas import BLUE, GREEN, GREY, VERMILION
from nearsure.extras import require
from nearsure.lab.ablation.goals import ALLOWED_EXCESS
from nearsure.lab.ablation.label_places import spread
from nearsure.lab.ablation.results import AblationResults, Group
from nearsure.lab.ablation.variants import (
    BASE_TITLES,
    BASELINE_RULES,
    CALIBRATED_BASELINES,
    DEFAULT,
    NED,
    RAW,
    RAW_BASELINES,
    STEP_TITLES,
    UNCORRECTED,
    Variant,
)
from nearsure.lab.figure_canvas import entitle, new_figure, saved
from nearsure.lab.robust.figure_parts import legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALE = "#9a9a9a"
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
# What is less accurate than the default by more than this is named, not drawn.
SHOWN_BELOW_DEFAULT = 0.045


def draw_accuracy_and_calibration(results: AblationResults, k: int, path: str | Path) -> Path:
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
    figure = new_figure((6.0 * len(groups), 8.5))
    for ax, group in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        _draw_field(ax, group)
    _marker_legend(figure)
    entitle(figure, None, f"Accuracy and calibration of every variant, k = {k}, half splits")
    return saved(figure, path)


def draw_calibration_by_k(results: AblationResults, path: str | Path) -> Path:
    """ECE against k, a panel for each data set.

    Parameters
    ----------
    results, path
        As of `draw_accuracy_and_calibration`.
    """
    names = results.datasets
    figure = new_figure((5.4 * len(names), 5.6))
    for ax, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        groups = [group for group in results.groups("half") if group.first.dataset == name]
        _draw_curves(ax, [group for group in groups if DEFAULT in group.variants])
        ax.set_title(name)
    legend_below(figure, 4)
    entitle(figure, None, "ECE against the number of neighbours, half splits")
    return saved(figure, path)


def _draw_field(ax: "Axes", group: Group) -> None:
    level_of = {variant.base: group.mean(variant).accuracy for variant in group.variants}
    lowest = level_of[DEFAULT.base] - SHOWN_BELOW_DEFAULT
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
    ax.axvline(100 * ALLOWED_EXCESS, color=GREY, linestyle=":", linewidth=1)
    # Even steps up to one point, then powers of ten: both ends of the field stay readable.
    ax.set_xscale("symlog", linthresh=1.0, linscale=1.6)
    ticker = require("matplotlib.ticker", extra="plot", purpose="A figure")
    ax.set_xticks([-1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50])
    ax.set_xlim(-0.7, 60)
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    ax.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.set_xlabel("ECE less its floor, points (dotted: one point)")
    ax.set_ylabel("Accuracy")
    ax.yaxis.set_major_locator(ticker.MultipleLocator(0.01))
    below = [f"{BASE_TITLES[base]} {level_of[base]:.1%}" for base in level_of if base not in shown]
    title = f"{group.first.dataset}, mean of {len(group.rows(DEFAULT))} splits"
    ax.set_title(f"{title}\nfar below: {', '.join(below)}" if below else title, fontsize=11)
    ax.grid(visible=True, alpha=0.25)
    ax.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
    _name_levels(ax, shown)


def _name_levels(ax: "Axes", level_of: Mapping[str, float]) -> None:
    """The bases at the right, each beside its accuracy."""
    low, high = ax.get_ylim()
    names = list(level_of)
    gap = LABEL_HEIGHT * (high - low)
    places = spread([level_of[name] for name in names], gap, low=low + gap / 2, high=high - gap / 2)
    for name, place in zip(names, places, strict=True):
        color = _color(Variant(name))
        ax.annotate(
            BASE_TITLES[name],
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
    shapes = [(STEP_TITLES[step] or RAW, marker, GREY, 7) for step, marker in MARKERS.items()]
    shapes.append(("default: adaptive + shrunk", "*", VERMILION, 15))
    handles = [
        lines.Line2D([], [], linestyle="", marker=shape, color=color, markersize=size, label=name)
        for name, shape, color, size in shapes
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)


def _draw_curves(ax: "Axes", groups: list[Group]) -> None:
    ks = [group.first.k for group in groups]

    def line(variant: Variant, **style: Any) -> None:  # noqa: ANN401
        ax.plot(ks, [group.mean(variant).ece for group in groups], **style)

    for place, variant in enumerate(RAW_BASELINES[1:]):
        dash = ("-", "--", "-.")[place]
        line(variant, color=PALE, linestyle=dash, marker="o", markersize=4, label=variant.title)
    best = [group.best(CALIBRATED_BASELINES, "ece") for group in groups]
    ax.plot(
        ks,
        [group.mean(variant).ece for group, variant in zip(groups, best, strict=True)],
        color=GREY,
        linestyle=":",
        marker="s",
        label="best calibrated baseline, chosen at each k",
    )
    line(NED, color=BLUE, marker="o", label=NED.title)
    line(Variant("adaptive"), color=GREEN, marker="^", label="Adaptive, before Platt")
    line(DEFAULT, color=VERMILION, marker="*", markersize=12, linewidth=2, label="Default")
    floors = [group.mean(DEFAULT).floor for group in groups]
    ax.plot(ks, floors, color=VERMILION, linestyle=(0, (1, 3)), label="Default's floor")
    ax.set_xlabel("k")
    ax.set_xticks(ks)
    ax.set_yscale("log")
    ticker = require("matplotlib.ticker", extra="plot", purpose="A figure")
    ax.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    ax.yaxis.set_minor_locator(ticker.NullLocator())
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    ax.set_ylabel("Expected calibration error")
    ax.grid(visible=True, alpha=0.25)


def _color(variant: Variant) -> str:
    base = variant.base.removesuffix(UNCORRECTED)
    if base in BASELINE_RULES:
        return PALE
    return {"ned": BLUE, "adaptive": VERMILION, "sharpened": GREEN}.get(base, "#7b4ea3")
