"""The page and the pictures come from the stored numbers alone."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from small_ablation import EVERY, results

from nearsure.lab.ablation.report import make_page, write_ablation
from nearsure.lab.ablation.results import AblationResults
from nearsure.lab.ablation.tables import group_table, ladder_table
from nearsure.lab.ablation.variants import DEFAULT, SLOW_VARIANTS
from nearsure.lab.cache import from_plain, to_plain

RESULTS = Path(__file__).parents[3] / "results" / "ablation"


def stored_results(document: dict[str, Any]) -> AblationResults:
    names = [field.name for field in fields(AblationResults)]
    found: AblationResults = from_plain(AblationResults, {name: document[name] for name in names})
    return found


@pytest.mark.skipif(not RESULTS.exists(), reason="no ablation was run")
def test_the_page_says_what_the_numbers_say() -> None:
    document = json.loads((RESULTS / "ablation.json").read_text(encoding="utf-8"))
    page = make_page(RESULTS, stored_results(document), command=document["command"])
    assert page.text() == (RESULTS / "README.md").read_text(encoding="utf-8")


def test_a_report_is_a_page_numbers_and_pictures(tmp_path: Path) -> None:
    files = write_ablation(tmp_path, results(), command="nearsure ablation")
    assert [path.name for path in files] == [
        "README.md",
        "ablation.json",
        "accuracy-and-calibration.png",
        "calibration-by-k.png",
    ]
    text = files[0].read_text(encoding="utf-8")
    document = json.loads(files[1].read_text(encoding="utf-8"))
    stored = stored_results(document)
    assert make_page(tmp_path, stored, command=document["command"]).text() == text
    for path in files[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"]({path.name})" in text
    assert "Made by `nearsure ablation`." in text
    assert "- skipped: third: it is not there" in text
    assert text.count("of 20 are met") == 1  # two data sets at two k, five goals each
    assert all(variant.title in text for variant in EVERY)


def test_results_come_back_from_json() -> None:
    stored = json.loads(json.dumps(to_plain(results())))
    assert from_plain(AblationResults, stored) == results()


def test_tables_hold_means_over_the_splits() -> None:
    group = results().groups("half")[1]
    assert (group.first.dataset, group.first.k) == ("first", 50)
    assert len(group.trials) == 3  # two splits, and one more of the slow variants
    rows = [trial.rows for trial in group.trials]
    accuracies = [row.accuracy for trial in rows for row in trial if row.variant == DEFAULT.name]
    assert len(accuracies) == 2
    mean = f"{100 * sum(accuracies) / 2:.2f}"
    line, *_ = [x for x in group_table(group).splitlines() if f"| {DEFAULT.title} |" in x]
    assert line.split(" | ")[1].strip("*") == mean
    assert ladder_table(group).splitlines()[-1].split(" | ")[1] == mean


def test_slow_variants_are_compared_on_the_splits_that_they_had() -> None:
    group = results().groups("half")[1]
    assert (group.first.dataset, group.first.k) == ("first", 50)
    slow = SLOW_VARIANTS[0]
    (seed,) = group.rows(slow)
    whole, some = group_table(group).split(f"{slow.title} and the main variants on 1 of the splits")
    assert slow.title not in whole
    (line,) = [x for x in some.splitlines() if f"| {DEFAULT.title} |" in x]
    right = group.rows(DEFAULT)[seed].accuracy
    assert line.split(" | ")[1].strip("*") == f"{100 * right:.2f}"
    assert right != group.mean(DEFAULT).accuracy


def test_paired_splits_are_those_that_all_variants_share() -> None:
    group = results().groups("half")[1]
    assert group.n_splits == 2
    assert group.paired([DEFAULT]).n_splits == 2
    paired = group.paired([DEFAULT, SLOW_VARIANTS[0]])
    assert paired.n_splits == 1
    assert paired.rows(DEFAULT).keys() == group.rows(SLOW_VARIANTS[0]).keys()
