"""The table: the same numbers as the metrics, the best of each column marked."""

import numpy as np
import pytest

from nearsure import Neighbors, score
from nearsure.comparison import compare_rules, title_of
from nearsure.metrics import accuracy, brier_score, expected_calibration_error
from nearsure.rules import RULE_NAMES, RuleName


@pytest.fixture(scope="module")
def neighbors() -> Neighbors:
    rng = np.random.default_rng(0)
    return Neighbors(np.sort(rng.random((200, 10)), axis=1), rng.integers(0, 3, (200, 10)))


@pytest.fixture(scope="module")
def truth(neighbors: Neighbors) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.where(rng.random(200) < 0.7, neighbors.labels[:, 0], rng.integers(0, 4, 200))


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_figures_are_those_of_the_metrics(
    neighbors: Neighbors, truth: np.ndarray, rule: RuleName
) -> None:
    comparison = compare_rules(neighbors, truth, temperature=0.2, seed=0, n_resamples=50)
    result = next(result for result in comparison.results if result.rule == rule)
    posterior = score(neighbors, rule=rule, temperature=0.2 if rule == "ned" else None)
    correct = posterior.labels == truth
    assert result.accuracy.estimate == accuracy(correct)
    assert result.ece.estimate == expected_calibration_error(posterior.confidence, correct)
    assert result.brier.estimate == pytest.approx(brier_score(posterior, truth))
    assert result.accuracy.low < result.accuracy.estimate < result.accuracy.high


def test_best_of_each_column_is_bold(neighbors: Neighbors, truth: np.ndarray) -> None:
    comparison = compare_rules(neighbors, truth, temperature=0.2, seed=0, n_resamples=50)
    rows = [line.strip("| ").split(" | ") for line in comparison.to_markdown().splitlines()]
    best = max(comparison.results, key=lambda result: result.accuracy.estimate)
    for row, result in zip(rows[2:], comparison.results, strict=True):
        assert row[0] == title_of(result.rule)
        is_best = result.accuracy.estimate == best.accuracy.estimate
        assert row[1].startswith("**") == is_best
        assert f"{100 * result.ece.estimate:.2f}" in row[2]
    assert [cell.count("**") for cell in map(" ".join, zip(*rows, strict=True))][2] == 2


def test_text_is_aligned_whatever_is_bold(neighbors: Neighbors, truth: np.ndarray) -> None:
    comparison = compare_rules(neighbors, truth, temperature=0.2, seed=0, n_resamples=50)
    for marks in (("", ""), ("*", "*")):
        header, _, *rows = comparison.to_text(bold=marks).splitlines()
        column = header.index("ECE floor %")
        assert all(row[column - 2 : column] == "  " and row[column] != " " for row in rows)
    assert comparison.to_text().replace("\033[1m", "").replace("\033[0m", "") == "\n".join(
        comparison.to_text(bold=("", "")).splitlines()
    )


def test_same_seed_same_table(neighbors: Neighbors, truth: np.ndarray) -> None:
    tables = [
        compare_rules(neighbors, truth, temperature=0.2, seed=seed, n_resamples=50).to_text()
        for seed in (3, 3, 4)
    ]
    assert tables[0] == tables[1] != tables[2]


def test_another_posterior_stands_in_the_same_table(
    neighbors: Neighbors, truth: np.ndarray
) -> None:
    posterior = score(neighbors, temperature=0.05)
    comparison = compare_rules(
        neighbors,
        truth,
        temperature=0.2,
        seed=0,
        rules=["knn"],
        others={"mine": posterior},
        n_resamples=50,
    )
    mine = comparison.results[1]
    assert mine.brier.estimate == pytest.approx(brier_score(posterior, truth))
    assert comparison.to_text(bold=("", "")).splitlines()[-1].startswith("mine ")
