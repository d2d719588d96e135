"""Markdown tables of one data set's results, beside the numbers of the paper."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from nearsure.comparison import Better, best_places, percent, title_of, write_rows
from nearsure.lab.default_rule import DEFAULT
from nearsure.lab.evaluation import Evaluation, Sweep
from nearsure.lab.paper_tables import (
    IMPOSSIBLE,
    IMPOSSIBLE_LEGEND,
    TABLE_1_LOSS,
    TABLE_4_LOSSES,
    PaperCell,
    beside,
    paper_cell,
    reported_1nn,
)
from nearsure.lab.protocols import ProtocolName
from nearsure.metrics import Interval

PROTOCOLS: dict[ProtocolName, str] = {
    "all_against_others": "every point a query against all others, T fitted on the same points",
    "gallery_and_queries": "half of every class the gallery, which fits T, the other half queries",
    "given_gallery": "the data set's own gallery, which fits T, and its queries",
}
# For people who compare protocols, in few words.
PROTOCOL_TITLES = {
    "all_against_others": "all against others",
    "gallery_and_queries": "half and half",
    "given_gallery": "given gallery",
}
LEGEND = (
    "Accuracy and ECE (15 bins of equal width) in percent; the best of each column bold. Chance "
    "raises an ECE: the debiased one has an estimate of that taken off, and intervals (95%, "
    "bootstrap over the queries) are around it."
)
PAPER_LEGEND = ' "paper 74.9, -11.0": the paper has 74.9, and we 11.0 points less.'
OBJECTIVE_TITLES = {"nll": "likelihood", "top_label": "top label"}

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
    results = evaluation.comparison
    columns = _main_columns(dataset, loss, evaluation)
    columns |= {
        "ECE floor %": [f"{100 * result.ece_floor:.2f}" for result in results],
        "Brier": _column(evaluation, "brier"),
        "NED's accuracy less this": [
            "" if rule == "ned" else points(evaluation.ned_gain[rule]) for rule in evaluation.rules
        ],
    }
    head = f"**{dataset}, {loss}**: {describe(evaluation)}"
    table = _with_reported(dataset, loss, evaluation, columns)
    return "\n\n".join([head, _legend(table), table, *_notes(evaluation)]) + "\n"


def table_4(dataset: str, evaluations: Mapping[str, Evaluation]) -> str:
    """Rules against accuracy and ECE, a small table a loss, as in the paper's Table 4.

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
        A legend, and for each loss a line about gallery and queries, a table, and notes.
    """
    known = [loss for loss in (TABLE_1_LOSS, *TABLE_4_LOSSES) if loss in evaluations]
    parts = []
    for loss in dict.fromkeys((*known, *evaluations)):
        evaluation = evaluations[loss]
        columns = _main_columns(dataset, loss, evaluation)
        table = _with_reported(dataset, loss, evaluation, columns)
        parts += [f"#### {loss}", describe(evaluation), table, *_notes(evaluation)]
    return "\n\n".join([_legend("\n".join(parts)), *parts]) + "\n"


def k_table(dataset: str, loss: str, evaluation: Evaluation) -> str:
    """Each rule at k, at its own best k on seen classes, and at its best on the queries.

    One k for all rules is unfair to those that want a small one. The best on the queries is
    chosen on what it is measured on, so that every accuracy there is a little too good.
    """
    curve, rows = evaluation.curve, []
    seen = bool(evaluation.seen_ks)
    for rule in curve.accuracy:
        cell = _paper_cell(dataset, loss, rule, evaluation)
        paper = "" if cell is None else _two(cell.accuracy, cell.ece, cell)
        k, right, error = curve.at(rule, evaluation.k)
        other = "" if k == evaluation.k else f" (k = {k})"
        row = [title_of(rule), paper, _two(right, error) + other]
        for chosen in ([evaluation.seen_ks[rule]] if seen else []) + [curve.best_k(rule)]:
            k, right, error = curve.at(rule, chosen)
            row += ["" if rule == "1nn" else str(k), _two(right, error)]
        rows.append(row)
    header = ["rule", "paper", f"k = {evaluation.k}"]
    header += ["k from seen classes", "with it"] if seen else []
    header += ["best k on the queries", "with it"]
    filled = [i for i in range(len(header)) if header[i] != "paper" or any(row[i] for row in rows)]
    return write_rows([header[i] for i in filled], ([row[i] for i in filled] for row in rows))


def reading_table(dataset: str, loss: str, evaluation: Evaluation) -> str:
    """NED with T fitted by likelihood and by the log loss of its top label."""
    cell = _paper_cell(dataset, loss, "ned", evaluation)
    rows = [
        [
            f"T by {OBJECTIVE_TITLES[objective]}",
            f"{reading.temperature:.4g}",
            f"{100 * reading.accuracy:.2f}",
            f"{100 * reading.ece:.2f}",
            f"{100 * reading.debiased_ece:.2f}",
        ]
        for objective, reading in evaluation.readings.items()
    ]
    if cell is not None and cell.ece is not None:
        rows.append(["paper", "", f"{100 * cell.accuracy:g}", f"{100 * cell.ece:g}", ""])
    return write_rows(["NED", "T", "accuracy %", "ECE %", "debiased ECE %"], rows)


# What tells trainings apart: where the embedding stands, and what is made of it.
COMPARED = ("1nn", "ned", DEFAULT)


def trainings_table(trainings: Mapping[tuple[str, int], Evaluation]) -> str:
    """Several trainings of each loss, and their spread.

    Parameters
    ----------
    trainings : mapping of (loss, seed) to Evaluation
        All by the same protocol; a loss may be named with its data.

    Returns
    -------
    str
        A row a training, and after those of a loss their mean with the least and the most.
    """
    rows = []
    for loss in dict.fromkeys(loss for loss, _ in trainings):
        found = {seed: one for (name, seed), one in trainings.items() if name == loss}
        figures = {seed: _compared(evaluation) for seed, evaluation in found.items()}
        rows += [
            [loss, str(seed), *(f"{100 * value:.2f}" for value in values)]
            for seed, values in figures.items()
        ]
        if len(found) > 1:
            columns = zip(*figures.values(), strict=True)
            rows.append([loss, f"mean of {len(found)} (least to most)", *map(_spread, columns)])
    titles = [title_of(rule) for rule in COMPARED]
    measures = [f"{titles[0]}: accuracy %"]
    measures += [f"{title}: {what} %" for title in titles[1:] for what in ("accuracy", "ECE")]
    return write_rows(["training", "seed", *measures], rows)


def _compared(evaluation: Evaluation) -> list[float]:
    results = [evaluation.result_of(rule) for rule in COMPARED]
    figures = [results[0].accuracy.estimate]
    for result in results[1:]:
        figures += [result.accuracy.estimate, result.ece.estimate]
    return figures


def _spread(values: Sequence[float]) -> str:
    mean, least, most = sum(values) / len(values), min(values), max(values)
    return f"{100 * mean:.2f} ({100 * least:.2f} to {100 * most:.2f})"


def describe(evaluation: Evaluation) -> str:
    """Who asked whom, with which k and T."""
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


def _legend(table: str) -> str:
    legend = LEGEND + PAPER_LEGEND if "; paper " in table else LEGEND
    return f"{legend} {IMPOSSIBLE_LEGEND}" if IMPOSSIBLE in table else legend


def _notes(evaluation: Evaluation) -> list[str]:
    return [f"Note: {note}" for note in evaluation.notes]


def _main_columns(dataset: str, loss: str, evaluation: Evaluation) -> dict[str, list[str]]:
    """Rules, accuracy and ECE beside the paper's, and the debiased ECE."""
    digits = 1 if loss == TABLE_1_LOSS else 2  # as the paper prints them
    accuracies, errors = _column(evaluation, "accuracy"), _column(evaluation, "ece")
    for place, result in enumerate(evaluation.comparison):
        cell = _paper_cell(dataset, loss, result.rule, evaluation)
        accuracies[place] += beside(cell, "accuracy", result.accuracy.estimate, digits=digits)
        errors[place] += beside(cell, "ece", result.ece.estimate, digits=digits)
    columns = {
        "rule": [title_of(rule) for rule in evaluation.rules],
        "accuracy %": accuracies,
        "ECE %": errors,
    }
    if evaluation.debiased_ece:
        cells = [percent(evaluation.debiased_ece[rule]) for rule in evaluation.rules]
        columns["debiased ECE %"] = bold_best(cells, "less")
    return columns


