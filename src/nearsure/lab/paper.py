"""What the NED paper reports, to be set beside one's own figures."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from nearsure.rules import RuleName

# The loss of the paper's Table 1, and those of its Table 4.
TABLE_1_LOSS = "normalized-softmax"
TABLE_4_LOSSES = ("triplet", "n-pairs", "proxy-nca")


@dataclass(frozen=True)
class PaperCell:
    """Two numbers of the paper.

    Parameters
    ----------
    accuracy : float
        A fraction.
    ece : float or None
        A fraction; None where the paper prints none, as for most of 1NN.
    """

    accuracy: float
    ece: float | None


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
    cell = _tables()["clean"].get(dataset, {}).get(loss, {}).get(rule)
    if cell is None:
        return None
    accuracy, ece = cell
    return PaperCell(_fraction(accuracy), None if ece is None else _fraction(ece))


@cache
def _tables() -> dict[str, Any]:
    text = files("nearsure.lab").joinpath("paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


def _fraction(percent: float) -> float:
    # 2.4 / 100 is 0.024 to the last digit only once it is rounded to the digits that were printed.
    return round(percent / 100, 4)
