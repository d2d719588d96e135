"""Markdown tables of results, beside the numbers of the paper."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from nearsure.comparison import TITLES, Better, best_places, percent, write_rows
from nearsure.errors import NearsureError
from nearsure.lab.cache import from_plain
from nearsure.lab.evaluation import Evaluation, Sweep
from nearsure.lab.protocols import ProtocolName
from nearsure.metrics import Interval
from nearsure.rules import RULE_NAMES

PROTOCOLS: dict[ProtocolName, str] = {
    "all_against_others": "every point a query against all others, T fitted on the same points",
    "gallery_and_queries": "half of every class the gallery, which fits T, the other half queries",
    "given_gallery": "the data set's own gallery, which fits T, and its queries",
}
LEGEND = (
    "Accuracy and ECE (15 bins of equal width) in percent, with 95% bootstrap intervals; the best "
    "of each column bold."
)
PAPER_LEGEND = ' "paper 74.9, -11.0": the paper has 74.9, and we 11.0 points less.'

Column = Literal["accuracy", "ece", "brier"]


def write_table(columns: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table of columns of equal length."""
    return write_rows(list(columns), zip(*columns.values(), strict=True))


def points(interval: Interval, *, scale: float = 100, digits: int = 2) -> str:
    """A difference in points of percent, or on another scale, with its sign.

    Examples
    --------
    >>> points(Interval(-0.011, -0.02, 0.001, 0.95))
    '-1.10 (-2.00 to +0.10)'
    """
    ends = (interval.estimate, interval.low, interval.high)
    estimate, low, high = (f"{scale * end:+.{digits}f}" for end in ends)
    return f"{estimate} ({low} to {high})"


def bold_best(cells: Sequence[str], better: Better | None) -> list[str]:
    """The cells of a column with the best number bold; none where neither more nor less is better.

    Examples
    --------
    >>> bold_best(["7.50 (7.00 to 8.00)", "9.00"], "less")
    ['**7.50** (7.00 to 8.00)', '9.00']
    """
    if better is None:
        return list(cells)
    marked = zip(cells, best_places(cells, better), strict=True)
    return [re.sub(r"^\S+", r"**\g<0>**", cell) if best else cell for cell, best in marked]


def table_1(dataset: str, loss: str, evaluation: Evaluation) -> str:
    """Rules against accuracy, ECE, its floor and Brier score, as in the paper's Table 1.

    Parameters
    ----------
    dataset, loss : str
        What was evaluated, by the names of `paper_cell` where the paper has it.
    evaluation : Evaluation
        The figures.

    Returns
    -------
    str
        A paragraph about gallery and queries, a table, and notes.
    """
    results = [evaluation.result_of(rule) for rule in RULE_NAMES]
    columns = {
        "rule": [TITLES[rule] for rule in RULE_NAMES],
        "accuracy %": _column(dataset, loss, evaluation, "accuracy"),
        "ECE %": _column(dataset, loss, evaluation, "ece"),
        "ECE floor %": [f"{100 * result.ece_floor:.2f}" for result in results],
        "Brier": _column(dataset, loss, evaluation, "brier"),
        "NED's accuracy less this": [
            "" if rule == "ned" else points(evaluation.ned_gain[rule]) for rule in RULE_NAMES
        ],
    }
    head = f"**{dataset}, {loss}**: {_circumstances(evaluation)}"
    return "\n\n".join([head, _legend(columns), write_table(columns), *_notes(evaluation)]) + "\n"


def best_k_table(evaluation: Evaluation) -> str:
    """Each rule at the k of the curve where it is right most often, found on the queries.

    One k for all rules is unfair to those that want a small one, so each is shown at its best;
    as it is chosen on the very queries, every accuracy here is a little too good.
    """
    curve = evaluation.curve
    rows = []
    for rule in RULE_NAMES:
        best = max(range(len(curve.ks)), key=lambda i: curve.accuracy[rule][i])
        k = "1" if rule == "1nn" else str(curve.ks[best])
        figures = (f"{100 * values[rule][best]:.2f}" for values in (curve.accuracy, curve.ece))
        rows.append([TITLES[rule], k, *figures])
    return write_rows(["rule", "its best k", "accuracy %", "ECE %"], rows)


def table_4(dataset: str, evaluations: Mapping[str, Evaluation]) -> str:
    """Rules against accuracy and ECE under several losses, as in the paper's Table 4.

    Parameters
    ----------
    dataset : str
        What was evaluated.
    evaluations : mapping of str to Evaluation
        The figures of each loss, by the names of `paper_cell` where the paper has it. The
        paper's losses come first, in its order.

    Returns
    -------
    str
        A line for each loss about gallery and queries, a table, and notes.
    """
    known = [loss for loss in (TABLE_1_LOSS, *TABLE_4_LOSSES) if loss in evaluations]
    losses = [*known, *(loss for loss in evaluations if loss not in known)]
    columns = {"rule": [TITLES[rule] for rule in RULE_NAMES]}
    for loss in losses:
        columns[f"{loss}: accuracy %"] = _column(dataset, loss, evaluations[loss], "accuracy")
        columns[f"{loss}: ECE %"] = _column(dataset, loss, evaluations[loss], "ece")
    head = [f"- {loss}: {_circumstances(evaluations[loss])}" for loss in losses]
    notes = [f"{loss}: {note}" for loss in losses for note in _notes(evaluations[loss])]
    parts = [f"**{dataset}**", "\n".join(head), _legend(columns), write_table(columns), *notes]
    return "\n\n".join(parts) + "\n"


