"""The paper's figures: what is printed there, as fractions."""

import pytest

from nearsure.lab.paper import TABLE_1_LOSS, TABLE_4_LOSSES, PaperCell, paper_cell
from nearsure.rules import RULE_NAMES, RuleName


@pytest.mark.parametrize(
    ("dataset", "loss", "rule", "accuracy", "ece"),
    [
        ("cub200", "normalized-softmax", "ned", 0.749, 0.024),
        ("cub200", "normalized-softmax", "dudani", 0.743, 0.205),
        ("cars196", "normalized-softmax", "gou", 0.913, 0.123),
        ("sop", "normalized-softmax", "knn", 0.812, 0.244),
        ("inshop", "normalized-softmax", "1nn", 0.909, None),
        ("cub200", "triplet", "knn", 0.5593, 0.044),
        ("cars196", "n-pairs", "1nn", 0.6792, 0.0416),
        ("sop", "proxy-nca", "ned", 0.7428, 0.0301),
    ],
)
def test_cells(dataset: str, loss: str, rule: RuleName, accuracy: float, ece: float | None) -> None:
    assert paper_cell(dataset, loss, rule) == PaperCell(accuracy, ece)


def test_the_paper_has_all_rules_wherever_it_has_one() -> None:
    tried = {
        (dataset, loss)
        for dataset in ("cub200", "cars196", "sop", "inshop")
        for loss in (TABLE_1_LOSS, *TABLE_4_LOSSES)
        if paper_cell(dataset, loss, "ned") is not None
    }
    assert len(tried) == 4 + 3 + 3 + 2
    for dataset, loss in tried:
        cells = [paper_cell(dataset, loss, rule) for rule in RULE_NAMES]
        accuracies = [cell.accuracy for cell in cells if cell is not None]
        assert len(accuracies) == 5
        assert min(accuracies) > 0.4
        assert max(accuracies) == accuracies[-1] < 1  # in the paper NED is nowhere behind


@pytest.mark.parametrize(
    ("dataset", "loss"), [("sop", "triplet"), ("inshop", "n-pairs"), ("digits", "triplet")]
)
def test_what_the_paper_did_not_try_is_none(dataset: str, loss: str) -> None:
    assert paper_cell(dataset, loss, "ned") is None
