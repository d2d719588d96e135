"""What a head says of queries that lie off the gallery: noise makes it less sure."""

from typing import Literal

import numpy as np
import pytest
from scipy.special import expit

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, IntArray
from nearsure.heads.linear import LinearHead


@pytest.mark.parametrize("logit", [-3.0, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("deviation", [0.5, 1.0, 3.0])
def test_shares_are_the_mean_over_the_noise(logit: float, deviation: float) -> None:
    head = LinearHead(np.array([[0.0, 0.0], [1.2, 1.6]]), np.zeros(2), np.zeros(2))  # |w| = 2
    query = np.array([[logit / 1.2, 0.0]])
    scores = head.score(query, noise=np.array([(deviation / 2.0) ** 2]))
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    mean = (expit(logit + deviation * points) * weights).sum() / weights.sum()
    share = np.exp(scores.log_shares[0, scores.codes[0] == 1][0])
    assert share == pytest.approx(mean, abs=0.02)


@pytest.mark.parametrize("near", [False, True])
def test_shares_sum_to_one_and_keep_their_order(near: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(0)
    head = LinearHead(rng.normal(size=(50, 8)), rng.normal(size=50), np.zeros(8))
    queries = rng.normal(size=(30, 8))
    labels = rng.integers(0, 50, (30, 12)) if near else None
    noise = np.where(np.arange(30) % 3 == 0, 0.0, rng.random(30))
    plain, noisy = head.score(queries, labels), head.score(queries, labels, noise)
    n_unlisted = 0 if near else 50 - plain.codes.shape[1]
    total = np.exp(noisy.log_shares).sum(axis=1) + n_unlisted * np.exp(noisy.rest)
    # What is not listed is bounded from below and above.
    assert total == pytest.approx(1.0, abs=1e-2)
    assert np.array_equal(noisy.codes, plain.codes)
    assert np.array_equal(noisy.level, plain.level)
    alike = noise == 0.0
    assert np.array_equal(noisy.log_shares[alike], plain.log_shares[alike])
    most = [each.log_shares.max(axis=1)[~alike] for each in (plain, noisy)]
    assert (most[1] < most[0]).all()
    order = np.argsort(-plain.log_shares, axis=1, kind="stable")
    ordered = np.exp(np.take_along_axis(noisy.log_shares, order, axis=1))
    assert (np.diff(ordered, axis=1) <= 0.0).all()


def draw(n: int, *, seed: int, noise: float = 0.0) -> tuple[AnyArray, IntArray]:
    """Normal classes that are flat in most directions, where noise does most harm to a head."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 10, n)
    spread = np.linspace(2.0, 0.2, 60)
    centres = spread * np.random.default_rng(99).normal(size=(10, 60))
    points = 0.35 * centres[codes] + spread * rng.normal(size=(n, 60))
    return points + noise * rng.normal(size=(n, 60)), codes


@pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")
@pytest.mark.parametrize("head", ["means", "logistic"])
def test_confidence_falls_with_the_accuracy_of_noisy_queries(
    head: Literal["means", "logistic"],
) -> None:
    classifier = NEDClassifier(head=head).fit(*draw(1500, seed=0))
    for noise, most in ((0.0, 0.04), (1.0, 0.15)):  # 0.27 if no query is taken for noisy
        queries, truth = draw(1000, seed=1, noise=noise)
        prediction = classifier.predict_with_confidence(queries)
        right = prediction.labels == truth
        assert prediction.confidence.mean() - right.mean() < most
