"""The paper's figures: what is printed there, as fractions."""

import pytest

from nearsure.lab.tables import (
    TABLE_1_LOSS,
    TABLE_4_LOSSES,
    PaperCell,
    attacked_cell,
    corrupted_cell,
    paper_cell,
)
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


@pytest.mark.parametrize(
    ("dataset", "rule", "accuracy", "ece"),
    [
        ("cub200", "ned", 0.648, 0.03),
        ("cars196", "gou", 0.77, 0.169),
        ("sop", "knn", 0.751, 0.273),
        ("inshop", "1nn", 0.802, None),
    ],
)
def test_corrupted_cells(dataset: str, rule: RuleName, accuracy: float, ece: float | None) -> None:
    assert corrupted_cell(dataset, TABLE_1_LOSS, rule) == PaperCell(accuracy, ece)


@pytest.mark.parametrize(
    ("attack", "epsilon", "rule", "accuracy", "ece"),
    [
        ("fgsm", 0.1, "1nn", 0.863, None),
        ("fgsm", 0.3, "ned", 0.813, 0.036),
        ("bim", 0.3, "gou", 0.732, 0.132),
        ("pgd", 0.1, "knn", 0.878, 0.106),
    ],
)
def test_attacked_cells(
    attack: str, epsilon: float, rule: RuleName, accuracy: float, ece: float | None
) -> None:
    assert attacked_cell("cars196", attack, epsilon, rule) == PaperCell(accuracy, ece)


def test_only_the_cell_that_reads_like_a_misprint_has_a_note() -> None:
    noted = {
        (attack, epsilon, rule): cell
        for attack in ("fgsm", "bim", "pgd")
        for epsilon in (0.1, 0.3)
        for rule in RULE_NAMES
        if (cell := attacked_cell("cars196", attack, epsilon, rule)) is not None and cell.note
    }
    assert list(noted) == [("bim", 0.1, "ned")]
    (cell,) = noted.values()
    assert cell.accuracy == 0.804
    assert "80.4" in cell.note
    assert "88.4" in cell.note


def test_in_the_paper_damage_costs_every_rule_accuracy() -> None:
    for dataset in ("cub200", "cars196", "sop", "inshop"):
        for rule in RULE_NAMES:
            clean = paper_cell(dataset, TABLE_1_LOSS, rule)
            damaged = corrupted_cell(dataset, TABLE_1_LOSS, rule)
            assert clean is not None
            assert damaged is not None
            assert damaged.accuracy < clean.accuracy


def test_what_the_paper_did_not_damage_is_none() -> None:
    assert corrupted_cell("cub200", "triplet", "ned") is None
    assert corrupted_cell("glyphs", TABLE_1_LOSS, "ned") is None
    assert attacked_cell("cub200", "pgd", 0.1, "ned") is None
    assert attacked_cell("cars196", "pgd", 8 / 255, "ned") is None
    assert attacked_cell("cars196", "confidence", 0.1, "ned") is None
