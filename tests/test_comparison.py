"""The table: the same numbers as the metrics, the best of each column marked."""

import numpy as np
import pytest

from nearsure import Neighbors, comparison, score
from nearsure.calibration import PosteriorTemperature
from nearsure.comparison import compare_rules, score_probes, title_of
from nearsure.metrics import accuracy, brier_score, expected_calibration_error
from nearsure.probes import fit_probe
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


def drawn(seed: int, n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    return np.eye(3)[codes] + 0.7 * rng.normal(size=(n, 3)), codes


def test_probes_stand_in_the_same_table(neighbors: Neighbors, truth: np.ndarray) -> None:
    vectors, codes = drawn(0)
    queries, _ = drawn(1, n=200)
    scores = score_probes(vectors, codes, queries, seed=4, n_classes=5)
    assert not scores.left_out
    for name in ("means", "logistic"):
        fitted = fit_probe(name, vectors, codes, n_classes=5, seed=4)
        expected = PosteriorTemperature.fit(fitted.own, codes)(fitted.posterior(queries))
        found = scores.posteriors[name].probabilities
        np.testing.assert_array_equal(found, expected.probabilities)
    table = compare_rules(
        neighbors,
        truth,
        temperature=0.2,
        seed=0,
        rules=["knn"],
        others=scores.posteriors,
        n_resamples=20,
    )
    titles = [line.split("  ")[0] for line in table.to_text(bold=("", "")).splitlines()[2:]]
    assert titles == ["kNN", "Class means, tempered", "Logistic regression, tempered"]


def test_without_queries_no_probe_has_seen_the_point_that_it_scores() -> None:
    rng = np.random.default_rng(0)
    vectors, codes = rng.normal(size=(60, 100)), np.arange(60) % 2
    for posterior in score_probes(vectors, codes, seed=0).posteriors.values():
        assert (posterior.labels == codes).mean() < 0.7
    seen = score_probes(vectors, codes, vectors, seed=0).posteriors
    assert all((posterior.labels == codes).mean() > 0.8 for posterior in seen.values())


def test_groups_are_left_out_together() -> None:
    # Every point has a copy, and labels have no other meaning.
    rng = np.random.default_rng(0)
    vectors, groups = np.repeat(rng.normal(size=(40, 100)), 2, axis=0), np.repeat(np.arange(40), 2)
    codes = np.repeat(np.arange(40) % 2, 2)
    alone = score_probes(vectors, codes, seed=0).posteriors["logistic"]
    together = score_probes(vectors, codes, seed=0, groups=groups).posteriors["logistic"]
    assert (alone.labels == codes).mean() > 0.75
    assert (together.labels == codes).mean() < 0.7


def test_a_probe_that_would_take_long_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors, codes = drawn(0)
    monkeypatch.setitem(comparison.LARGEST_PROBE, "logistic", 90 * 3 * 3 - 1)
    scores = score_probes(vectors, codes, seed=0)
    assert list(scores.posteriors) == ["means"]
    (sentence,) = scores.left_out
    assert sentence.startswith("Logistic regression, tempered, was left out: 90 points of 3 feat")
    monkeypatch.setitem(comparison.LARGEST_PROBE, "logistic", 90 * 3 * 3)
    assert not score_probes(vectors, codes, drawn(1, n=200)[0], seed=0).left_out
    monkeypatch.setattr(comparison, "LARGEST_SCORES", 200 * 3 - 1)
    scores = score_probes(vectors, codes, drawn(1, n=200)[0], seed=0)
    assert not scores.posteriors
    assert [sentence.partition(": ")[2][:10] for sentence in scores.left_out] == ["200 points"] * 2


@pytest.mark.parametrize(
    ("codes", "groups"),
    [([0, 0, 0, 0], None), ([0, 1, 2, 3], None), ([0, 0, 1, 1], [5, 5, 6, 6])],
    ids=["one class", "single members", "single groups"],
)
def test_probes_need_something_to_be_scored_on(codes: list[int], groups: list[int] | None) -> None:
    scores = score_probes(
        np.eye(4), codes, seed=0, groups=None if groups is None else np.array(groups)
    )
    assert not scores.posteriors
    assert "two classes" in scores.left_out[0]
