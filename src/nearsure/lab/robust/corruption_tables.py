"""Corrupted queries in Markdown: the paper's Table 2, and where its mean comes from."""

from collections.abc import Mapping, Sequence

from nearsure.errors import InvalidInputError
from nearsure.lab.paper import corrupted_cell
from nearsure.lab.robust.baselines import best_baseline
from nearsure.lab.robust.cells import Better, beside, best_places, markdown, percent, points
from nearsure.lab.robust.methods import METHODS, NED
from nearsure.lab.robust.outcomes import MethodResult, Outcome
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.metrics import Interval

LEGEND = (
    "In percent, with 95% bootstrap intervals over the queries, the same ones drawn in every "
    "variant; the best of each column bold. ECE has 15 bins of equal width; its floor is what a "
    "perfectly calibrated forecaster with the same confidences would show. Intervals are for the "
    "true value: that of an ECE, which chance raises, may lie below it. Confidently wrong: "
    "share of all queries answered wrongly with a confidence of 90% or more. Top-label Brier: mean "
    "squared difference between confidence and being right, times 100. Calibration never changes "
    'a label, so accuracy is the rule\'s. "68.1 ->": on the clean queries.'
)
PAPER_LEGEND = (
    ' "paper 64.8, -3.1": the paper has 64.8 in its mean over 15 corruptions at 5 severities, and '
    "we 3.1 points less."
)


def mean_of_corruptions(evaluation: RobustEvaluation) -> Outcome:
    """The mean over all corruptions, which there must be."""
    if evaluation.mean is None:
        raise InvalidInputError(
            "The evaluation must have corrupted variants. Got none: attacks have tables of their "
            "own."
        )
    return evaluation.mean


def table_2(dataset: str, loss: str, evaluation: RobustEvaluation) -> str:
    """Every method in the mean over all corruptions and severities, as the paper's Table 2.

    Parameters
    ----------
    dataset, loss : str
        What was evaluated, by the names of `corrupted_cell` where the paper has it.
    evaluation : RobustEvaluation
        The figures.

    Returns
    -------
    str
        A legend and a table.
    """
    clean, damaged = evaluation.clean, mean_of_corruptions(evaluation)
    accuracies = [result.accuracy for result in damaged.results]
    most_accurate = best_places(accuracies, "more")
    columns: dict[str, list[str]] = {"method": [method.title for method in METHODS]}
    # The strict protocol is not the paper's: half the gallery makes another task.
    compared = evaluation.protocol != "gallery_and_queries"
    columns["accuracy %"], columns["ECE %"] = [], []
    lowest = best_places([result.ece for result in damaged.results], "less")
    for place, (before, after) in enumerate(zip(clean.results, damaged.results, strict=True)):
        raw = after.method.calibration == "raw"
        cell = corrupted_cell(dataset, loss, after.method.rule) if raw and compared else None
        accuracy = _arrow(before.accuracy) + percent(after.accuracy, bold=most_accurate[place])
        if cell is not None:
            accuracy += beside(cell.accuracy, after.accuracy.estimate)
        columns["accuracy %"].append(accuracy if raw else "")
        error = _arrow(before.ece) + percent(after.ece, bold=lowest[place])
        if cell is not None:
            error += beside(cell.ece, after.ece.estimate)
        columns["ECE %"].append(error)
    columns["ECE floor %"] = [f"{100 * result.ece_floor:.2f}" for result in damaged.results]
    columns["ECE less NED's"] = [
        "" if result.method == NED else points(result.ece_less_ned) for result in damaged.results
    ]
    columns["mean confidence %"] = [
        _arrow(before.confidence) + percent(after.confidence)
        for before, after in zip(clean.results, damaged.results, strict=True)
    ]
    columns["confidently wrong %"] = column(damaged.results, "confidently_wrong", "less")
    columns["top-label Brier"] = column(damaged.results, "top_label_brier", "less")
    table = markdown(columns)
    return f"{LEGEND}{PAPER_LEGEND if '; paper ' in table else ''}\n\n{table}\n"


def corruption_table(evaluation: RobustEvaluation) -> str:
    """NED and the best calibrated baseline under each corruption, mean over its severities."""
    rows = {_words(name): outcome for name, outcome in evaluation.by_corruption.items()}
    return _table_of_two("corruption", {"none": evaluation.clean, **rows}, evaluation)


def severity_table(evaluation: RobustEvaluation) -> str:
    """NED and the best calibrated baseline at each severity, mean over the corruptions."""
    rows = {str(severity): outcome for severity, outcome in evaluation.by_severity.items()}
    return _table_of_two("severity", {"0 (clean)": evaluation.clean, **rows}, evaluation)


def column(results: Sequence[MethodResult], measure: str, better: Better | None) -> list[str]:
    """The cells of one measure, the best bold."""
    intervals = [result.interval(measure) for result in results]
    best = best_places(intervals, better)
    return [percent(interval, bold=bold) for interval, bold in zip(intervals, best, strict=True)]


def _table_of_two(head: str, rows: Mapping[str, Outcome], evaluation: RobustEvaluation) -> str:
    """Rows against accuracy, ECE, its floor and over-confidence of two methods."""
    baseline = best_baseline([mean_of_corruptions(evaluation)])
    columns: dict[str, list[str]] = {head: list(rows)}
    for method in (NED, baseline):
        results = [outcome.of(method) for outcome in rows.values()]
        others = [outcome.of(NED if method != NED else baseline) for outcome in rows.values()]
        columns[f"{method.title}: accuracy %"] = [
            percent(mine.accuracy, bold=best_places([mine.accuracy, other.accuracy], "more")[0])
            for mine, other in zip(results, others, strict=True)
        ]
        columns[f"{method.title}: ECE %"] = [
            percent(mine.ece, bold=best_places([mine.ece, other.ece], "less")[0])
            for mine, other in zip(results, others, strict=True)
        ]
        columns[f"{method.title}: ECE floor %"] = [
            f"{100 * result.ece_floor:.2f}" for result in results
        ]
        columns[f"{method.title}: confidence less accuracy"] = [
            points(result.overconfidence) for result in results
        ]
    return markdown(columns) + "\n"


def _arrow(clean: Interval) -> str:
    return f"{100 * clean.estimate:.2f} -> "


def _words(name: str) -> str:
    return name.replace("_", " ")
