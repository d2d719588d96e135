"""The page and the pictures come from the stored numbers alone."""

import json
from pathlib import Path

import pytest
from small_ablation import results

from nearsure.lab.ablation.report import page, write_ablation
from nearsure.lab.ablation.results import AblationResults
from nearsure.lab.ablation.tables import group_table, ladder_table
from nearsure.lab.ablation.variants import DEFAULT, SLOW_VARIANTS, VARIANTS

RESULTS = Path(__file__).parents[3] / "results" / "ablation"


@pytest.mark.skipif(not RESULTS.exists(), reason="no ablation was run")
def test_the_page_says_what_the_numbers_say() -> None:
    document = json.loads((RESULTS / "ablation.json").read_text(encoding="utf-8"))
    assert page(document) == (RESULTS / "README.md").read_text(encoding="utf-8")


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
    assert page(document) == text
    for path in files[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"]({path.name})" in text
    assert "Made by `nearsure ablation`." in text
    assert "- skipped: third: it is not there" in text
    assert text.count("of 16 are met") == 1  # two data sets at two k, four goals each
    assert all(variant.title in text for variant in VARIANTS)


def test_results_come_back_from_json() -> None:
    stored = json.loads(json.dumps(results().to_dict()))
    assert AblationResults.from_dict(stored).to_dict() == results().to_dict()


def test_tables_hold_means_over_the_splits() -> None:
    group = results().group("first", "half", 50)
    assert group is not None
    assert len(group.trials) == 3  # two splits, and one more of the slow variants
    rows = [trial.rows for trial in group.trials]
    accuracies = [row.accuracy for trial in rows for row in trial if row.variant == DEFAULT.name]
    assert len(accuracies) == 2
    mean = f"{100 * sum(accuracies) / 2:.2f}"
    (line,) = [x for x in group_table(group).splitlines() if f"| {DEFAULT.title} |" in x]
    assert line.split(" | ")[1].strip("*") == mean
    assert line.endswith("| 2 |")
    assert ladder_table(group).splitlines()[-1].split(" | ")[1] == mean


def test_slow_variants_say_how_many_splits_they_had() -> None:
    group = results().group("first", "half", 50)
    assert group is not None
    (line,) = [x for x in group_table(group).splitlines() if SLOW_VARIANTS[0].title in x]
    assert line.endswith("| 1 |")
