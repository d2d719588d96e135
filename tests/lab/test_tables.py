"""Tables: our figures, the paper's beside them, and what was asked above them."""

from dataclasses import replace

import pytest
from experiments import evaluation

from nearsure.comparison import TITLES
from nearsure.lab.tables import best_k_table, table_1, table_4
from nearsure.rules import RULE_NAMES


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
