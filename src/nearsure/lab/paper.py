"""What the NED paper reports, to be set beside one's own figures."""

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from nearsure.rules import RuleName

# The loss of the paper's Table 1, and those of its Table 4.
TABLE_1_LOSS = "normalized-softmax"
TABLE_4_LOSSES = ("triplet", "n-pairs", "proxy-nca")
# The data set of its Table 3, and the cell that reads like a misprint: attack, epsilon, rule.
TABLE_3_DATASET = "cars196"
DOUBTFUL = ("bim", 0.1, "ned")


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
    """

    accuracy: float
    ece: float | None
    note: str = field(default="", repr=False)


def paper_cell(dataset: str, loss: str, rule: RuleName) -> PaperCell | None:
    """What the paper reports about a rule on clean images.

    Parameters
    ----------
    dataset : str
        "cub200", "cars196", "sop" or "inshop".
    loss : str
        "normalized-softmax" (Table 1), "triplet", "n-pairs" or "proxy-nca" (Table 4).
    rule : {"1nn", "knn", "dudani", "gou", "ned"}
        Whose confidence.

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
    return _cell(_tables()["clean"].get(dataset, {}).get(loss, {}).get(rule))


def corrupted_cell(dataset: str, loss: str, rule: RuleName) -> PaperCell | None:
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
    return _cell(_tables()["corrupted_15x5_average"].get(dataset, {}).get(loss, {}).get(rule))


def attacked_cell(dataset: str, attack: str, epsilon: float, rule: RuleName) -> PaperCell | None:
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
        Whose confidence.

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
    return _cell(row.get(rule), note)


def _cell(percents: list[float | None] | None, note: str = "") -> PaperCell | None:
    if percents is None:
        return None
    accuracy, ece = percents
    if accuracy is None:
        return None
    return PaperCell(_fraction(accuracy), None if ece is None else _fraction(ece), note)


@cache
def _tables() -> dict[str, Any]:
    text = files("nearsure.lab").joinpath("paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


def _fraction(percent: float) -> float:
    # 2.4 / 100 is 0.024 to the last digit only once it is rounded to the digits that were printed.
    return round(percent / 100, 4)
