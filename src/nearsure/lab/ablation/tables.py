"""Tables and goals of the ablation in Markdown, from stored numbers alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan

from nearsure.comparison import Better, percent, write_rows
from nearsure.lab.ablation.results import (
    AblationResults,
    CorruptedResult,
    Group,
    Measured,
    difference,
)
from nearsure.lab.ablation.trials import Condition
from nearsure.lab.ablation.variants import (
    CALIBRATED_BASELINES,
    DEFAULT,
    LADDER,
    MAIN_VARIANTS,
    RAW_BASELINES,
    TEMPERED_PROBES,
)
from nearsure.lab.robust.methods import Method
from nearsure.lab.tables import bold_best, points, write_table
from nearsure.metrics import Interval

# The text of each figure, and which is better, where either is.
FIGURES: dict[str, tuple[Callable[[Measured], str], Better | None]] = {
    "accuracy %": (lambda row: f"{100 * row.accuracy:.2f}", "more"),
    "ECE %": (lambda row: f"{100 * row.ece:.2f}", "less"),
    "floor %": (lambda row: f"{100 * row.floor:.2f}", None),
    "ECE less floor": (lambda row: f"{100 * row.excess:+.2f}", "less"),
    "Brier": (lambda row: f"{row.brier:.4f}", "less"),
    "confidence less accuracy": (lambda row: f"{100 * row.overconfidence:+.2f}", None),
}
PARTS = (
    "NED",
    "+ a sharpness",
    "+ a query's own scale",
    "+ the leave-one-out correction",
    "+ shrunk Platt (the neighbours alone)",
    "+ a head beside the neighbours (the default)",
)


def variant_table(rows: Sequence[Measured]) -> str:
    """Every variant with every figure, the best of a column bold.

    Parameters
    ----------
    rows : sequence of Measured
        One for each variant, all measured on the same queries.
    """
    columns = {"variant": [Method.from_name(row.variant).title for row in rows]}
    columns |= {name: _column(rows, name) for name in FIGURES}
    return write_table(columns)


def group_table(group: Group, variants: Sequence[Method] | None = None) -> str:
    """Means over the splits of a group; what was measured on some of them has a table of its own.

    Parameters
    ----------
    group : Group
        The trials.
    variants : sequence of Method, optional
        Which, by default all. A mean over fewer splits is set beside others over the same ones.
    """
    shown = group.variants if variants is None else group.measured(variants)
    whole = [variant for variant in shown if len(group.rows(variant)) == group.n_splits]
    parts = [variant_table([group.mean(variant) for variant in whole])]
    for variant in shown:
        if variant not in whole:
            compared = [*(one for one in MAIN_VARIANTS if one in whole), variant]
            some = group.paired(compared)
            parts.append(f"{variant.title} and the main variants on {some.n_splits} of the splits:")
            parts.append(variant_table([some.mean(one) for one in compared]))
    return "\n\n".join(parts)


def ladder_table(group: Group) -> str:
    """What each part of the default adds to the one before, paired by split."""
    group = group.paired(LADDER)
    columns: dict[str, list[str]] = {"part": list(PARTS)}
    means = [group.mean(variant) for variant in LADDER]
    for name in ("accuracy %", "ECE %", "floor %", "Brier"):
        columns[name] = _column(means, name, bold=False)
    for measure, name in (
        ("accuracy", "adds to accuracy"),
        ("ece", "adds to ECE"),
        ("brier", "adds to Brier x 100"),
    ):
        gains = [difference(group, after, before, measure) for before, after in pairwise(LADDER)]
        columns[name] = ["", *(points(gain) for gain in gains)]
    return write_table(columns)


def by_k_table(groups: Sequence[Group], variants: Sequence[Method]) -> str:
    """Accuracy, ECE and Brier score of some variants at each k."""
    columns = {"variant": [variant.title for variant in variants]}
    for group in (group.paired(variants) for group in groups):
        for name in ("accuracy %", "ECE %", "Brier"):
            means = [group.mean(variant) for variant in variants]
            columns[f"{name}, k = {group.first.k}"] = _column(means, name)
    return write_table(columns)


def interval_table(group: Group, variants: Sequence[Method]) -> str:
    """A single split: accuracy and ECE with bootstrap intervals."""
    variants = group.measured(variants)
    rows = [group.rows(variant)[group.first.seed] for variant in variants]
    return write_table(
        {
            "variant": [variant.title for variant in variants],
            "accuracy %": [_ranged(row.accuracy_interval, row.accuracy) for row in rows],
            "ECE %": [_ranged(row.ece_interval, row.ece) for row in rows],
            "floor %": _column(rows, "floor %"),
            "Brier": _column(rows, "Brier"),
        }
    )


def corrupted_table(result: CorruptedResult) -> str:
    """Main variants on clean and on corrupted queries."""
    columns = {"variant": [Method.from_name(row.variant).title for row in result.mean]}
    columns |= {f"clean: {name}": _column(result.clean, name) for name in ("accuracy %", "ECE %")}
    columns |= {f"corrupted: {name}": _column(result.mean, name) for name in FIGURES}
    return write_table(columns)


def _column(rows: Sequence[Measured], name: str, *, bold: bool = True) -> list[str]:
    """The cells of one figure, the best bold."""
    text, better = FIGURES[name]
    return bold_best(list(map(text, rows)), better if bold else None)


def _ranged(interval: Interval | None, value: float) -> str:
    return f"{100 * value:.2f}" if interval is None else percent(interval)


# How far above its floor the ECE may be.
ALLOWED_EXCESS = 0.01
ACCURACY = "accuracy not below the best baseline's"
FLOOR = "ECE at most 1 point above its floor"
CALIBRATION = "ECE at most that of the best calibrated baseline"
BRIER = "Brier score below every baseline's, raw or calibrated"
PROBE = "Brier score at most that of the best tempered probe"
CONDITIONS_WITH_GOALS: tuple[Condition, ...] = ("half", "given", "scarce")
GOALS = (ACCURACY, FLOOR, CALIBRATION, BRIER, PROBE)


@dataclass(frozen=True)
class Goal:
    """One goal at one place.

    Parameters
    ----------
    dataset, condition, k
        Where.
    n_seeds : int
        Splits that the numbers are means over.
    goal : str
        One of `GOALS`.
    value, bound : float
        What the default has, and what it is held against.
    rival : str or None
        The variant whose number the bound is.
    met : bool
        By the numbers as they are, not as they are printed.
    lead : Interval or None
        The default's number less the rival's, paired by split, with its t-interval; the ends are
        NaN where there is one split.
    floors : tuple of two floats, optional
        Where ECEs are compared: the default's floor and the rival's. A calibrator of few distinct
        confidences fills fewer bins, and its floor is lower.
    """

    dataset: str
    condition: Condition
    k: int
    n_seeds: int
    goal: str
    value: float
    bound: float
    rival: str | None
    met: bool
    lead: Interval | None
    floors: tuple[float, float] | None = None


def goals_of(group: Group) -> tuple[Goal, ...]:
    """The goals for one group of trials, in the order of `GOALS`, on the splits that all share."""
    group = group.paired((DEFAULT, *RAW_BASELINES, *CALIBRATED_BASELINES, *TEMPERED_PROBES))
    ours = group.mean(DEFAULT)
    right = group.best(RAW_BASELINES, "accuracy", most=True)
    calibrated = group.best(CALIBRATED_BASELINES, "ece")
    sharp = group.best((*RAW_BASELINES, *CALIBRATED_BASELINES), "brier")
    probe = group.best(TEMPERED_PROBES, "brier")
    where = group.first
    place = (where.dataset, where.condition, where.k, group.n_splits)

    def against(name: str, rival: Method, measure: str, *, met: bool) -> Goal:
        theirs = group.mean(rival)
        return Goal(
            *place,
            name,
            getattr(ours, measure),
            getattr(theirs, measure),
            rival.name,
            met,
            difference(group, DEFAULT, rival, measure),
            (ours.floor, theirs.floor) if measure == "ece" else None,
        )

    return (
        against(ACCURACY, right, "accuracy", met=ours.accuracy >= group.mean(right).accuracy),
        Goal(*place, FLOOR, ours.excess, ALLOWED_EXCESS, None, ours.excess <= ALLOWED_EXCESS, None),
        against(CALIBRATION, calibrated, "ece", met=ours.ece <= group.mean(calibrated).ece),
        against(BRIER, sharp, "brier", met=ours.brier < group.mean(sharp).brier),
        against(PROBE, probe, "brier", met=ours.brier <= group.mean(probe).brier),
    )


def all_goals(results: AblationResults) -> Iterator[Goal]:
    """The goals of every data set at every k.

    Not of every point against all others: there a calibrator is measured on the points that it was
    fitted on, and isotonic regression has an ECE of 0 by construction.
    """
    for condition in CONDITIONS_WITH_GOALS:
        for group in results.groups(condition):
            if DEFAULT in group.variants:
                yield from goals_of(group)


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
        All goals of each place, in the order of `GOALS`.
    """
    rows = []
    for first in range(0, len(goals), len(GOALS)):
        place = goals[first]
        where = [place.dataset, CONDITIONS[place.condition], str(place.n_seeds), str(place.k)]
        rows.append([*where, *map(_cell, goals[first : first + len(GOALS)])])
    return write_rows(["data", "split", "splits", "k", *GOALS], rows)


