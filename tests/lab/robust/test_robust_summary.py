"""The page of damaged queries says what the results say."""

import json
from pathlib import Path

from damaged_points import attack_evaluation, corruption_evaluation

from nearsure.lab.cache import from_plain
from nearsure.lab.robust.evaluation import RobustEvaluation
from nearsure.lab.robust.methods import NED, Method
from nearsure.lab.robust.reproduce import write_robust_report
from nearsure.lab.robust.tables import robust_summary
from nearsure.rules import RULE_NAMES

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
