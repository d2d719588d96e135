"""The page of results says what the results say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from experiments import evaluation

from nearsure.errors import NearsureError
from nearsure.lab.cache import from_plain, to_plain
from nearsure.lab.evaluation import Evaluation
from nearsure.lab.tables import summary
from nearsure.rules import RULE_NAMES

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
