"""What a page of claims is made of: stored results, the paper's numbers, and verdicts."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nearsure.comparison import write_rows
from nearsure.errors import NearsureError
from nearsure.lab.paper_tables import paper_cell

Verdict = Literal["confirmed", "in part", "not confirmed", "cannot be tested here"]
VERDICTS: tuple[Verdict, ...] = ("confirmed", "in part", "not confirmed", "cannot be tested here")
BASELINES = ("knn", "dudani", "gou")
# The protocol that the paper does not have: half of every class is the gallery.
STRICT = "gallery_and_queries"
MAIN_LOSS = "normalized-softmax"
# The paper's data sets, as it has them.
ORDER = ("cub200", "cars196", "sop", "inshop")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what came of it.

    Parameters
    ----------
    text : str
        What the paper says.
    where : str
        In which table, figure or section.
    paper, here : str
        Its numbers and ours.
    verdict : str
        One of `VERDICTS`.
    why : str
        One sentence.
    """

    text: str
    where: str
    paper: str
    here: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, eq=False)
class Row:
    """One embedding by one protocol, as ``results.json`` has it.

    Parameters
    ----------
    dataset, run : str
        Which.
    evaluation, sweep : dict
        In JSON's types.
    """

    dataset: str
    run: str
    evaluation: dict[str, Any]
    sweep: dict[str, Any]

    @property
    def protocol(self) -> str:
        """Which points are the gallery, and which are queries."""
        return str(self.evaluation["protocol"])

    @property
    def k(self) -> int:
        """Neighbours of the tables."""
        return int(self.evaluation["k"])

    @property
    def in_paper(self) -> bool:
        """Whether the paper has the same data set and loss, by the same protocol."""
        return self.protocol != STRICT and paper_cell(self.dataset, self.run, "ned") is not None

    def accuracy(self, rule: str) -> float:
        """In percent, at k."""
        return self._measure(rule, "accuracy")

    def ece(self, rule: str) -> float:
        """In percent, at k."""
        return self._measure(rule, "ece")

    def _measure(self, rule: str, name: str) -> float:
        found = next(each for each in self.evaluation["comparison"] if each["rule"] == rule)
        return 100 * float(found[name]["estimate"])

    def curve(self, rule: str, name: str = "accuracy") -> dict[int, float]:
        """In percent, by the number of neighbours."""
        curve = self.evaluation["curve"]
        return {k: 100 * value for k, value in zip(curve["ks"], curve[name][rule], strict=True)}

    def overconfidence(self, rule: str) -> float:
        """Mean confidence less accuracy, in points."""
        bins = self._bins(rule)
        return float(np.average(bins[1] - bins[2], weights=bins[0]))

    def largest_gap(self, rule: str, least_share: float) -> float:
        """Largest distance of a bin's confidence and accuracy, of bins with enough queries."""
        counts, confidence, right = self._bins(rule)
        enough = counts >= least_share * counts.sum()
        return float(np.abs(confidence - right)[enough].max())

    def accuracy_of_bins(self, rule: str, bins: slice) -> float:
        """Accuracy of the answers in some bins of confidence, in percent; NaN without any."""
        counts, _, right = (column[bins] for column in self._bins(rule))
        if not counts.any():
            return float("nan")
        return float(np.average(right, weights=counts))

    def _bins(self, rule: str) -> Any:  # noqa: ANN401 - three arrays
        bins = self.evaluation["reliability"][rule]
        counts, *columns = (
            np.array([np.nan if value is None else value for value in bins[name]], float)
            for name in ("counts", "mean_confidence", "accuracy")
        )
        confidence, right = (100 * np.nan_to_num(column) for column in columns)
        return counts, confidence, right


def read_rows(folder: Path) -> list[Row]:
    """Every run by every protocol below a folder, those of the paper's data sets first."""
    paths = sorted(folder.glob("*/results.json"))
    if not paths:
        raise NearsureError(f"{folder} should hold <data set>/results.json. There is none.")
    rows = []
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        for name, run in document["runs"].items():
            rows += [
                Row(document["dataset"], name, evaluation, run["sweeps"][protocol])
                for protocol, evaluation in run["evaluations"].items()
            ]
    return sorted(rows, key=lambda row: _place(row.dataset))


