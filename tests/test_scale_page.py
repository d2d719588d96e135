"""The page about size shows the figures that were measured, and no others."""

import json
from pathlib import Path

from benchmarks.scale_cost import Cost
from benchmarks.scale_report import table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "scale"


def test_table_is_that_of_the_figures() -> None:
    costs = [Cost(**cost) for cost in json.loads((RESULTS / "scale.json").read_text())]
    assert (RESULTS / "table.md").read_text() == table(costs) + "\n"
    assert (RESULTS / "table.md").read_text() in (ROOT / "docs" / "scale.md").read_text()
