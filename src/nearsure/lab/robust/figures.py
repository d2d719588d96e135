"""Figures of robustness results as PNG, drawn from stored numbers alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.displays.canvas import BLACK, GREY, LineStyle, line_style
from nearsure.lab.figures import in_percent, legend_below, new_figure, save_figure
from nearsure.lab.robust.evaluation import Outcome, RobustEvaluation, best_baseline
from nearsure.lab.robust.methods import DEFAULT, NED, NEIGHBORS_ALONE, Method
from nearsure.lab.robust.settings import epsilon_text
from nearsure.lab.robust.tables import NO_ATTACK, AttackKey, attacked_outcomes, mean_of_corruptions
from nearsure.metrics import Interval
from nearsure.rules import RULE_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# What the paper's mean ECEs stay below.
CLAIMS = (0.03, 0.04)


def draw_claims(ax: "Axes") -> None:
    """The band that the paper's ECE stays below, named at the right."""
    low, high = CLAIMS
    ax.axhspan(low, high, color=BLACK, alpha=0.18, linewidth=0)
    ax.annotate(
        f"{100 * low:g}-{high:.0%}",
        (1, (low + high) / 2),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


# Whose intervals are drawn: bands of all would hide each other.
BANDS = (NED, DEFAULT)
DARK = 0.6  # of a colour scale; on it text is white


def draw_severity_curves(evaluation: RobustEvaluation, path: Path, *, name: str) -> Path:
    """Accuracy and ECE against the severity, mean over the corruptions, 0 being clean.

    Parameters
    ----------
    evaluation : RobustEvaluation
        The numbers; it must have corruptions.
    path : path
        Where to write the PNG; its folder is made if need be.
    name : str
        Name of the data, for the title.

    Returns
    -------
    Path
        The file.
    """
    outcomes = {0: evaluation.clean, **evaluation.by_severity}
    mean = mean_of_corruptions(evaluation)
    measured = {result.method for result in mean.results}
    own = tuple(method for method in (NEIGHBORS_ALONE, DEFAULT) if method in measured)
    what = f"mean over {len(evaluation.by_corruption)} corruptions"
    figure = new_figure((12, 5.6), _title(evaluation, name, what))
    left, right = figure.subplots(1, 2)
    # Calibration leaves the labels alone, so accuracy has a line for each rule only; Dudani's is
    # hardly told from Gou's.
    for method in (*map(Method, ("1nn", "knn", "gou", "ned")), *own[-1:]):
        _line(left, outcomes, method, "accuracy", band=method in BANDS)
    for method in (NED, best_baseline([mean]), *own):
        _line(right, outcomes, method, "ece", band=False)
    floors = [outcome.of(NED).ece_floor for outcome in outcomes.values()]
    right.plot(list(outcomes), floors, color=GREY, linestyle=":", label="ECE floor of NED")
    draw_claims(right)
    right.set_ylim(bottom=0)
    for ax, title in ((left, "Accuracy"), (right, "Expected calibration error")):
        ax.set(xlabel="Severity", ylabel=title)
        ax.set_xticks(list(outcomes), ["clean", *map(str, evaluation.by_severity)])
        in_percent(ax)
        ax.grid(visible=True, alpha=0.3)
    legend_below(figure, 4)
    return save_figure(figure, path)


def draw_corruption_map(evaluation: RobustEvaluation, path: Path, *, name: str) -> Path:
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
    figure = new_figure((15, height), _title(evaluation, name, "every corruption and severity"))
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
    return save_figure(figure, path)


def _line(
    ax: "Axes", outcomes: Mapping[int, Outcome], method: Method, measure: str, *, band: bool = True
) -> None:
    style, x = _style(method), list(outcomes)
    line = [outcome.of(method).interval(measure) for outcome in outcomes.values()]
    width = 2.4 if method == NED else 1.5
    look = {"linestyle": style.dash, "markersize": 5, "linewidth": width, "label": method.title}
    low, high = _plot(ax, x, line, style, **look)
    if band:
        ax.fill_between(x, low, high, color=style.color, alpha=0.12, linewidth=0)


def _plot(
    ax: "Axes",
    x: Sequence[float],
    line: Sequence[Interval],
    style: LineStyle,
    **look: Any,  # noqa: ANN401
) -> tuple[list[float], list[float]]:
    """Draw the estimates; gives the low and the high ends."""
    estimates = [interval.estimate for interval in line]
    ax.plot(x, estimates, color=style.color, marker=style.marker, **look)
    return [interval.low for interval in line], [interval.high for interval in line]


def _style(method: Method) -> LineStyle:
    """A rule's own style, as in the figures of clean queries; calibrated ones share one more."""
    names = (*RULE_NAMES, NEIGHBORS_ALONE.base, DEFAULT.base)
    if method.step == "raw" and method.base in names:
        return line_style(names.index(method.base))
    return LineStyle(GREY, "--", "s")


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


def _title(evaluation: RobustEvaluation, name: str, what: str) -> str:
    asked = f"{evaluation.n_queries:,} queries, k = {evaluation.k}"
    return f"{name}: {evaluation.model}, {what}, {asked}"


TITLES = {
    "accuracy": "Accuracy",
    "ece": "Expected calibration error",
    "confidently_wrong": "Wrong with a confidence of 90% or more",
}
# The strongest plain attack and the one on the confidence; those between are in the tables.
DRAWN_ATTACKS = {"pgd": ("-", "o"), "confidence": ("--", "D")}


def draw_attack_curves(
    evaluations: Mapping[str, RobustEvaluation], path: Path, *, name: str
) -> Path:
    """Accuracy, ECE and share of confidently wrong answers of NED and the default by epsilon.

    Parameters
    ----------
    evaluations : mapping of str to RobustEvaluation
        By model, of the same protocol; they must have attacks.
    path : path
        Where to write the PNG; its folder is made if need be.
    name : str
        Name of the data, for the title.

    Returns
    -------
    Path
        The file.
    """
    found = {model: attacked_outcomes(evaluation) for model, evaluation in evaluations.items()}
    attacks = {attack for outcomes in found.values() for attack in outcomes}
    drawn = [attack for attack in attacks if attack.name in DRAWN_ATTACKS]
    epsilons = sorted({attack.epsilon for attack in drawn or attacks - {NO_ATTACK}})
    # A logarithmic axis has no 0: clean queries stand a little before the first epsilon.
    places = {epsilon: float(np.log2(epsilon)) for epsilon in epsilons}
    places[0.0] = places[epsilons[0]] - 1.5
    counts = sorted({evaluation.n_queries for evaluation in evaluations.values()})
    asked = " or ".join(f"{n:,}" for n in counts)
    figure = new_figure((15, 4.2 * len(found) + 0.8), f"{name}: attacked, {asked} queries")
    rows = figure.subplots(len(found), 3, squeeze=False, sharey="col")
    for axes, (model, outcomes) in zip(rows, found.items(), strict=True):
        methods = [method for method in BANDS if method in _methods(outcomes)]
        for ax, (measure, title) in zip(axes, TITLES.items(), strict=True):
            for number, method in enumerate(methods):
                for attack, (dash, marker) in DRAWN_ATTACKS.items():
                    line = _intervals(outcomes, attack, method, measure, first=epsilons[0])
                    # A little apart, so that intervals at one epsilon do not hide each other.
                    x = [places[epsilon] + 0.08 * number for epsilon in line]
                    style = LineStyle(_style(method).color, dash, marker)
                    label = f"{method.title}, {ATTACK_TITLES[attack]}"
                    look = {"linestyle": dash, "markersize": 5, "label": label}
                    low, high = _plot(ax, x, list(line.values()), style, **look)
                    if measure != "ece":
                        # That of an ECE takes the bias off, and may lie beside the point.
                        ax.vlines(x, low, high, color=style.color, linewidth=0.9, alpha=0.7)
            ax.set(xlabel="Largest change of a pixel, epsilon", ylabel=title)
            texts = ["clean", *map(epsilon_text, epsilons)]
            ax.set_xticks([places[epsilon] for epsilon in (0.0, *epsilons)], texts, rotation=30)
            ax.set_ylim(bottom=0)
            in_percent(ax)
            ax.grid(visible=True, alpha=0.3)
        axes[1].set_title(model)
        draw_claims(axes[1])
    legend_below(figure, 4)
    return save_figure(figure, path)


ATTACK_TITLES = {"pgd": "PGD", "confidence": "the attack on the confidence"}


def _methods(outcomes: Mapping[AttackKey, Outcome]) -> set[Method]:
    return {result.method for result in outcomes[NO_ATTACK].results}


def _intervals(
    outcomes: Mapping[AttackKey, Outcome],
    name: str,
    method: Method,
    measure: str,
    *,
    first: float,
) -> dict[float, Interval]:
    """A measure of a method under one attack, by epsilon."""
    chosen = {attack.epsilon: found for attack, found in outcomes.items() if attack.name == name}
    # A line from clean to a far epsilon would pass values that were not measured.
    if first in chosen:
        chosen[0.0] = outcomes[NO_ATTACK]
    return {epsilon: chosen[epsilon].of(method).interval(measure) for epsilon in sorted(chosen)}
