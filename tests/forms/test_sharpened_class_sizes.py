"""A class's density is sharpened, and its size counts once: formula, likelihood, slopes."""

import numpy as np
import pytest

from nearsure.arrays import FloatArray, IntArray
from nearsure.forms import SharpenedNED
from nearsure.forms.sharpened import SharpenedLikelihood
from nearsure.neighbors import Neighbors

SIZES = np.array([3, 40, 1, 12])


def found(seed: int) -> tuple[Neighbors, IntArray, FloatArray]:
    """Neighbours of 25 points, the last of them padded, their labels, and own factors."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, (25, 9))
    counts = np.where(np.arange(25) < 20, 9, 6)
    own = labels[np.arange(25), rng.integers(0, 6, 25)]
    neighbors = Neighbors(np.sort(rng.random((25, 9))), labels, counts=counts)
    return neighbors, own, 1.0 + 0.5 * rng.random(25)


def naive(form: SharpenedNED, neighbors: Neighbors, row: int, prior: FloatArray) -> FloatArray:
    n = int(neighbors.counts[row])
    distances, labels = neighbors.sq_distances[row, :n], neighbors.labels[row, :n]
    scale = (distances.mean() / form.typical_distance) ** form.adaptivity
    kernels = np.exp(-distances / (form.temperature * scale))
    density = np.array([kernels[labels == c].sum() / SIZES[c] for c in range(4)])
    votes = prior * SIZES * density**form.sharpness
    return np.asarray(votes / votes.sum())


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 1.9, 4.0])
def test_posterior_is_that_of_densities(sharpness: float) -> None:
    neighbors, _, _ = found(0)
    form = SharpenedNED(0.3, sharpness, 0.8, 0.5)
    prior = np.array([1.0, 0.5, 3.0, 2.0])
    posterior = form.posterior(neighbors, n_classes=4, class_sizes=SIZES, class_factors=prior)
    dense = posterior.to_csr().toarray()
    for row in range(len(neighbors)):
        np.testing.assert_allclose(dense[row], naive(form, neighbors, row, prior), rtol=1e-10)


def test_loss_is_that_of_the_posterior_and_slopes_are_its_differences() -> None:
    neighbors, own, factors = found(1)
    log_ratios = np.random.default_rng(2).normal(size=25)
    likelihood = SharpenedLikelihood(neighbors, own, log_ratios, factors, SIZES)
    at = np.array([np.log(0.3), np.log(1.7), 0.6])
    _, slopes = likelihood(at)
    for i in range(3):
        step = np.zeros(3)
        step[i] = 1e-6
        differences = (likelihood(at + step)[0] - likelihood(at - step)[0]) / 2e-6
        np.testing.assert_allclose(slopes[:, i], differences, atol=1e-7)
    form = SharpenedNED(0.3, 1.7, 0.0)
    losses, _ = likelihood(np.array([np.log(0.3), np.log(1.7), 0.0]))
    posterior = form.posterior(
        neighbors, n_classes=4, class_sizes=SIZES, own_codes=own, own_factors=factors
    )
    np.testing.assert_allclose(losses, -np.log(posterior.probability_of(own)), rtol=1e-9)


def test_classes_of_one_size_need_no_sizes() -> None:
    neighbors, _, _ = found(3)
    form = SharpenedNED(0.3, 2.2, 0.5)
    alike = form.posterior(neighbors, n_classes=4, class_sizes=np.full(4, 17))
    untold = form.posterior(neighbors, n_classes=4)
    np.testing.assert_allclose(alike.probabilities, untold.probabilities, rtol=1e-12)
