"""Tables: our figures, the paper's beside them, and a summary of all runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from experiments import evaluation

from nearsure.comparison import TITLES
from nearsure.errors import NearsureError
from nearsure.lab.cache import from_plain, to_plain
from nearsure.lab.default_rule import DEFAULT, NEIGHBORS_ALONE
from nearsure.lab.evaluation import Evaluation
from nearsure.lab.paper_tables import (
    TABLE_1_LOSS,
    TABLE_4_LOSSES,
    PaperCell,
    attacked_cell,
    corrupted_cell,
    paper_cell,
    reported_1nn,
)
from nearsure.lab.summary import BEGIN, END, FIGURE_2, RUN_HEADER, summary, write_summary
from nearsure.lab.tables import k_table, reading_table, table_1, table_4, trainings_table
from nearsure.rules import RULE_NAMES, RuleName


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines]


def test_cells_hold_our_figure_and_the_papers_with_the_difference() -> None:
    header, _, *rows = cells(table_1("cub200", "normalized-softmax", evaluation()))
    columns = ["rule", "accuracy %", "ECE %", "debiased ECE %", "ECE floor %", "Brier"]
    assert header[:6] == columns
    titles = [*(TITLES[rule] for rule in RULE_NAMES), NEIGHBORS_ALONE, DEFAULT]
    assert [row[0] for row in rows] == ["1NN (reported)", *titles]
    by_rule = {row[0]: row for row in rows}
    ned = evaluation().result_of("ned")
    right, error = 100 * ned.accuracy.estimate, 100 * ned.ece.estimate
    interval = f"({100 * ned.accuracy.low:.2f} to {100 * ned.accuracy.high:.2f})"
    plain = by_rule["NED"][1].replace("**", "")
    assert plain == f"{right:.2f} {interval}; paper 74.9, {right - 74.9:+.1f}"
    assert by_rule["NED"][2] == f"{error:.2f}; paper 2.4, {error - 2.4:+.1f}"
    assert by_rule["NED"][5].replace("**", "").startswith(f"{ned.brier.estimate:.4f} (")
    # 1NN has an accuracy in the paper, and no ECE; ours is its error, as it is always sure.
    first = evaluation().result_of("1nn")
    assert "paper 67.2" in by_rule["1NN"][1]
    assert "paper" not in by_rule["1NN"][2]
    assert by_rule["1NN"][2].startswith(f"{100 * (1 - first.accuracy.estimate):.2f}")
    # What the paper quotes from others stands beside our 1NN.
    quoted = 100 * (first.accuracy.estimate - 0.676)
    assert by_rule["1NN (reported)"][1] == f"paper 67.6, {quoted:+.1f}"


def test_an_interval_of_an_ece_follows_the_debiased_one() -> None:
    _, _, *rows = cells(table_1("own", "own", evaluation()))
    for rule, row in zip(evaluation().rules, rows, strict=True):
        assert "(" not in row[2]
        shown = evaluation().debiased_ece[rule]
        text = f"{100 * shown.estimate:.2f} ({100 * shown.low:.2f} to {100 * shown.high:.2f})"
        assert row[3].replace("**", "") == text
        assert shown.low <= shown.estimate <= shown.high


def test_no_difference_follows_an_ece_that_cannot_be_one() -> None:
    table = table_1("cars196", "normalized-softmax", evaluation())
    by_rule = {row[0]: row for row in cells(table)}
    assert by_rule["WkNN (Gou)"][2].endswith("; paper 12.3 (?)")
    assert by_rule["kNN"][2].endswith("; paper 10.0 (?)")
    assert "; paper 1.5, " in by_rule["NED"][2]
    assert "above 1 - accuracy" in table
    # 1NN is always sure: its ECE is 1 - accuracy, 40.38.
    triplet = {row[0]: row for row in cells(table_4("cars196", {"triplet": evaluation()}))}
    assert triplet["1NN"][2].endswith("; paper 20.03 (?)")


def test_gains_are_paired_differences_of_accuracy() -> None:
    header, _, *rows = cells(table_1("own", "own", evaluation()))
    assert header[6] == "NED's accuracy less this"
    ned = evaluation().result_of("ned").accuracy.estimate
    for rule, row in zip(evaluation().rules, rows, strict=True):
        if rule == "ned":
            assert len(row) == 6  # NED less itself says nothing
            continue
        gain = 100 * (ned - evaluation().result_of(rule).accuracy.estimate)
        assert row[6].startswith(f"{gain:+.2f} (")


def test_every_rule_is_shown_at_k_at_that_of_seen_classes_and_at_its_best() -> None:
    seen = dict.fromkeys(evaluation().rules, 5)
    _, _, *rows = cells(k_table("cub200", TABLE_1_LOSS, replace(evaluation(), seen_ks=seen)))
    curve = evaluation().curve
    for rule, row in zip(evaluation().rules, rows, strict=True):
        right, error = (values[rule] for values in (curve.accuracy, curve.ece))

        def two(k: int, right: tuple[float, ...] = right, error: tuple[float, ...] = error) -> str:
            place = curve.ks.index(k)
            return f"{100 * right[place]:.2f} / {100 * error[place]:.2f}"

        assert row[2] == two(20)
        assert row[4] == two(5)
        if rule != "1nn":
            assert (row[3], row[6]) == ("5", two(int(row[5])))
            assert right[curve.ks.index(int(row[5]))] == max(v for v in right if v == v)  # noqa: PLR0124
    assert rows[4][1] == "74.90 / 2.40"


def test_the_k_of_a_table_is_that_of_its_figures() -> None:
    # 21 and 22 are not on the curve.
    seen = dict.fromkeys(evaluation().rules, 22)
    _, _, *rows = cells(k_table("own", "own", replace(evaluation(), k=21, seen_ks=seen)))
    for rule, row in zip(evaluation().rules, rows, strict=True):
        assert row[1] == f"{row[3]} (k = 20)"
        assert row[2] == ("" if rule == "1nn" else "20")


def test_without_seen_classes_or_paper_there_are_no_such_columns() -> None:
    header = cells(k_table("own", "own", evaluation()))[0]
    assert header == ["rule", "k = 20", "best k on the queries", "with it"]


def test_ned_is_shown_with_both_fits_of_t() -> None:
    _, _, first, second, paper = cells(reading_table("cub200", TABLE_1_LOSS, evaluation()))
    ned = evaluation().result_of("ned")
    assert first[2:4] == [f"{100 * ned.accuracy.estimate:.2f}", f"{100 * ned.ece.estimate:.2f}"]
    assert second[0] == "T by top label"
    assert paper == ["paper", "", "74.9", "2.4"]


def test_trainings_are_listed_with_their_mean_and_range() -> None:
    better = replace(
        evaluation(),
        comparison=[
            replace(r, accuracy=replace(r.accuracy, estimate=r.accuracy.estimate + 0.02))
            for r in evaluation().comparison
        ],
    )
    trainings = {("a", 0): evaluation(), ("a", 1): better, ("b", 0): evaluation()}
    _, _, *rows = cells(trainings_table(trainings))
    assert [row[:2] for row in rows] == [
        ["a", "0"],
        ["a", "1"],
        ["a", "mean of 2 (least to most)"],
        ["b", "0"],
    ]
    low = 100 * evaluation().result_of("ned").accuracy.estimate
    assert rows[2][3] == f"{low + 1:.2f} ({low:.2f} to {low + 2:.2f})"


@pytest.mark.parametrize(("column", "field"), [(1, "accuracy"), (2, "ece"), (5, "brier")])
def test_the_best_of_each_column_is_bold(column: int, field: str) -> None:
    _, _, *rows = cells(table_1("own", "own", evaluation()))
    estimates = [
        getattr(evaluation().result_of(rule), field).estimate for rule in evaluation().rules
    ]
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


def test_table_4_has_a_small_table_a_loss_in_the_papers_order() -> None:
    table = table_4(
        "cub200", {"own": evaluation(), "n-pairs": evaluation(), "triplet": evaluation()}
    )
    heads = [line for line in table.splitlines() if line.startswith("#### ")]
    assert heads == ["#### triplet", "#### n-pairs", "#### own"]
    triplet, n_pairs, own = (cells(part) for part in table.split("#### ")[1:])
    assert triplet[0] == ["rule", "accuracy %", "ECE %", "debiased ECE %"]
    right = 100 * evaluation().result_of("knn").accuracy.estimate
    assert triplet[3][1].endswith(f"; paper 55.93, {right - 55.93:+.2f}")
    assert triplet[3][2].split("; ")[1].startswith("paper 4.40, ")
    assert n_pairs[2][0] == "1NN (reported)"
    assert n_pairs[4][1].endswith(f"; paper 59.53, {right - 59.53:+.2f}")
    assert not any("paper" in cell for row in own for cell in row)


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


def test_the_rows_that_the_paper_quotes() -> None:
    quoted = {
        (dataset, loss): reported_1nn(dataset, loss)
        for dataset in ("cub200", "cars196", "sop", "inshop")
        for loss in (TABLE_1_LOSS, *TABLE_4_LOSSES)
    }
    assert quoted["inshop", TABLE_1_LOSS] == 0.906
    assert quoted["cars196", "n-pairs"] == 0.7112
    assert quoted["cub200", "triplet"] is None
    assert sum(number is not None for number in quoted.values()) == 4 + 6


def test_19_numbers_of_the_paper_cannot_be_what_they_are_called() -> None:
    clean = [
        paper_cell(dataset, loss, rule)
        for dataset in ("cub200", "cars196", "sop", "inshop")
        for loss in (TABLE_1_LOSS, *TABLE_4_LOSSES)
        for rule in RULE_NAMES
    ]
    corrupted = [
        corrupted_cell(dataset, TABLE_1_LOSS, rule)
        for dataset in ("cub200", "cars196", "sop", "inshop")
        for rule in RULE_NAMES
    ]
    attacked = [
        attacked_cell("cars196", attack, epsilon, rule)
        for attack in ("fgsm", "bim", "pgd")
        for epsilon in (0.1, 0.3)
        for rule in RULE_NAMES
    ]
    wrong = [
        cell
        for cell in (*clean, *corrupted, *attacked)
        if cell is not None and not cell.ece_is_possible
    ]
    by_rule = [cell.rule for cell in wrong]
    assert by_rule.count("1nn") == 2  # not 1 - accuracy
    assert len(wrong) - 2 == 17  # above it
    assert "ned" not in by_rule


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
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    _, _, rest = page.partition(BEGIN)
    assert rest.partition(END)[0].strip() == summary(RESULTS)


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


def write_results(folder: Path, dataset: str, loss: str, asked: Evaluation) -> None:
    runs = {loss: {"evaluations": {asked.protocol: to_plain(asked)}}}
    (folder / dataset).mkdir()
    document = {"dataset": dataset, "runs": runs}
    (folder / dataset / "results.json").write_text(json.dumps(document), encoding="utf-8")


def test_a_row_compares_ned_with_the_most_accurate_baseline(tmp_path: Path) -> None:
    asked = replace(evaluation(), protocol="given_gallery")
    write_results(tmp_path, "own", "a loss", asked)
    (row,) = [row for row in cells(summary(tmp_path)) if len(row) == len(RUN_HEADER)][2:3]
    ned = asked.result_of("ned").accuracy.estimate
    others = [asked.result_of(rule).accuracy.estimate for rule in ("1nn", "knn", "dudani", "gou")]
    assert row[:3] == ["own", "a loss", "given gallery"]
    assert f"{100 * max(others):.2f}, " in row[4]
    assert row[5].startswith(f"{100 * ned:.2f}, ")
    assert row[6].startswith(f"{100 * (ned - max(others)):+.2f} (")
    assert row[7].startswith(f"{100 * asked.result_of(DEFAULT).accuracy.estimate:.2f}, ")


def test_the_summary_opens_with_the_paper_beside_ours(tmp_path: Path) -> None:
    write_results(tmp_path, "cub200", TABLE_1_LOSS, evaluation())
    header, _, *rows = cells(summary(tmp_path))
    assert header[0] == "table"
    rows = [row for row in rows if row[0] in {"1", "2", "3", "4"}]
    assert [row[0] for row in rows] == ["1"] * 4 + ["2"] * 4 + ["3"] * 6 + ["4"] * 8
    birds, sop = rows[0], rows[2]
    first, ned = (evaluation().result_of(rule) for rule in ("1nn", "ned"))
    for place, (paper, ours) in enumerate(
        [(67.2, first.accuracy), (74.9, ned.accuracy), (2.4, ned.ece)]
    ):
        own = 100 * ours.estimate
        expected = [f"{paper}", f"{own:.2f}", f"{own - paper:+.1f}"]
        assert birds[3 + 3 * place : 6 + 3 * place] == expected
    default = evaluation().result_of(DEFAULT)
    assert birds[12] == f"{100 * default.accuracy.estimate:.2f}"
    assert birds[14] == "[cub200](cub200/README.md)"
    assert sop[3:6] == ["81.2", "", ""]
    assert sop[-1] == "not run"


def less_accurate(asked: Evaluation, by: float) -> Evaluation:
    results = [
        replace(one, accuracy=replace(one.accuracy, estimate=one.accuracy.estimate - by))
        for one in asked.comparison
    ]
    return replace(asked, comparison=tuple(results))


def test_the_summary_shows_how_much_trainings_differ(tmp_path: Path) -> None:
    best = 100 * evaluation().result_of("1nn").accuracy.estimate
    for seed, folder in ((0, "birds"), (1, "birds/seed-1"), (2, "birds/seed-2")):
        assert seed != 1 or "Spread over trainings" not in summary(tmp_path)
        runs = {
            name: {
                "settings": {"seed": seed, "model": {"trained": trained}},
                "evaluations": {
                    "all_against_others": to_plain(less_accurate(evaluation(), 0.01 * seed))
                },
            }
            for name, trained in (("before", "nothing"), ("a loss", "all"))
        }
        (tmp_path / folder).mkdir()
        document = json.dumps({"dataset": "birds", "runs": runs})
        (tmp_path / folder / "results.json").write_text(document, encoding="utf-8")
    rows = [row for row in cells(summary(tmp_path)) if row[0] in {"birds, a loss", "birds, before"}]
    assert [row[:2] for row in rows] == [
        *(["birds, a loss", str(seed)] for seed in (0, 1, 2)),
        ["birds, a loss", "mean of 3 (least to most)"],
    ]
    assert [row[2] for row in rows] == [
        *(f"{best - seed:.2f}" for seed in (0, 1, 2)),
        f"{best - 1:.2f} ({best - 2:.2f} to {best:.2f})",
    ]


def test_the_summary_is_written_between_its_marks(tmp_path: Path) -> None:
    write_results(tmp_path, "cub200", TABLE_1_LOSS, evaluation())
    page = tmp_path / "README.md"
    page.write_text(f"# Mine\n\n{BEGIN}\nold\n{END}\n\nAfter.\n", encoding="utf-8")
    for _ in range(2):
        assert write_summary(tmp_path) == [page, tmp_path / FIGURE_2]
        text = page.read_text(encoding="utf-8")
        assert text == f"# Mine\n\n{BEGIN}\n\n{summary(tmp_path)}\n\n{END}\n\nAfter.\n"
    assert f"]({FIGURE_2})" in text
    page.write_text("# Mine\n", encoding="utf-8")
    with pytest.raises(NearsureError, match="must hold the lines"):
        write_summary(tmp_path)


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NearsureError, match="There is none"):
        summary(tmp_path)
