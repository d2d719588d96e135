"""The numbers of the paper's Tables 1 to 4, and which of them cannot be what they are called."""

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

# The loss of the paper's Table 1, and those of its Table 4.
TABLE_1_LOSS = "normalized-softmax"
TABLE_4_LOSSES = ("triplet", "n-pairs", "proxy-nca")
# The data set of its Table 3, and the cell that reads like a misprint: attack, epsilon, rule.
TABLE_3_DATASET = "cars196"
DOUBTFUL = ("bim", 0.1, "ned")
# Follows an ECE that cannot be one, in place of a difference.
IMPOSSIBLE = "(?)"
IMPOSSIBLE_LEGEND = (
    'No difference follows an ECE of the paper with "(?)": it is above 1 - accuracy, which no '
    "over-confident rule can reach, or of 1NN and not 1 - accuracy."
)
Measure = Literal["accuracy", "ece"]


@dataclass(frozen=True)
class PaperCell:
    """Two numbers of the paper.

    Parameters
    ----------
    accuracy : float
        A fraction.
    ece : float or None
        A fraction; None where the paper prints none, as for most of 1NN.
    note : str
        What is doubtful about them; mostly nothing.
    rule : str
        Whose they are.
    """

    accuracy: float
    ece: float | None
    note: str = field(default="", repr=False)
    rule: str = field(default="", repr=False, compare=False)

    @property
    def ece_is_possible(self) -> bool:
        """Whether the ECE can be one, by the accuracy beside it.

        1NN is always sure, so its ECE is 1 - accuracy. The paper calls the other rules
        over-confident, and the ECE of a rule that claims too much everywhere is at most that.

        Examples
        --------
        >>> paper_cell("cars196", "normalized-softmax", "dudani").ece_is_possible
        False
        """
        if self.ece is None:
            return True
        error = round(1 - self.accuracy, 4)
        return self.ece == error if self.rule == "1nn" else self.ece <= error


def paper_cell(dataset: str, loss: str, rule: str) -> PaperCell | None:
    """What the paper reports about a rule on clean images.

    Parameters
    ----------
    dataset : str
        "cub200", "cars196", "sop" or "inshop".
    loss : str
        "normalized-softmax" (Table 1), "triplet", "n-pairs" or "proxy-nca" (Table 4).
    rule : {"1nn", "knn", "dudani", "gou", "ned"}
        The rule.

    Returns
    -------
    PaperCell or None
        None for what the paper did not try, such as one's own images.

    Examples
    --------
    >>> paper_cell("cub200", "normalized-softmax", "ned")
    PaperCell(accuracy=0.749, ece=0.024)
    >>> paper_cell("sop", "triplet", "ned") is None
    True
    """
    return _cell(rule, _tables()["clean"].get(dataset, {}).get(loss, {}).get(rule))


def reported_1nn(dataset: str, loss: str) -> float | None:
    """The accuracy of 1NN that the paper quotes from others, its row "1NN (reported)".

    Examples
    --------
    >>> reported_1nn("cub200", "normalized-softmax")
    0.676
    """
    percent = _tables()["reported_1nn"].get(dataset, {}).get(loss)
    return None if percent is None else round(percent / 100, 4)


def corrupted_cell(dataset: str, loss: str, rule: str) -> PaperCell | None:
    """What the paper reports in the mean over 15 corruptions at 5 severities (Table 2).

    Parameters
    ----------
    dataset, loss, rule
        As of `paper_cell`; the paper has only "normalized-softmax".

    Returns
    -------
    PaperCell or None
        None for what the paper did not try.

    Examples
    --------
    >>> corrupted_cell("cub200", "normalized-softmax", "ned")
    PaperCell(accuracy=0.648, ece=0.03)
    """
    tables = _tables()["corrupted_15x5_average"]
    return _cell(rule, tables.get(dataset, {}).get(loss, {}).get(rule))


def attacked_cell(dataset: str, attack: str, epsilon: float, rule: str) -> PaperCell | None:
    """What the paper reports about attacked images (Table 3).

    Parameters
    ----------
    dataset : str
        The paper has only "cars196".
    attack : str
        "fgsm", "bim" or "pgd".
    epsilon : float
        The paper has 0.1 and 0.3.
    rule : {"1nn", "knn", "dudani", "gou", "ned"}
        The rule.

    Returns
    -------
    PaperCell or None
        With a note where the printed number is doubtful; None for what the paper did not try.

    Examples
    --------
    >>> attacked_cell("cars196", "pgd", 0.3, "ned")
    PaperCell(accuracy=0.78, ece=0.029)
    >>> attacked_cell("cars196", "bim", 0.1, "ned").note[:47]
    'The accuracy of NED under BIM eps=0.1 is printe'
    """
    if dataset != TABLE_3_DATASET:
        return None
    tables = _tables()
    row = tables[f"adversarial_{dataset}"].get(f"{attack.upper()} eps={epsilon:g}", {})
    note = tables["adversarial_note"] if (attack, epsilon, rule) == DOUBTFUL else ""
    return _cell(rule, row.get(rule), note)


def beside(
    cell: PaperCell | None, measure: Measure, ours: float, *, mark: str = "", digits: int = 1
) -> str:
    """The paper's number and our difference from it, to follow a cell; nothing if it has none.

    No difference follows a number that cannot be one, or that reads like a misprint.

    Parameters
    ----------
    cell : PaperCell or None
        Of the paper.
    measure : {"accuracy", "ece"}
        Which of its numbers.
    ours : float
        A fraction.
    mark : str
        After a number with a note.
    digits : int
        As many as the paper prints.

    Examples
    --------
    >>> beside(paper_cell("cub200", "normalized-softmax", "ned"), "accuracy", 0.639)
    '; paper 74.9, -11.0'
    >>> beside(paper_cell("cars196", "normalized-softmax", "gou"), "ece", 0.235)
    '; paper 12.3 (?)'
    """
    paper: float | None = getattr(cell, measure, None)
    if cell is None or paper is None:
        return ""
    text = f"; paper {100 * paper:.{digits}f}"
    if measure == "ece" and not cell.ece_is_possible:
        return f"{text} {IMPOSSIBLE}"
    if measure == "accuracy" and cell.note:
        return text + mark
    return f"{text}, {100 * (ours - paper):+.{digits}f}"


def _cell(rule: str, percents: list[float | None] | None, note: str = "") -> PaperCell | None:
    if percents is None:
        return None
    # 2.4 / 100 is 0.024 to the last digit only once it is rounded to the digits that were printed.
    accuracy, ece = (None if number is None else round(number / 100, 4) for number in percents)
    return None if accuracy is None else PaperCell(accuracy, ece, note, rule)


@cache
def _tables() -> dict[str, Any]:
    text = files("nearsure.lab").joinpath("paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables
