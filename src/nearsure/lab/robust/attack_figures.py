"""Attacked queries as PNG, drawn from stored numbers alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nearsure.displays.canvas import GREY, line_style
from nearsure.lab.figure_canvas import entitle, new_figure, saved
from nearsure.lab.robust.attack_tables import NO_ATTACK, AttackKey, attacked_outcomes
from nearsure.lab.robust.figure_parts import draw_claims, in_percent, legend_below
from nearsure.lab.robust.methods import NED
from nearsure.lab.robust.outcomes import Outcome
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.lab.robust.variants import epsilon_text
from nearsure.metrics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {
    "accuracy": "Accuracy",
    "ece": "Expected calibration error",
    "confidently_wrong": "Wrong with a confidence of 90% or more",
}
DASHES = ("-", "--", ":", "-.")  # one a model


def draw_attack_curves(
    evaluations: Mapping[str, RobustEvaluation], path: str | Path, *, name: str | None = None
) -> Path:
    """NED's accuracy, ECE and share of confidently wrong answers against epsilon.

    Parameters
    ----------
    evaluations : mapping of str to RobustEvaluation
        By model, of the same protocol; they must have attacks.
    path : path
        Where to write the PNG; its folder is made if need be.
    name : str, optional
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
    figure = new_figure((16, 6))
    axes = figure.subplots(1, 3)
    for ax, (measure, title) in zip(axes, TITLES.items(), strict=True):
        for number, (model, outcomes) in enumerate(found.items()):
            for color, attack in enumerate(names):
                line = _intervals(outcomes, attack, measure, first=epsilons[0])
                # A little apart, so that intervals at one epsilon do not hide each other.
                aside = 0.05 * (color + len(names) * number)
                placed = {places[epsilon] + aside: found for epsilon, found in line.items()}
                _draw(ax, placed, (color, number))
                ax.get_lines()[-1].set_label(f"{AttackKey(attack, 0).title}, {model}")
        ax.set_ylabel(title)
        ax.set_xlabel("Largest change of a pixel, epsilon")
        texts = ["clean", *map(epsilon_text, epsilons)]
        ax.set_xticks([places[epsilon] for epsilon in (0.0, *epsilons)], texts, rotation=30)
        ax.set_ylim(bottom=0)
        in_percent(ax)
        ax.grid(visible=True, alpha=0.3)
    draw_claims(axes[1])
    floor = max(evaluation.clean.of(NED).ece_floor for evaluation in evaluations.values())
    axes[1].axhline(floor, color=GREY, linestyle=":", label="ECE floor of NED, clean")
    legend_below(figure, len(names))
    counts = sorted({evaluation.n_queries for evaluation in evaluations.values()})
    entitle(figure, name, f"NED under attack, {' or '.join(f'{n:,}' for n in counts)} queries")
    return saved(figure, path)


def _intervals(
    outcomes: Mapping[AttackKey, Outcome], name: str, measure: str, *, first: float
) -> dict[float, Interval]:
    """A measure of NED under one attack, by epsilon."""
    chosen = {attack.epsilon: found for attack, found in outcomes.items() if attack.name == name}
    # A line from clean to a far epsilon would pass values that nobody measured.
    if first in chosen:
        chosen[0.0] = outcomes[NO_ATTACK]
    return {epsilon: chosen[epsilon].of(NED).interval(measure) for epsilon in sorted(chosen)}


def _draw(ax: "Axes", line: Mapping[float, Interval], look: tuple[int, int]) -> None:
    style, dash = line_style(look[0]), DASHES[look[1] % len(DASHES)]
    x = list(line)
    estimates = [interval.estimate for interval in line.values()]
    ax.plot(x, estimates, color=style.color, linestyle=dash, marker=style.marker, markersize=6)
    # Not error bars: an interval that takes the bias off may lie beside its estimate.
    lows, highs = ([getattr(i, end) for i in line.values()] for end in ("low", "high"))
    ax.vlines(x, lows, highs, color=style.color, linewidth=0.9, alpha=0.8)