def _circumstances(evaluation: Evaluation) -> str:
    fit = evaluation.temperature_fit
    error = "" if fit.status != "interior" else f" +- {fit.standard_error:.2g}"
    queries = f"{evaluation.n_queries:,} queries"
    if evaluation.n_unknown_queries:
        queries += f" ({evaluation.n_unknown_queries:,} of a class that the gallery lacks)"
    if evaluation.protocol != "all_against_others":
        queries += f", {evaluation.n_gallery:,} points in the gallery"
    return (
        f"{PROTOCOLS[evaluation.protocol]}; k = {evaluation.k}, T = {fit.temperature:.4g}{error} "
        f"({100 * fit.miss_fraction:.1f}% of the gallery without a neighbour of their class); "
        f"{queries}, {evaluation.n_classes:,} classes."
    )


def _legend(columns: dict[str, list[str]]) -> str:
    has_paper = any("; paper " in cell for cells in columns.values() for cell in cells)
    return LEGEND + PAPER_LEGEND if has_paper else LEGEND


def _notes(evaluation: Evaluation) -> list[str]:
    return [f"Note: {note}" for note in evaluation.notes]


def _column(dataset: str, loss: str, evaluation: Evaluation, column: Column) -> list[str]:
    """The cells of all rules, the best bold, beside the paper's."""
    intervals: list[Interval] = [getattr(evaluation.result_of(rule), column) for rule in RULE_NAMES]
    scale, digits = (1, 4) if column == "brier" else (100, 2)
    cells = bold_best(
        [percent(interval, scale=scale, digits=digits) for interval in intervals],
        "more" if column == "accuracy" else "less",
    )
    # The strict protocol is not the paper's: half the gallery makes another task.
    if evaluation.protocol == "gallery_and_queries" or column == "brier":
        return cells
    papers = [getattr(paper_cell(dataset, loss, rule), column, None) for rule in RULE_NAMES]
    digits = 1 if loss == TABLE_1_LOSS else 2  # as the paper prints them
    return [
        cell + beside(paper, interval.estimate, digits=digits)
        for cell, paper, interval in zip(cells, papers, intervals, strict=True)
    ]


def sweep_table(sweep: Sweep) -> str:
    """Accuracy % / ECE % / voters: a row a k, a column a multiple of T."""
    rows = []
    for place, k in enumerate(sweep.ks):
        rule = sweep.best_baseline(k)
        figures = (sweep.accuracy[place], sweep.ece[place], sweep.voters[place])
        cells = [_sweep_cell(*cell) for cell in zip(*figures, strict=True)]
        best = sweep.factors.index(sweep.best_factor(k))
        cells[best] = f"**{cells[best]}**"
        baseline = (sweep.baseline_accuracy, sweep.baseline_ece, sweep.baseline_voters)
        level = f"{TITLES[rule]} {_sweep_cell(*(figure[rule][place] for figure in baseline))}"
        rows.append([str(k), f"{sweep.temperatures[place]:.4g}", *cells, level])
    titles = [f"{factor:g} T" for factor in sweep.factors]
    return write_rows(["k", "T", *titles, "best baseline"], rows)


def _sweep_cell(right: float, error: float, voters: float) -> str:
    return f"{100 * right:.2f} / {100 * error:.2f} / {voters:.1f}"


HEADER = (
    "data",
    "embedding",
    "protocol",
    "1NN %",
    "most accurate baseline: accuracy %, ECE %",
    "NED: accuracy %, ECE % (floor)",
    "NED less that baseline, points",
)
PROTOCOL_TITLES = {
    "all_against_others": "all against others",
    "gallery_and_queries": "half and half",
    "given_gallery": "given gallery",
}


def summary(folder: Path) -> str:
    """A Markdown table of every run below a folder, by protocol.

    Parameters
    ----------
    folder : Path
        Holds a folder for each data set with the ``results.json`` of `write_report`.
    """
    paths = sorted(folder.glob("*/results.json"))
    if not paths:
        raise NearsureError(f"{folder} should hold <data set>/results.json. There is none.")
    rows: list[tuple[str, ...]] = []
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        for name, run in document["runs"].items():
            evaluations = map(partial(from_plain, Evaluation), run["evaluations"].values())
            rows += [(document["dataset"], name, *_row(found)) for found in evaluations]
    return write_rows(HEADER, rows)


def _row(evaluation: Evaluation) -> tuple[str, ...]:
    results = {rule: evaluation.result_of(rule) for rule in RULE_NAMES}
    ned = results.pop("ned")
    best_rule = max(results, key=lambda rule: results[rule].accuracy.estimate)
    best, gain = results[best_rule], evaluation.ned_gain[best_rule]
    calibration = f"{100 * ned.ece.estimate:.2f} ({100 * ned.ece_floor:.2f})"
    return (
        PROTOCOL_TITLES[evaluation.protocol],
        f"{100 * results['1nn'].accuracy.estimate:.2f}",
        f"{TITLES[best_rule]} {100 * best.accuracy.estimate:.2f}, {100 * best.ece.estimate:.2f}",
        f"{100 * ned.accuracy.estimate:.2f}, {calibration}",
        points(gain),
    )
