"""Tables: our figures, the paper's beside them, and a summary of all runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from experiments import evaluation

from nearsure.comparison import TITLES
from nearsure.errors import NearsureError
from nearsure.lab.cache import from_plain, to_plain
from nearsure.lab.evaluation import Evaluation
from nearsure.lab.tables import (
    TABLE_1_LOSS,
    TABLE_4_LOSSES,
    PaperCell,
    attacked_cell,
    best_k_table,
    corrupted_cell,
    paper_cell,
    summary,
    table_1,
    table_4,
)
from nearsure.rules import RULE_NAMES, RuleName


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines]


def test_cells_hold_our_figure_with_its_interval_and_the_papers_with_the_difference() -> None:
    header, _, *rows = cells(table_1("cub200", "normalized-softmax", evaluation()))
    assert header[:5] == ["rule", "accuracy %", "ECE %", "ECE floor %", "Brier"]
    assert [row[0] for row in rows] == [TITLES[rule] for rule in RULE_NAMES]
    ned = evaluation().result_of("ned")
    right, error = 100 * ned.accuracy.estimate, 100 * ned.ece.estimate
    interval = f"({100 * ned.accuracy.low:.2f} to {100 * ned.accuracy.high:.2f})"
    plain = rows[-1][1].replace("**", "")
    assert plain == f"{right:.2f} {interval}; paper 74.9, {right - 74.9:+.1f}"
    assert rows[-1][2].endswith(f"; paper 2.4, {error - 2.4:+.1f}")
    assert rows[-1][4].replace("**", "").startswith(f"{ned.brier.estimate:.4f} (")
    # 1NN has an accuracy in the paper, and no ECE; ours is its error, as it is always sure.
    first = evaluation().result_of("1nn")
    assert "paper 67.2" in rows[0][1]
    assert "paper" not in rows[0][2]
    assert rows[0][2].startswith(f"{100 * (1 - first.accuracy.estimate):.2f}")


def test_gains_are_paired_differences_of_accuracy() -> None:
    header, _, *rows = cells(table_1("own", "own", evaluation()))
    assert header[5] == "NED's accuracy less this"
    ned = evaluation().result_of("ned").accuracy.estimate
    for rule, row in zip(RULE_NAMES[:-1], rows[:-1], strict=True):
        gain = 100 * (ned - evaluation().result_of(rule).accuracy.estimate)
        assert row[5].startswith(f"{gain:+.2f} (")
    assert len(rows[-1]) == 5  # NED less itself says nothing


def test_every_rule_is_shown_at_the_k_where_it_is_right_most_often() -> None:
    _, _, *rows = cells(best_k_table(evaluation()))
    curve = evaluation().curve
    for rule, row in zip(RULE_NAMES, rows, strict=True):
        best = max(curve.accuracy[rule])
        assert row[2] == f"{100 * best:.2f}"
        if rule != "1nn":
            assert curve.accuracy[rule][curve.ks.index(int(row[1]))] == best


@pytest.mark.parametrize(("column", "field"), [(1, "accuracy"), (2, "ece"), (4, "brier")])
def test_the_best_of_each_column_is_bold(column: int, field: str) -> None:
    _, _, *rows = cells(table_1("own", "own", evaluation()))
    estimates = [getattr(evaluation().result_of(rule), field).estimate for rule in RULE_NAMES]
    best = max(estimates) if field == "accuracy" else min(estimates)
    for row, estimate in zip(rows, estimates, strict=True):
        assert row[column].startswith("**") == (round(estimate, 4) == round(best, 4))


def test_only_what_the_paper_did_is_set_beside_it() -> None:
    assert "paper" not in table_1("own", "normalized-softmax", evaluation())
    strict = replace(evaluation(), protocol="gallery_and_queries")
    assert "paper" not in table_1("cub200", "normalized-softmax", strict)
    given = replace(evaluation(), protocol="given_gallery")
    assert "paper 91.3" in table_1("inshop", "normalized-softmax", given)


def test_the_head_says_what_was_asked() -> None:
    asked = replace(evaluation(), protocol="given_gallery", n_unknown_queries=7, notes=("Beware.",))
    table = table_1("own", "triplet", asked)
    head = table.splitlines()[0]
    fit = evaluation().temperature_fit
    assert head.startswith("**own, triplet**: the data set's own gallery")
    assert f"k = 20, T = {fit.temperature:.4g} +- {fit.standard_error:.2g} (" in head
    assert "240 queries (7 of a class that the gallery lacks), 240 points in the gallery" in head
    assert head.endswith("8 classes.")
    assert table.endswith("\n\nNote: Beware.\n")


def test_table_4_has_two_columns_a_loss_in_the_papers_order() -> None:
    table = table_4(
        "cub200", {"own": evaluation(), "n-pairs": evaluation(), "triplet": evaluation()}
    )
    header, _, *rows = cells(table)
    losses = ["triplet", "n-pairs", "own"]
    assert header[1:] == [f"{loss}: {what} %" for loss in losses for what in ("accuracy", "ECE")]
    right = 100 * evaluation().result_of("knn").accuracy.estimate
    assert rows[1][1].endswith(f"; paper 55.93, {right - 55.93:+.2f}")
    assert rows[1][2].split("; ")[1].startswith("paper 4.40, ")
    assert rows[1][3].endswith(f"; paper 59.53, {right - 59.53:+.2f}")
    assert "paper" not in rows[1][5]
    assert all(f"- {loss}: every point a query" in table for loss in losses)


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


RESULTS = Path(__file__).parents[2] / "results"


def test_the_page_of_results_holds_the_table_of_its_numbers() -> None:
    assert summary(RESULTS) in (RESULTS / "README.md").read_text(encoding="utf-8")


def evaluations() -> list[Evaluation]:
    return [
        from_plain(Evaluation, fields)
        for path in sorted(RESULTS.glob("*/results.json"))
        for run in json.loads(path.read_text(encoding="utf-8"))["runs"].values()
        for fields in run["evaluations"].values()
    ]


def test_what_the_page_says_of_every_row_holds_in_every_row() -> None:
    found = evaluations()
    assert len(found) == 31
    for one in found:
        for other in RULE_NAMES[:-1]:
            ned, baseline = one.result_of("ned"), one.result_of(other)
            assert ned.ece.estimate < baseline.ece.estimate
            assert ned.brier.estimate < baseline.brier.estimate
        bins = one.reliability["ned"]
        filled = bins.counts > 0
        gap = (bins.accuracy - bins.mean_confidence)[filled] * bins.counts[filled]
        assert gap.sum() > 0  # right more often than it claims


def test_a_row_compares_ned_with_the_most_accurate_baseline(tmp_path: Path) -> None:
    asked = replace(evaluation(), protocol="given_gallery")
    runs = {"a loss": {"evaluations": {"given_gallery": to_plain(asked)}}}
    (tmp_path / "own").mkdir()
    document = {"dataset": "own", "runs": runs}
    (tmp_path / "own" / "results.json").write_text(json.dumps(document), encoding="utf-8")
    row = summary(tmp_path).splitlines()[-1].strip("| ").split(" | ")
    ned = asked.result_of("ned").accuracy.estimate
    others = [asked.result_of(rule).accuracy.estimate for rule in ("1nn", "knn", "dudani", "gou")]
    assert row[:3] == ["own", "a loss", "given gallery"]
    assert f"{100 * max(others):.2f}, " in row[4]
    assert row[5].startswith(f"{100 * ned:.2f}, ")
    assert row[6].startswith(f"{100 * (ned - max(others)):+.2f} (")


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NearsureError, match="There is none"):
        summary(tmp_path)
