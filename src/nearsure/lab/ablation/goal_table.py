"""The goals in Markdown: met or missed, with the numbers."""

from collections.abc import Sequence
from math import isnan

from nearsure.lab.ablation.goals import BRIER, FLOOR, GOALS, Goal
from nearsure.lab.ablation.trials import Condition
from nearsure.lab.ablation.variants import Variant
from nearsure.lab.robust.cells import markdown

CONDITIONS: dict[Condition, str] = {
    "half": "half and half",
    "given": "own split",
    "all": "all against others",
    "scarce": "2 to 12 members a class",
}


def goal_table(goals: Sequence[Goal]) -> str:
    """One row for each data set, split and k; one column for each goal.

    Parameters
    ----------
    goals : sequence of Goal
        The four goals of each place, in the order of `GOALS`.
    """
    columns: dict[str, list[str]] = {"data": [], "split": [], "splits": [], "k": []}
    columns |= {name: [] for name in GOALS}
    for goal in goals:
        if goal.goal == GOALS[0]:
            columns["data"].append(goal.dataset)
            columns["split"].append(CONDITIONS[goal.condition])
            columns["splits"].append(str(goal.n_seeds))
            columns["k"].append(str(goal.k))
        columns[goal.goal].append(_cell(goal))
    return markdown(columns)


def goal_sentence(goals: Sequence[Goal]) -> str:
    """How many are met, and which are not."""
    met = sum(goal.met for goal in goals)
    sentence = f"{met} of {len(goals)} are met."
    places: dict[str, dict[str, list[str]]] = {}
    for goal in goals:
        if not goal.met:
            places.setdefault(goal.goal, {}).setdefault(goal.dataset, []).append(str(goal.k))
    if not places:
        return sentence
    missed = []
    for name, found in places.items():
        where = ", ".join(f"{data} at k = {' and '.join(ks)}" for data, ks in found.items())
        missed.append(f"{name} ({where})")
    return f"{sentence} Missed: {'; '.join(missed)}."


def _cell(goal: Goal) -> str:
    """For example: met, 65.25 against 63.55 (WkNN (Gou)), +1.70 (+1.20 to +2.20)."""
    value, bound = _number(goal, goal.value), _number(goal, goal.bound)
    verdict = "met" if goal.met else "**missed**"
    if goal.goal == FLOOR:
        return f"{verdict}: {value}, allowed {bound}"
    rival = Variant.from_name(goal.rival).title if goal.rival else ""
    if goal.floors is not None:
        ours, theirs = (f"floor {100 * floor:.2f}" for floor in goal.floors)
        value, rival = f"{value} ({ours})", f"{rival}, {theirs}"
    return f"{verdict}: {value} against {bound} ({rival}){_lead(goal)}"


def _number(goal: Goal, value: float) -> str:
    return f"{value:.4f}" if goal.goal == BRIER else f"{100 * value:.2f}"


def _lead(goal: Goal) -> str:
    lead = goal.lead
    if lead is None or isnan(lead.low):
        return ""
    digits, scale = (4, 1) if goal.goal == BRIER else (2, 100)
    numbers = (f"{scale * end:+.{digits}f}" for end in (lead.estimate, lead.low, lead.high))
    estimate, low, high = numbers
    return f", {estimate} ({low} to {high})"