def _with_reported(
    dataset: str, loss: str, evaluation: Evaluation, columns: Mapping[str, Sequence[str]]
) -> str:
    """The table, after the accuracy of 1NN that the paper quotes, if it does."""
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    quoted = None
    if evaluation.protocol != "gallery_and_queries":
        quoted = reported_1nn(dataset, loss)
    if quoted is not None:
        text = beside(
            PaperCell(quoted, None),
            "accuracy",
            evaluation.result_of("1nn").accuracy.estimate,
            digits=1 if loss == TABLE_1_LOSS else 2,
        )
        cells = ["1NN (reported)", text.removeprefix("; ")]
        rows.insert(0, cells + [""] * (len(columns) - len(cells)))
    return write_rows(list(columns), rows)


def _paper_cell(dataset: str, loss: str, rule: str, evaluation: Evaluation) -> PaperCell | None:
    # The strict protocol is not the paper's: half the gallery makes another task.
    if evaluation.protocol == "gallery_and_queries":
        return None
    return paper_cell(dataset, loss, rule)


def _column(evaluation: Evaluation, column: Column) -> list[str]:
    """The cells of all rules, the best bold; an ECE's interval is with the debiased one."""
    intervals: list[Interval] = [getattr(result, column) for result in evaluation.comparison]
    if column == "ece":
        cells = [f"{100 * interval.estimate:.2f}" for interval in intervals]
    else:
        scale, digits = (1, 4) if column == "brier" else (100, 2)
        cells = [percent(interval, scale=scale, digits=digits) for interval in intervals]
    return bold_best(cells, "more" if column == "accuracy" else "less")


def _two(right: float, error: float | None, cell: PaperCell | None = None) -> str:
    """Accuracy and ECE in one cell."""
    if error is None:
        return f"{100 * right:.2f}"
    mark = "" if cell is None or cell.ece_is_possible else f" {IMPOSSIBLE}"
    return f"{100 * right:.2f} / {100 * error:.2f}{mark}"


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
        level = f"{title_of(rule)} {_sweep_cell(*(figure[rule][place] for figure in baseline))}"
        rows.append([str(k), f"{sweep.temperatures[place]:.4g}", *cells, level])
    titles = [f"{factor:g} T" for factor in sweep.factors]
    return write_rows(["k", "T", *titles, "best baseline"], rows)


def _sweep_cell(right: float, error: float, voters: float) -> str:
    return f"{100 * right:.2f} / {100 * error:.2f} / {voters:.1f}"
