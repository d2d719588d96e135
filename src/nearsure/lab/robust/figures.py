"""Figures of robustness results as PNG, drawn from stored numbers alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.displays.canvas import BLACK, GREY, LineStyle, line_style
from nearsure.lab.figures import in_percent, legend_below, new_figure, save_figure
from nearsure.lab.robust.evaluation import Outcome, RobustEvaluation, best_baseline
from nearsure.lab.robust.methods import NED, Method
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
    calibrated = best_baseline([mean])
    own = mean.lowest_ece([Method("ned", "isotonic"), Method("ned", "platt")]).method
    what = f"mean over {len(evaluation.by_corruption)} corruptions"
    figure = new_figure((16, 5.6), _title(evaluation, name, what))
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
    error = "Expected calibration error"
    for ax, title in ((left, "Accuracy"), (middle, error), (right, f"{error}, enlarged")):
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
    """A rule's own style; calibrated ones have the two that no rule has."""
    if method.step == "raw":
        return line_style(RULE_NAMES.index(method.base))
    return line_style(len(RULE_NAMES) + (method.base == "ned"))


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
DASHES = ("-", "--", ":", "-.")  # one a model


def draw_attack_curves(
    evaluations: Mapping[str, RobustEvaluation], path: Path, *, name: str
) -> Path:
    """NED's accuracy, ECE and share of confidently wrong answers against epsilon.

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
    attacks = dict.fromkeys(attack for outcomes in found.values() for attack in outcomes)
    epsilons = sorted({attack.epsilon for attack in attacks if attack != NO_ATTACK})
    names = list(dict.fromkeys(attack.name for attack in attacks if attack != NO_ATTACK))
    # A logarithmic axis has no 0: clean queries stand a little before the first epsilon.
    places = {epsilon: float(np.log2(epsilon)) for epsilon in epsilons}
    places[0.0] = places[epsilons[0]] - 1.5
    counts = sorted({evaluation.n_queries for evaluation in evaluations.values()})
    asked = " or ".join(f"{n:,}" for n in counts)
    figure = new_figure((16, 6), f"{name}: NED under attack, {asked} queries")
    axes = figure.subplots(1, 3)
    for ax, (measure, title) in zip(axes, TITLES.items(), strict=True):
        for number, (model, outcomes) in enumerate(found.items()):
            for color, attack in enumerate(names):
                line = _intervals(outcomes, attack, measure, first=epsilons[0])
                # A little apart, so that intervals at one epsilon do not hide each other.
                aside = 0.05 * (color + len(names) * number)
                x = [places[epsilon] + aside for epsilon in line]
                dash, label = DASHES[number % len(DASHES)], f"{AttackKey(attack, 0).title}, {model}"
                look = {"linestyle": dash, "markersize": 6, "label": label}
                style = line_style(color)
                low, high = _plot(ax, x, list(line.values()), style, **look)
                # Not error bars: an interval that takes the bias off may lie beside its estimate.
                ax.vlines(x, low, high, color=style.color, linewidth=0.9, alpha=0.8)
        ax.set(xlabel="Largest change of a pixel, epsilon", ylabel=title)
        texts = ["clean", *map(epsilon_text, epsilons)]
        ax.set_xticks([places[epsilon] for epsilon in (0.0, *epsilons)], texts, rotation=30)
        ax.set_ylim(bottom=0)
        in_percent(ax)
        ax.grid(visible=True, alpha=0.3)
    draw_claims(axes[1])
    floor = max(evaluation.clean.of(NED).ece_floor for evaluation in evaluations.values())
    axes[1].axhline(floor, color=GREY, linestyle=":", label="ECE floor of NED, clean")
    legend_below(figure, len(names))
    return save_figure(figure, path)


def _intervals(
    outcomes: Mapping[AttackKey, Outcome], name: str, measure: str, *, first: float
) -> dict[float, Interval]:
    """A measure of NED under one attack, by epsilon."""
    chosen = {attack.epsilon: found for attack, found in outcomes.items() if attack.name == name}
    # A line from clean to a far epsilon would pass values that were not measured.
    if first in chosen:
        chosen[0.0] = outcomes[NO_ATTACK]
    return {epsilon: chosen[epsilon].of(NED).interval(measure) for epsilon in sorted(chosen)}