def goal_sentence(goals: Sequence[Goal]) -> str:
    """How many are met, and which are not."""
    met = sum(goal.met for goal in goals)
    places: dict[str, dict[str, list[str]]] = {}
    for goal in goals:
        if not goal.met:
            places.setdefault(goal.goal, {}).setdefault(goal.dataset, []).append(str(goal.k))
    missed = []
    for name, found in places.items():
        where = ", ".join(f"{data} at k = {' and '.join(ks)}" for data, ks in found.items())
        missed.append(f"{name} ({where})")
    sentence = f"{met} of {len(goals)} are met."
    return f"{sentence} Missed: {'; '.join(missed)}." if missed else sentence


def _cell(goal: Goal) -> str:
    """For example: met, 65.25 against 63.55 (WkNN (Gou)), +1.70 (+1.20 to +2.20)."""
    scale, digits = (1, 4) if goal.goal in {BRIER, PROBE} else (100, 2)
    value, bound = (f"{scale * number:.{digits}f}" for number in (goal.value, goal.bound))
    verdict = "met" if goal.met else "**missed**"
    if goal.rival is None:
        return f"{verdict}: {value}, allowed {bound}"
    rival, lead = Method.from_name(goal.rival).title, ""
    if goal.floors is not None:
        ours, theirs = (f"floor {100 * floor:.2f}" for floor in goal.floors)
        value, rival = f"{value} ({ours})", f"{rival}, {theirs}"
    if goal.lead is not None and not isnan(goal.lead.low):
        lead = f", {points(goal.lead, scale=scale, digits=digits)}"
    return f"{verdict}: {value} against {bound} ({rival}){lead}"
