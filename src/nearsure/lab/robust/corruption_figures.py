"""Corrupted queries as PNG, drawn from stored numbers alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.displays.canvas import BLACK, GREY, LineStyle, line_style
from nearsure.lab.figure_canvas import entitle, new_figure, saved
from nearsure.lab.robust.baselines import best_baseline
from nearsure.lab.robust.corruption_tables import mean_of_corruptions
from nearsure.lab.robust.figure_parts import draw_claims, in_percent, legend_below
from nearsure.lab.robust.methods import NED, Method
from nearsure.lab.robust.outcomes import Outcome
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.rules import RULE_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DARK = 0.6  # of a colour scale; on it text is white


def draw_severity_curves(
    evaluation: RobustEvaluation, path: str | Path, *, name: str | None = None
) -> Path:
    """Accuracy and ECE against the severity, mean over the corruptions, 0 being clean.

    Parameters
    ----------
    evaluation : RobustEvaluation
        The numbers; it must have corruptions.
    path : path
        Where to write the PNG; its folder is made if need be.
    name : str, optional
        Name of the data, for the title.

    Returns
    -------
    Path
        The file.
    """
    outcomes = {0: evaluation.clean, **evaluation.by_severity}
    mean = mean_of_corruptions(evaluation)
    calibrated = best_baseline([mean])
    own = mean.lowest_ece([Method("ned", "isotonic"), Method("ned", "platt")]).method
    figure = new_figure((16, 5.6))
    left, middle, right = figure.subplots(1, 3)
    # Calibration leaves the labels alone, so accuracy has a line for each rule only.
    for rule in RULE_NAMES:
        _line(left, outcomes, Method(rule), "accuracy")
    # The ECE of a rule that is always sure is its error, and would dwarf the others.
    for method in (*map(Method, RULE_NAMES[1:]), calibrated, own):
        _line(middle, outcomes, method, "ece", band=False)
    for method in (NED, calibrated, own):
        _line(right, outcomes, method, "ece")
    floors = [outcome.of(NED).ece_floor for outcome in outcomes.values()]
    right.plot(list(outcomes), floors, color=GREY, linestyle=":", label="ECE floor of NED")
    for ax in (middle, right):
        draw_claims(ax)
        ax.set_ylim(bottom=0)
    left.set_ylabel("Accuracy")
    middle.set_ylabel("Expected calibration error")
    right.set_ylabel("Expected calibration error, enlarged")
    for ax in (left, middle, right):
        ax.set_xlabel("Severity")
        ax.set_xticks(list(outcomes), ["clean", *map(str, evaluation.by_severity)])
        in_percent(ax)
        ax.grid(visible=True, alpha=0.3)
    legend_below(figure, 4)
    what = f"mean over {len(evaluation.by_corruption)} corruptions"
    entitle(figure, name, _circumstances(evaluation, what))
    return saved(figure, path)


def draw_corruption_map(
    evaluation: RobustEvaluation, path: str | Path, *, name: str | None = None
) -> Path:
    """NED's accuracy and ECE under every corruption at every severity, and a baseline's ECE.

    Parameters
    ----------
    evaluation, path, name
        As of `draw_severity_curves`.

    Returns
    -------
    Path
        The file.
    """
    baseline = best_baseline([mean_of_corruptions(evaluation)])
    height = 1.6 + 0.36 * (len(evaluation.by_corruption) + 1)
    figure = new_figure((15, height))
    axes = figure.subplots(1, 3, sharey=True)
    accuracy = _grid(evaluation, NED, "accuracy")
    errors = {method: _grid(evaluation, method, "ece") for method in (NED, baseline)}
    # Both panels of ECE have one scale, so that colours may be compared.
    largest = float(np.nanmax(list(errors.values())))
    _map(axes[0], evaluation, accuracy, "Blues", (0.0, 1.0))
    clean = evaluation.clean.of(NED)
    axes[0].set_title(f"NED: accuracy %, clean {100 * clean.accuracy.estimate:.1f}")
    for ax, (method, error) in zip(axes[1:], errors.items(), strict=True):
        _map(ax, evaluation, error, "Oranges", (0.0, largest))
        clean = evaluation.clean.of(method)
        ax.set_title(f"{method.title}: ECE %, clean {100 * clean.ece.estimate:.1f}")
    entitle(figure, name, _circumstances(evaluation, "every corruption and severity"))
    return saved(figure, path)


def _line(
    ax: "Axes",
    outcomes: Mapping[int, Outcome],
    method: Method,
    measure: str,
    *,
    band: bool = True,
) -> None:
    style = _style(method)
    intervals = [outcome.of(method).interval(measure) for outcome in outcomes.values()]
    x = list(outcomes)
    ax.plot(
        x,
        [interval.estimate for interval in intervals],
        color=style.color,
        linestyle=style.dash,
        marker=style.marker,
        markersize=5,
        linewidth=2.4 if method == NED else 1.5,
        label=method.title,
    )
    if band:
        ends = np.array([(interval.low, interval.high) for interval in intervals])
        ax.fill_between(x, ends[:, 0], ends[:, 1], color=style.color, alpha=0.12, linewidth=0)


def _style(method: Method) -> LineStyle:
    """A rule's own style; calibrated ones have the two that no rule has."""
    if method.calibration == "raw":
        return line_style(RULE_NAMES.index(method.rule))
    return line_style(len(RULE_NAMES) + (method.rule == "ned"))


def _grid(evaluation: RobustEvaluation, method: Method, measure: str) -> FloatArray:
    """A measure by corruption and severity; the last row is the mean."""
    names, severities = list(evaluation.by_corruption), list(evaluation.by_severity)
    grid = np.full((len(names) + 1, len(severities)), np.nan)
    for entry in evaluation.corruptions:
        row, column = names.index(entry.variant.name), severities.index(entry.variant.severity or 0)
        grid[row, column] = entry.outcome.of(method).interval(measure).estimate
    for column, outcome in enumerate(evaluation.by_severity.values()):
        grid[-1, column] = outcome.of(method).interval(measure).estimate
    return grid


def _map(
    ax: "Axes",
    evaluation: RobustEvaluation,
    grid: FloatArray,
    colors: str,
    limits: tuple[float, float],
) -> None:
    ax.imshow(grid, cmap=colors, vmin=limits[0], vmax=limits[1], aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        if not np.isnan(value):
            dark = (value - limits[0]) / max(limits[1] - limits[0], 1e-12) > DARK
            ax.text(
                column,
                row,
                f"{100 * value:.1f}",
                ha="center",
                va="center",
                color="white" if dark else BLACK,
                fontsize=9,
            )
    ax.axhline(len(grid) - 1.5, color="white", linewidth=4)
    names = [corruption.replace("_", " ") for corruption in evaluation.by_corruption]
    ax.set_yticks(range(len(grid)), [*names, "mean"])
    ax.set_xticks(range(grid.shape[1]), [str(severity) for severity in evaluation.by_severity])
    ax.tick_params(length=0)
    ax.set_xlabel("Severity")


def _circumstances(evaluation: RobustEvaluation, what: str) -> str:
    return f"{evaluation.model}, {what}, {evaluation.n_queries:,} queries, k = {evaluation.k}"
