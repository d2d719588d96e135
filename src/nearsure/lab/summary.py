"""All results below a folder: the paper beside ours, every run, and Figure 2 of all data sets."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearsure.comparison import title_of, write_rows
from nearsure.errors import NearsureError
from nearsure.lab.cache import from_plain, write_text
from nearsure.lab.default_rule import DEFAULT
from nearsure.lab.evaluation import Evaluation
from nearsure.lab.figures import draw_neighbor_panels
from nearsure.lab.paper_tables import (
    DOUBTFUL,
    TABLE_1_LOSS,
    TABLE_3_DATASET,
    TABLE_4_LOSSES,
    PaperCell,
    attacked_cell,
    corrupted_cell,
    paper_cell,
)
from nearsure.lab.robust.evaluation import Outcome, RobustEvaluation
from nearsure.lab.robust.methods import Method
from nearsure.lab.robust.tables import DOUBT, AttackKey, attacked_outcomes
from nearsure.lab.tables import OBJECTIVE_TITLES, PROTOCOL_TITLES, points, trainings_table
from nearsure.rules import RULE_NAMES

# Where the page of a folder takes the tables.
BEGIN = "<!-- What follows is made by `nearsure summary --write`; edit below it. -->"
END = "<!-- The end of what `nearsure summary --write` makes. -->"
FIGURE_2 = "figure-2.png"
PAPER_DATASETS = ("cub200", "cars196", "sop", "inshop")
# By which the paper's numbers are to be compared.
PAPER_PROTOCOLS = ("all_against_others", "given_gallery")
ABSENT = "not run"
EXPLANATION = (
    "Accuracy and ECE (15 bins of equal width) in percent: the paper's, ours, and ours less the "
    "paper's in points; k = 50, every point against all others. nearsure is `NEDClassifier` as it "
    "comes, on the same points. Tables 2 and 3 have means over corrupted queries and attacked ones."
)


@dataclass(frozen=True)
class Run:
    """The evaluations of one embedding.

    Parameters
    ----------
    dataset, name : str
        Which data, and what the embedding was trained with.
    folder : str
        Where its page is.
    evaluations : tuple of Evaluation
        One a protocol.
    """

    dataset: str
    name: str
    folder: str
    evaluations: tuple[Evaluation, ...]

    def by_paper(self) -> Evaluation | None:
        """The evaluation that the paper's numbers may be compared with."""
        found = (one for one in self.evaluations if one.protocol in PAPER_PROTOCOLS)
        return next(found, None)


def summary(folder: Path) -> str:
    """Markdown tables of every run below a folder.

    Parameters
    ----------
    folder : Path
        Holds a folder for each data set with the ``results.json`` of `write_report`, and below it
        perhaps ``robustness/robustness.json``, and ``seed-*/results.json`` of other trainings.

    Returns
    -------
    str
        The paper's Tables 1 to 4 beside ours; how much trainings differ; all runs by each protocol;
        NED with T fitted in two ways.
    """
    runs = list(_read_runs(folder))
    if not runs:
        raise NearsureError(f"{folder} should hold <data set>/results.json. There is none.")
    parts = [EXPLANATION, paper_table(runs, _read_damaged(folder))]
    if (folder / FIGURE_2).exists():
        parts += [f"![Figure 2: accuracy against k]({FIGURE_2})"]
    trainings = _read_trainings(folder)
    if trainings:
        parts += ["## Spread over trainings", TRAININGS, trainings_table(trainings)]
    parts += ["## Every run", RUNS, run_table(runs)]
    readings = reading_table(runs)
    if readings:
        parts += ["## T by likelihood, and by the top label", READINGS, readings]
    return "\n\n".join(parts)


def write_summary(folder: Path) -> list[Path]:
    """Put the tables into a folder's README.md, between two marks, and draw Figure 2 beside it.

    Parameters
    ----------
    folder : Path
        As of `summary`; its README.md holds the lines `BEGIN` and `END`.
    """
    page = folder / "README.md"
    text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise NearsureError(
            f"{page} must hold the lines {BEGIN!r} and {END!r}, between which the tables go."
        )
    figure = draw_figure_2(folder)
    write_text(page, f"{before}{BEGIN}\n\n{summary(folder)}\n\n{END}{after}")
    return [page, figure]


def draw_figure_2(folder: Path) -> Path:
    """The paper's Figure 2: accuracy against k, a panel a data set, of its first trained run."""
    chosen: dict[str, Evaluation] = {}
    for run in _read_runs(folder):
        evaluation = run.by_paper()
        main = run.name in {TABLE_1_LOSS, "given embeddings"}
        if main and evaluation is not None:
            chosen.setdefault(run.dataset, evaluation)
    return draw_neighbor_panels(chosen, folder / FIGURE_2)