def _place(dataset: str) -> int:
    return ORDER.index(dataset) if dataset in ORDER else len(ORDER)


def find_row(rows: Iterable[Row], dataset: str, run: str = MAIN_LOSS) -> Row | None:
    """The row of a data set and a loss by the paper's protocol, if there is one."""
    return next(
        (
            row
            for row in rows
            if (row.dataset, row.run) == (dataset, run) and row.protocol != STRICT
        ),
        None,
    )


@cache
def paper_tables() -> dict[str, Any]:
    """The numbers of the paper's tables: [accuracy, ECE] in percent by rule."""
    text = files("nearsure.lab").joinpath("paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


PaperColumn = dict[str, list[float | None]]


def clean_columns(*, losses: Sequence[str] | None = None) -> list[PaperColumn]:
    """The columns of Tables 1 and 4, or of some losses, each by rule."""
    return [
        column
        for by_loss in paper_tables()["clean"].values()
        for loss, column in by_loss.items()
        if losses is None or loss in losses
    ]


def paper_column(dataset: str, loss: str = MAIN_LOSS) -> PaperColumn:
    """A column of Table 1 or 4."""
    found: PaperColumn = paper_tables()["clean"][dataset][loss]
    return found


def corrupted_columns() -> list[PaperColumn]:
    """The columns of Table 2."""
    by_dataset = paper_tables()["corrupted_15x5_average"].values()
    return [column for by_loss in by_dataset for column in by_loss.values()]


def attacked_columns() -> list[PaperColumn]:
    """The columns of Table 3."""
    return list(paper_tables()["adversarial_cars196"].values())


def number(column: PaperColumn, rule: str, place: int) -> float:
    """Accuracy (place 0) or ECE (1) of a rule in a column of the paper, which it must have."""
    value = column[rule][place]
    if value is None:
        raise NearsureError(f"The paper has no number of {rule} there.")
    return value


def gains(columns: Iterable[PaperColumn], rule: str = "1nn") -> list[float]:
    """NED's accuracy less that of a rule, in points."""
    return [number(column, "ned", 0) - number(column, rule, 0) for column in columns]


def impossible_cells() -> Iterator[tuple[PaperColumn, str]]:
    """Cells of kNN and its weighted forms whose ECE exceeds 1 - accuracy.

    A rule that claims too much in every bin has an ECE of mean confidence less accuracy, and no
    confidence exceeds 1.
    """
    for column in (*clean_columns(), *corrupted_columns(), *attacked_columns()):
        for rule in BASELINES:
            if number(column, rule, 1) > 100 - number(column, rule, 0):
                yield column, rule


def judge(holds: Sequence[bool]) -> Verdict:
    """Confirmed if a claim holds in every row, in part if in half of them or more."""
    if not holds:
        return "cannot be tested here"
    if all(holds):
        return "confirmed"
    return "in part" if 2 * sum(holds) >= len(holds) else "not confirmed"


def span(values: Iterable[float], *, digits: int = 1, sign: bool = False) -> str:
    """From the least to the most.

    Examples
    --------
    >>> span([2.04, 0.3]), span([-1, 2], sign=True), span([3.0])
    ('0.3 to 2.0', '-1.0 to +2.0', '3.0')
    """
    found = list(values)
    form = f"{'+' if sign else ''}.{digits}f"
    ends = [format(end, form) for end in (min(found), max(found))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def count(holds: Sequence[bool]) -> str:
    """How many of how many.

    Examples
    --------
    >>> count([True, False]), count([True, True])
    ('1 of 2', 'all 2')
    """
    return f"all {len(holds)}" if all(holds) else f"{sum(holds)} of {len(holds)}"


def each(rows: Iterable[Row], measure: Callable[[Row], float]) -> list[float]:
    """A measure of every row."""
    return [measure(row) for row in rows]


def claim_table(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown table."""
    header = ("the paper says", "its numbers", "here", "verdict", "why")
    return write_rows(
        header,
        [(f"{c.text} ({c.where})", c.paper, c.here, f"**{c.verdict}**", c.why) for c in claims],
    )
