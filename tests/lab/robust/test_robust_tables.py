"""Tables of damaged queries: our figures, the paper's beside them, the best bold."""

from dataclasses import replace

import pytest
from damaged_points import attack_evaluation, corruption_evaluation

from nearsure.errors import InvalidInputError
from nearsure.lab.robust.evaluation import (
    CALIBRATED_BASELINES,
    MethodResult,
    Outcome,
    RobustEvaluation,
    best_baseline,
)
from nearsure.lab.robust.methods import METHODS, NED, Method
from nearsure.lab.robust.tables import (
    confidence_attack_table,
    corruption_table,
    severity_table,
    small_epsilon_table,
    table_2,
    table_3,
)
from nearsure.rules import RULE_NAMES

LOSS = "normalized-softmax"
BOTH = {"clean-trained": attack_evaluation(), "hardened": attack_evaluation("hardened")}


def cells(table: str) -> list[dict[str, str]]:
    """The rows, by the head of each column."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    return [dict(zip(header, row, strict=True)) for row in rows]


def mean() -> Outcome:
    found = corruption_evaluation().mean
    assert found is not None
    return found


def with_mean(**changes: MethodResult) -> RobustEvaluation:
    """The evaluation with other results of some methods, by their key."""
    results = tuple(changes.get(f"{r.method.base}_{r.method.step}", r) for r in mean().results)
    return replace(corruption_evaluation(), mean=replace(mean(), results=results))


def test_table_2_has_every_method_with_clean_interval_and_paper() -> None:
    rows = cells(table_2("cub200", LOSS, corruption_evaluation()))
    assert [row["method"] for row in rows] == [method.title for method in METHODS]
    ned, clean = mean().of(NED), corruption_evaluation().clean.of(NED)
    right = 100 * ned.accuracy.estimate
    expected = (
        f"{100 * clean.accuracy.estimate:.2f} -> {right:.2f} "
        f"({100 * ned.accuracy.low:.2f} to {100 * ned.accuracy.high:.2f})"
        f"; paper 64.8, {right - 64.8:+.1f}"
    )
    assert rows[4]["accuracy %"].replace("**", "") == expected
    error = 100 * ned.ece.estimate
    assert rows[4]["ECE %"].endswith(f"; paper 3.0, {error - 3.0:+.1f}")
    assert rows[4]["ECE floor %"] == f"{100 * ned.ece_floor:.2f}"
    assert rows[4]["ECE less NED's"] == ""
    assert rows[0]["accuracy %"].split("; ")[1].startswith("paper 52.8")
    assert "paper" not in rows[0]["ECE %"]  # the paper prints none for 1NN
    for row in rows[5:]:
        assert row["accuracy %"] == ""
        assert "paper" not in row["ECE %"]


def test_the_strict_protocol_and_other_data_have_no_paper_beside_them() -> None:
    strict = replace(corruption_evaluation(), protocol="gallery_and_queries")
    assert "paper" not in table_2("cub200", LOSS, strict)
    assert "paper" not in table_2("glyphs", LOSS, corruption_evaluation())
    assert "paper" not in table_2("cub200", "triplet", corruption_evaluation())


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("ECE %", "ece"),
        ("confidently wrong %", "confidently_wrong"),
        ("top-label Brier", "top_label_brier"),
    ],
)
def test_the_best_of_each_column_is_bold(column: str, name: str) -> None:
    rows = cells(table_2("own", LOSS, corruption_evaluation()))
    printed = [round(result.interval(name).estimate, 4) for result in mean().results]
    for row, value in zip(rows, printed, strict=True):
        assert ("**" in row[column]) == (value == min(printed))


def test_tables_by_corruption_and_severity_set_ned_beside_the_best_baseline() -> None:
    baseline = best_baseline([mean()])
    errors = {method: mean().of(method).ece.estimate for method in CALIBRATED_BASELINES}
    assert errors[baseline] == min(errors.values())
    assert baseline.base in {"knn", "dudani", "gou"}
    evaluation = corruption_evaluation()
    for table, head, outcomes in (
        (corruption_table(evaluation), "corruption", evaluation.by_corruption.values()),
        (severity_table(evaluation), "severity", evaluation.by_severity.values()),
    ):
        rows = cells(table)
        assert len(rows) == 1 + len(outcomes)
        for row, outcome in zip(rows, (evaluation.clean, *outcomes), strict=True):
            assert row[head]
            ned, other = outcome.of(NED).ece.estimate, outcome.of(baseline).ece.estimate
            assert f"{100 * ned:.2f}" in row["NED: ECE %"]
            assert f"{100 * other:.2f}" in row[f"{baseline.title}: ECE %"]
            assert ("**" in row["NED: ECE %"]) == (round(ned, 4) <= round(other, 4))
    assert cells(corruption_table(evaluation))[2]["corruption"] == "gaussian noise"


def test_a_better_baseline_takes_the_place_of_the_best() -> None:
    method = Method("dudani", "platt")
    tiny = replace(mean().of(method).ece, estimate=0.0001)
    better = with_mean(dudani_platt=replace(mean().of(method), ece=tiny))
    assert "WkNN (Dudani) + Platt: ECE %" in severity_table(better)


def test_table_3_sets_models_side_by_side_with_distances_and_paper() -> None:
    rows = cells(table_3("cars196", LOSS, BOTH))
    attacks = list(dict.fromkeys((row["attack"], row["epsilon"]) for row in rows))
    assert attacks == [
        ("none", ""),
        *((attack, epsilon) for attack in ("FGSM", "BIM", "PGD") for epsilon in ("0.1", "0.3")),
    ]
    block = [row for row in rows if (row["attack"], row["epsilon"]) == ("PGD", "0.3")]
    assert [row["method"] for row in block][:5] == [Method(rule).title for rule in RULE_NAMES]
    assert len(block) == 6  # and the best calibrated baseline
    for model in BOTH:
        assert block[0][f"{model}: distance used"] == "0.2700, at most 0.3000"
        assert "; paper 78.0, " in block[4][f"{model}: accuracy %"]
        assert "; paper 2.9, " in block[4][f"{model}: ECE %"]
        assert "paper" not in block[5][f"{model}: accuracy %"]


def test_the_doubtful_number_of_the_paper_has_a_footnote() -> None:
    table = table_3("cars196", LOSS, BOTH)
    (row,) = [
        row
        for row in cells(table)
        if (row["attack"], row["epsilon"], row["method"]) == ("BIM", "0.1", "NED")
    ]
    assert r"; paper 80.4\*, " in row["clean-trained: accuracy %"]
    assert table.count(r"\*") == 3  # both models and the note
    assert "misprint of 88.4" in table.splitlines()[-1]
    assert "paper" not in table_3("cub200", LOSS, BOTH)
    assert "paper" not in table_3("cars196", "triplet", BOTH)


def test_the_best_of_each_attack_is_bold() -> None:
    rows = cells(table_3("own", LOSS, {"m": attack_evaluation()}))
    for start in range(0, len(rows), 6):
        block = [float(row["accuracy %"].replace("**", "").split()[0]) for row in rows[start:][:6]]
        for row, value in zip(rows[start:], block, strict=False):
            assert ("**" in row["accuracy %"]) == (value == max(block))


def test_small_epsilons_have_a_table_without_the_confidence_attack() -> None:
    rows = cells(small_epsilon_table(BOTH))
    assert {row["attack"] for row in rows} == {"none", "PGD"}
    assert [row["epsilon"] for row in rows[::2]] == ["", "1/255", "2/255", "4/255", "8/255"]


def test_the_confidence_attack_stands_below_the_plain_one_of_its_size() -> None:
    rows = cells(confidence_attack_table(BOTH))[2::2]
    assert [(row["attack"], row["epsilon"]) for row in rows] == [
        (attack, f"{levels}/255") for levels in (1, 2, 4, 8) for attack in ("PGD", "confidence")
    ]
    (found,) = [
        entry.outcome.of(NED)
        for entry in attack_evaluation().attacks
        if str(entry.variant) == "confidence, epsilon 8/255"
    ]
    for name, column in (
        ("confidence_when_wrong", "confidence when wrong %"),
        ("confidently_wrong", "confidently wrong %"),
    ):
        text = f"{100 * found.interval(name).estimate:.2f} ("
        assert rows[-1][f"clean-trained: {column}"].startswith(text)


def test_an_attack_that_one_model_lacks_leaves_its_cells_empty() -> None:
    short = replace(BOTH["hardened"], variants=BOTH["hardened"].variants[:1])
    rows = cells(table_3("cars196", LOSS, {**BOTH, "hardened": short}))
    assert rows[-1]["hardened: accuracy %"] == ""
    assert rows[-1]["clean-trained: accuracy %"]


def test_what_is_not_there_has_no_table() -> None:
    without = {"m": replace(attack_evaluation(), variants=())}
    assert table_3("own", LOSS, without) == small_epsilon_table(without) == ""
    assert confidence_attack_table(without) == ""
    with pytest.raises(InvalidInputError, match="must have corrupted variants"):
        table_2("own", LOSS, attack_evaluation())
