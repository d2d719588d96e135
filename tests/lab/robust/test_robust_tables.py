"""Tables, findings and summary of damaged queries."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from damaged_points import attack_evaluation, corruption_evaluation

from nearsure.errors import InvalidInputError
from nearsure.lab.cache import from_plain
from nearsure.lab.robust.evaluation import (
    CALIBRATED_BASELINES,
    MethodResult,
    Outcome,
    RobustEvaluation,
    VariantOutcome,
    best_baseline,
)
from nearsure.lab.robust.methods import METHODS, NED, Method
from nearsure.lab.robust.reproduce import write_robust_report
from nearsure.lab.robust.tables import (
    attack_findings,
    circumstances,
    confidence_attack_table,
    corruption_findings,
    corruption_table,
    gradient_notes,
    robust_summary,
    severity_table,
    small_epsilon_table,
    table_2,
    table_3,
)
from nearsure.lab.tables import points
from nearsure.metrics import Interval
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
    for row in rows[5:-2]:
        assert row["accuracy %"] == ""
        assert "paper" not in row["ECE %"]


def test_findings_say_what_the_head_does() -> None:
    *_, last = corruption_findings(corruption_evaluation())
    gain = mean().head_gain
    assert gain is not None
    assert last.startswith("nearsure (default) is right in ")
    assert f": {points(gain)} points, " in last
    assert ("more than chance" in last.split(". ECE")[0]) == (gain.low > 0 or gain.high < 0)
    without = replace(mean(), head_gain=None)
    before = corruption_findings(replace(corruption_evaluation(), mean=without))
    assert before == corruption_findings(corruption_evaluation())[:-1]


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
    assert len(block) == 8  # nearsure without and with its head, the best calibrated baseline
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
    # And no difference is taken from it.
    assert row["clean-trained: accuracy %"].endswith(r"; paper 80.4\*")
    assert table.count(r"\*") == 3  # both models and the note
    assert "85.7 to 88.4: it reads like a misprint" in table.splitlines()[-1]
    assert "paper" not in table_3("cub200", LOSS, BOTH)
    assert "paper" not in table_3("cars196", "triplet", BOTH)


def test_the_best_of_each_attack_is_bold() -> None:
    rows = cells(table_3("own", LOSS, {"m": attack_evaluation()}))
    for start in range(0, len(rows), 8):
        block = [float(row["accuracy %"].replace("**", "").split()[0]) for row in rows[start:][:8]]
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


def interval(estimate: float, half: float = 0.001) -> Interval:
    return Interval(estimate, estimate - half, estimate + half, 0.95)


def with_ned(outcome: Outcome, **fields: object) -> Outcome:
    """The outcome with other numbers of NED."""
    ned: MethodResult = replace(outcome.of(NED), **fields)  # type: ignore[arg-type]
    return replace(outcome, results=tuple(ned if r.method == NED else r for r in outcome.results))


def with_method(outcome: Outcome, method: Method, **fields: object) -> Outcome:
    changed: MethodResult = replace(outcome.of(method), **fields)  # type: ignore[arg-type]
    results = tuple(changed if r.method == method else r for r in outcome.results)
    return replace(outcome, results=results)


def said(mean: Outcome) -> str:
    return "\n".join(corruption_findings(replace(corruption_evaluation(), mean=mean)))


def test_what_was_frozen_is_said_with_its_value() -> None:
    text = circumstances(corruption_evaluation())
    temperature = corruption_evaluation().temperature_fit.temperature
    assert f"T = {temperature:.4g} and the calibrators are those of the clean images" in text
    assert "150 queries, 180 points of 6 classes" in text
    assert "lacks" not in text
    assert "(7 of a class that the gallery lacks)" in circumstances(
        replace(corruption_evaluation(), n_unknown_queries=7)
    )


@pytest.mark.parametrize(
    ("ece", "expected"),
    [
        (
            interval(0.02),
            ", below 4% (the interval, which takes chance's bias off, is wholly below",
        ),
        (
            interval(0.08),
            ", not below 4% (the interval, which takes chance's bias off, is wholly ab",
        ),
        (
            interval(0.039, 0.01),
            ", below 4% (the interval, which takes chance's bias off, is on bo",
        ),
        (
            interval(0.041, 0.01),
            ", not below 4% (the interval, which takes chance's bias off, is on",
        ),
    ],
)
def test_the_claim_is_judged_by_estimate_and_interval(ece: Interval, expected: str) -> None:
    text = said(with_ned(mean(), ece=ece))
    assert f"over 15 variants is {100 * ece.estimate:.2f}%" in text
    assert expected in text


def test_a_floor_above_the_claim_is_called_so() -> None:
    warning = "NED cannot be expected below 4%"
    assert warning in said(with_ned(mean(), ece_floor=0.05))
    assert warning not in said(with_ned(mean(), ece_floor=0.01))


def test_variants_below_the_claim_are_counted_by_severity() -> None:
    def told(entry: VariantOutcome) -> VariantOutcome:
        good = entry.variant.severity == 1 or str(entry.variant) == "fog, severity 2"
        return replace(entry, outcome=with_ned(entry.outcome, ece=interval(0.03 if good else 0.2)))

    evaluation = corruption_evaluation()
    severities = {
        severity: with_ned(outcome, ece=interval(0.03 if severity in {1, 3} else 0.1))
        for severity, outcome in evaluation.by_severity.items()
    }
    changed = replace(
        evaluation, variants=tuple(map(told, evaluation.variants)), by_severity=severities
    )
    text = corruption_findings(changed)[1]
    assert (
        "below 4% in 4 of 15 variants (3 of 3 at severity 1, 1 of 3 at severity 2, 0 of 3" in text
    )
    assert "in 11 of them the whole interval is above" in text
    assert text.endswith("The mean over corruptions is below 4% at severity 1 and 3.")


@pytest.mark.parametrize(
    ("gap", "word"),
    [(0.05, "over-confident"), (-0.05, "under-confident"), (0.0, "neither over- nor under-")],
)
def test_the_direction_of_the_error(gap: float, word: str) -> None:
    text = corruption_findings(
        replace(corruption_evaluation(), mean=with_ned(mean(), overconfidence=interval(gap)))
    )[2]
    assert f": {word}" in text
    assert f"{100 * gap:+.2f} (" in text


def test_ned_is_named_when_it_wins_and_the_winner_when_it_loses() -> None:
    wins = with_ned(mean(), ece=interval(0.0002), accuracy=interval(0.999))
    assert "Lowest mean ECE: NED, 0.02%" in said(wins)
    assert "Most often right: NED, 99.90%" in said(wins)
    winner = Method("gou", "platt")
    clear, open_ = Interval(-0.02, -0.03, -0.01, 0.95), Interval(-0.02, -0.05, 0.01, 0.95)
    for gap, words in ((clear, "more than chance explains"), (open_, "which chance may explain")):
        loses = with_method(mean(), winner, ece=interval(0.0002), ece_less_ned=gap)
        text = said(loses)
        assert "Lowest mean ECE: WkNN (Gou) + Platt, 0.02%" in text
        assert f"points from NED's, {words}." in text


def test_a_constant_that_wins_is_called_one() -> None:
    constant = with_method(mean(), Method("1nn", "isotonic"), ece=interval(0.0001))
    assert "It says the same of every query." in said(constant)
    other = with_method(mean(), Method("knn", "isotonic"), ece=interval(0.0001))
    assert "It says the same of every query." not in said(other)


def test_attacks_are_summed_up() -> None:
    evaluation = attack_evaluation()
    ned = {str(entry.variant): entry.outcome.of(NED) for entry in evaluation.attacks}
    worst = max(ned, key=lambda name: ned[name].ece.estimate)
    text = "\n".join(attack_findings(evaluation))
    name, epsilon = worst.split(", epsilon ")
    assert f"its ECE is highest under {name.upper()} with epsilon {epsilon}, " in text
    below = sum(result.ece.estimate < 0.04 for result in ned.values())
    assert f"below 4% in {below} of 14 attacks" in text
    lowest = sum(
        entry.outcome.of(NED).ece.estimate == min(r.ece.estimate for r in entry.outcome.results)
        for entry in evaluation.attacks
    )
    assert text.split("\n")[2].endswith(f"in {lowest}.")
    share = 100 * ned["confidence, epsilon 2/255"].confidently_wrong.estimate
    plain = 100 * ned["pgd, epsilon 2/255"].confidently_wrong.estimate
    assert f"{share:.2f}% at epsilon 2/255 (PGD {plain:.2f}%)" in text


def only_first(evaluation: RobustEvaluation, n_without_gradient: int | None) -> RobustEvaluation:
    first = evaluation.variants[0]
    variant = replace(first.variant, n_without_gradient=n_without_gradient)
    return replace(evaluation, variants=(replace(first, variant=variant),))


def test_images_without_a_gradient_are_warned_of() -> None:
    (note,) = gradient_notes(attack_evaluation())
    assert "FGSM with epsilon 0.1: 7; FGSM with epsilon 0.3: 7" in note
    assert "were not attacked" in note
    assert "no evidence of robustness" in note
    assert "PGD" not in note
    for number in (0, None):
        assert gradient_notes(only_first(attack_evaluation(), number)) == []


RESULTS = Path(__file__).parents[3] / "results"


def test_the_page_of_results_holds_the_tables_of_its_numbers() -> None:
    tables = robust_summary(RESULTS)
    assert [line.split(" | ")[0] for line in tables.splitlines()].count("| glyphs") > 2
    assert tables in (RESULTS / "robustness.md").read_text(encoding="utf-8")


def test_what_the_page_says_of_every_row_holds_in_every_row() -> None:
    found = [
        from_plain(RobustEvaluation, fields)
        for path in sorted(RESULTS.glob("*/robustness/robustness.json"))
        for fields in json.loads(path.read_text(encoding="utf-8"))["evaluations"]
    ]
    means = [one.mean for one in found if one.mean]
    assert len(means) >= 4
    for mean in means:
        ned = mean.of(NED).ece
        assert ned.low > 0.04  # not below 3 to 4%
        for rule in RULE_NAMES[:-1]:  # the best of the five
            assert ned.estimate < mean.of(Method(rule)).ece.estimate
    for one in found:
        assert not any(entry.variant.n_without_gradient for entry in one.attacks)


def test_nothing_is_said_where_there_are_no_results(tmp_path: Path) -> None:
    assert not robust_summary(tmp_path)


def test_the_tables_hold_the_stored_numbers(tmp_path: Path) -> None:
    corrupted, attacked = corruption_evaluation(), attack_evaluation()
    hardened = attack_evaluation("hardened")
    write_robust_report(
        tmp_path / "own" / "robustness",
        "own",
        "a loss",
        [corrupted, attacked, hardened],
        command="nearsure x",
        settings={},
    )
    first, second = (table.splitlines() for table in robust_summary(tmp_path).split("\n\n"))
    assert len(first) == 3
    assert corrupted.mean is not None
    ned = corrupted.mean.of(NED)
    row = dict(zip(first[0].split(" | "), first[2].split(" | "), strict=True))
    assert row["NED, mean of the corruptions"].startswith(
        f"{100 * ned.accuracy.estimate:.2f}, {100 * ned.ece.estimate:.2f} ("
    )
    below = sum(e.outcome.of(NED).ece.estimate < 0.04 for e in corrupted.corruptions)
    assert row["ECE below 4%"] == f"{below} of {len(corrupted.corruptions)}"
    # The clean queries and each attack, both models in one row.
    assert len(second) == 2 + 1 + len(attacked.attacks)
    for line, mine, other in zip(second[3:], attacked.attacks, hardened.attacks, strict=True):
        for entry in (mine, other):
            result = entry.outcome.of(NED)
            assert (
                f"{100 * result.accuracy.estimate:.2f}, {100 * result.ece.estimate:.2f} (" in line
            )
