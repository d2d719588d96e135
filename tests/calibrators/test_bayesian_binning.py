"""Bayesian binning: the paper's sum, term by term."""

from math import ceil, exp, lgamma

import numpy as np
import pytest
from miscalibrated import GRID, scored, votes

from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration import BayesianBinning
from nearsure.metrics import bin_by_confidence


def naive(confidence: FloatArray, correct: BoolArray, asked: FloatArray) -> list[float]:
    """The paper's model average in loops, with Gamma functions and N' = 2 B."""
    n = len(confidence)
    root = n ** (1 / 3)
    models: dict[tuple[float, ...], tuple[float, list[float]]] = {}
    for n_bins in range(max(1, int(root / 10)), min(n, ceil(10 * root)) + 1):
        bins = bin_by_confidence(confidence, correct, n_bins=n_bins, binning="mass")
        # Edges halfway between the last row below and the first row above.
        edges = [
            (confidence[confidence < edge].max() + edge) / 2 for edge in bins.edges[1:-1].tolist()
        ]
        bounds = [0.0, *edges, 1.0]
        log_evidence, answers = 0.0, []
        for b, n_b in enumerate(bins.counts.tolist()):
            m_b = round(bins.accuracy[b] * n_b)
            p_b = (bounds[b] + bounds[b + 1]) / 2
            alpha, beta = 2 * p_b, 2 * (1 - p_b)
            log_evidence += lgamma(2) - lgamma(n_b + 2)
            log_evidence += lgamma(m_b + alpha) - lgamma(alpha)
            log_evidence += lgamma(n_b - m_b + beta) - lgamma(beta)
            answers.append((m_b + alpha) / (n_b + 2))
        models[tuple(edges)] = (log_evidence, answers)
    greatest = max(log_evidence for log_evidence, _ in models.values())
    total = sum(exp(log_evidence - greatest) for log_evidence, _ in models.values())
    return [
        sum(
            exp(log_evidence - greatest) * answers[sum(edge <= value for edge in edges)]
            for edges, (log_evidence, answers) in models.items()
        )
        / total
        for value in asked
    ]


@pytest.mark.parametrize("drawn", [scored(150), votes(150), votes(60, k=3), scored(5), scored(1)])
def test_it_is_the_papers_average_of_histograms(drawn: tuple[FloatArray, BoolArray]) -> None:
    fitted = BayesianBinning.fit(*drawn)
    np.testing.assert_allclose(fitted(GRID), naive(*drawn, GRID), rtol=0, atol=1e-9)


def test_large_data_leave_out_the_smallest_numbers_of_bins() -> None:
    confidence, correct = scored(9000)  # the cube root is 20.8: from 2 bins on
    fitted = BayesianBinning.fit(confidence, correct)
    some = GRID[::8]
    np.testing.assert_allclose(fitted(some), naive(confidence, correct, some), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (3, 4), (50, 50)])
def test_equal_confidences_give_laplaces_rule_of_succession(right: int, n: int) -> None:
    fitted = BayesianBinning.fit(np.full(n, 0.9), np.arange(n) < right)
    np.testing.assert_allclose(fitted(GRID), (right + 1) / (n + 2), rtol=0, atol=1e-15)


def test_a_single_step_is_found_and_costs_no_more_bins_than_it_needs() -> None:
    """Right with 0.2 below the median and 0.9 above it: two bins explain it best."""
    rng = np.random.default_rng(0)
    confidence = rng.random(4000)
    median = np.median(confidence)
    correct = rng.random(4000) < np.where(confidence < median, 0.2, 0.9)
    answers = BayesianBinning.fit(confidence, correct)(GRID)
    far = np.abs(GRID - median) > 0.02
    np.testing.assert_allclose(answers[far], np.where(median > GRID, 0.2, 0.9)[far], atol=0.03)


def test_rows_all_right_or_all_wrong_give_answers_inside_0_and_1() -> None:
    confidence, _ = scored(200)
    sure = BayesianBinning.fit(confidence, np.ones(200))(GRID)
    lost = BayesianBinning.fit(confidence, np.zeros(200))(GRID)
    assert 0.9 < sure[20:].min() <= sure.max() < 1
    assert 0 < lost.min() <= lost[:20].max() < 0.1