def _read_runs(folder: Path) -> Iterator[Run]:
    for path in sorted(folder.glob("*/results.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for name, run in document["runs"].items():
            found = (from_plain(Evaluation, fields) for fields in run["evaluations"].values())
            yield Run(document["dataset"], name, path.parent.name, tuple(found))


def _read_trainings(folder: Path) -> dict[tuple[str, int], Evaluation]:
    """Trainings with several seeds by the paper's protocol, by data set and loss, and by seed."""
    found: defaultdict[str, dict[int, Evaluation]] = defaultdict(dict)
    for path in sorted((*folder.glob("*/results.json"), *folder.glob("*/seed-*/results.json"))):
        document = json.loads(path.read_text(encoding="utf-8"))
        first = [{"run": name, **run} for name, run in document["runs"].items()]
        for run in (*first, *document.get("other_trainings", ())):
            settings = run.get("settings", {})
            if settings.get("model", {}).get("trained", "nothing") == "nothing":
                continue
            for protocol in filter(run["evaluations"].__contains__, PAPER_PROTOCOLS):
                evaluation = from_plain(Evaluation, run["evaluations"][protocol])
                name = f"{document['dataset']}, {run['run']}"
                found[name].setdefault(settings["seed"], evaluation)
    return {
        (name, seed): evaluation
        for name, by_seed in found.items()
        if len(by_seed) > 1
        for seed, evaluation in sorted(by_seed.items())
    }


def _read_damaged(folder: Path) -> dict[str, list[RobustEvaluation]]:
    """Corrupted and attacked queries by data set, where the loss is that of the paper."""
    found: dict[str, list[RobustEvaluation]] = {}
    for path in sorted(folder.glob("*/robustness/robustness.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["loss"] == TABLE_1_LOSS:
            evaluations = [from_plain(RobustEvaluation, one) for one in document["evaluations"]]
            found[document["dataset"]] = [
                one for one in evaluations if one.protocol in PAPER_PROTOCOLS
            ]
    return found


PAPER_HEADER = (
    "table",
    "data",
    "what",
    "1NN: paper",
    "ours",
    "difference",
    "NED: paper",
    "ours",
    "difference",
    "its ECE: paper",
    "ours",
    "difference",
    "nearsure: accuracy",
    "ECE",
    "details",
)
# Accuracy and ECE of a rule, by its name, or None where it was not asked.
Figures = Mapping[str, tuple[float, float]]


def paper_table(runs: Sequence[Run], damaged: Mapping[str, Sequence[RobustEvaluation]]) -> str:
    """Tables 1 to 4 of the paper beside ours: a row a data set and loss, or attack."""
    rows = []
    for number, losses in (("1", (TABLE_1_LOSS,)), ("4", TABLE_4_LOSSES)):
        for dataset in PAPER_DATASETS:
            for loss in losses:
                if paper_cell(dataset, loss, "ned") is None:
                    continue
                run = next((r for r in runs if (r.dataset, r.name) == (dataset, loss)), None)
                evaluation = run.by_paper() if run else None
                cells = {rule: paper_cell(dataset, loss, rule) for rule in ("1nn", "ned")}
                ours = _figures(evaluation) if evaluation else {}
                link = f"[{dataset}]({run.folder}/README.md)" if run else ABSENT
                digits = 1 if loss == TABLE_1_LOSS else 2
                rows.append([number, dataset, loss, *_row(cells, ours, digits), link])
    for dataset in PAPER_DATASETS:
        mean = next((one.mean for one in damaged.get(dataset, ()) if one.mean), None)
        cells = {rule: corrupted_cell(dataset, TABLE_1_LOSS, rule) for rule in ("1nn", "ned")}
        link = _robust_link(dataset) if mean else ABSENT
        rows.append(["2", dataset, "corrupted", *_row(cells, _outcome(mean)), link])
    attacked = [one for one in damaged.get(TABLE_3_DATASET, ()) if one.attacks]
    by_model = {one.model: attacked_outcomes(one) for one in attacked} or {"": {}}
    for attack in (AttackKey(name, size) for name in ("fgsm", "bim", "pgd") for size in (0.1, 0.3)):
        for model, outcomes in by_model.items():
            cells = {
                rule: attacked_cell(TABLE_3_DATASET, attack.name, attack.epsilon, rule)
                for rule in ("1nn", "ned")
            }
            outcome = outcomes.get(attack)
            what = f"{attack.title} {attack.epsilon:g}" + (f", {model}" if model else "")
            link = _robust_link(TABLE_3_DATASET) if outcome else "not attacked"
            rows.append(["3", TABLE_3_DATASET, what, *_row(cells, _outcome(outcome)), link])
    rows.sort(key=lambda row: row[0])
    misprint = attacked_cell(TABLE_3_DATASET, *DOUBTFUL)
    note = f"\n\n{DOUBT} {misprint.note}." if misprint else ""
    return write_rows(PAPER_HEADER, rows) + note


def _robust_link(dataset: str) -> str:
    return f"[{dataset}]({dataset}/robustness/README.md)"


def _figures(evaluation: Evaluation) -> Figures:
    return {
        result.rule: (result.accuracy.estimate, result.ece.estimate)
        for result in evaluation.comparison
    }


def _outcome(outcome: Outcome | None) -> Figures:
    if outcome is None:
        return {}
    return {
        result.method.base: (result.accuracy.estimate, result.ece.estimate)
        for result in outcome.results
        if result.method == Method(result.method.base)
    }


def _row(cells: Mapping[str, PaperCell | None], ours: Figures, digits: int = 1) -> list[str]:
    """1NN, NED and its ECE, each as the paper has it, as we have it, and the difference."""
    row = []
    for rule, place in (("1nn", 0), ("ned", 0), ("ned", 1)):
        cell = cells[rule]
        paper = None if cell is None else (cell.accuracy, cell.ece)[place]
        doubtful = place == 0 and cell is not None and cell.note != ""
        row.append("" if paper is None else f"{100 * paper:.{digits}f}{DOUBT * doubtful}")
        own = ours[rule][place] if rule in ours else None
        row.append("" if own is None else f"{100 * own:.2f}")
        if own is None or paper is None or doubtful:
            row.append("")
        else:
            row.append(f"{100 * (own - paper):+.{digits}f}")
    default = [f"{100 * figure:.2f}" for figure in ours[DEFAULT]] if DEFAULT in ours else ["", ""]
    return row + default


TRAININGS = (
    "The same settings with other seeds of the training, every point against all others, k = 50. "
    "All other intervals are over queries, for one training."
)
RUNS = (
    'All at k = 50. "Half and half" is strict: T never sees the queries. The floor of an ECE is '
    "what a perfectly calibrated forecaster with the same confidences would show; the debiased ECE "
    "has an estimate of what chance adds taken off. Differences are paired by query, with 95% "
    "bootstrap intervals."
)
RUN_HEADER = (
    "data",
    "embedding",
    "protocol",
    "1NN %",
    "most accurate baseline: accuracy %, ECE %",
    "NED: accuracy %, ECE % (debiased; floor)",
    "NED less that baseline, points",
    "nearsure (default): accuracy %, ECE % (debiased; floor)",
)


def run_table(runs: Sequence[Run]) -> str:
    """Every run by each protocol: NED against the most accurate baseline, and the default."""
    rows = [
        (run.dataset, run.name, *_run_row(evaluation))
        for run in runs
        for evaluation in run.evaluations
    ]
    return write_rows(RUN_HEADER, rows)


def _run_row(evaluation: Evaluation) -> tuple[str, ...]:
    results = {rule: evaluation.result_of(rule) for rule in RULE_NAMES if rule != "ned"}
    best_rule = max(results, key=lambda rule: results[rule].accuracy.estimate)
    best = results[best_rule]
    return (
        PROTOCOL_TITLES[evaluation.protocol],
        f"{100 * results['1nn'].accuracy.estimate:.2f}",
        f"{title_of(best_rule)} {100 * best.accuracy.estimate:.2f}, {100 * best.ece.estimate:.2f}",
        _calibrated(evaluation, "ned"),
        points(evaluation.ned_gain[best_rule]),
        _calibrated(evaluation, DEFAULT) if DEFAULT in evaluation.rules else "",
    )


def _calibrated(evaluation: Evaluation, rule: str) -> str:
    result = evaluation.result_of(rule)
    debiased = evaluation.debiased_ece.get(rule)
    first = "" if debiased is None else f"{100 * debiased.estimate:.2f}; "
    return (
        f"{100 * result.accuracy.estimate:.2f}, {100 * result.ece.estimate:.2f} "
        f"({first}{100 * result.ece_floor:.2f})"
    )


READINGS = (
    "NED, accuracy % / ECE %. The paper fits T by the likelihood of the true class. The log loss "
    'of "the answer is right" (`objective="top_label"`) asks of T what ECE asks.'
)


def reading_table(runs: Sequence[Run]) -> str:
    """NED of every run with T fitted in two ways, beside the paper's; empty without readings."""
    rows = []
    for run in runs:
        for evaluation in run.evaluations:
            if not evaluation.readings:
                continue
            by_paper = evaluation.protocol in PAPER_PROTOCOLS
            cell = paper_cell(run.dataset, run.name, "ned") if by_paper else None
            paper = ""
            if cell is not None and cell.ece is not None:
                paper = f"{100 * cell.accuracy:g} / {100 * cell.ece:g}"
            cells = [
                f"{100 * reading.accuracy:.2f} / {100 * reading.ece:.2f}"
                for reading in map(evaluation.readings.__getitem__, OBJECTIVE_TITLES)
            ]
            protocol = PROTOCOL_TITLES[evaluation.protocol]
            rows.append([run.dataset, run.name, protocol, *cells, paper])
    titles = [f"T by {title}" for title in OBJECTIVE_TITLES.values()]
    return write_rows(["data", "embedding", "protocol", *titles, "paper"], rows) if rows else ""
