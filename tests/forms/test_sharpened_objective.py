"""The likelihood that sharpened NED is fitted by: its value and its slopes."""

import numpy as np
import pytest
from made_classes import slopes_by_differences

from nearsure.arrays import FloatArray, IntArray
from nearsure.forms.sharpened import SharpenedLikelihood, SharpenedNED
from nearsure.neighbors import Neighbors

POINTS = [(0.0, 0.0, 0.0), (0.7, 0.9, 0.0), (-0.4, -1.2, 1.5), (1.5, 2.0, -1.0)]


def hit_points(
    seed: int, *, padded: bool, n: int = 60, k: int = 8, n_classes: int = 4
) -> tuple[Neighbors, IntArray]:
    """Points with a neighbour of their class: any one of theirs, so that far ones occur, too."""
    rng = np.random.default_rng(seed)
    sq_distances = np.sort(rng.gamma(2.0, 1.0, (n, k)), axis=1)
    sq_distances[0] = 0.0
    labels = rng.integers(0, n_classes, (n, k))
    counts = rng.integers(1, k + 1, n) if padded else np.full(n, k)
    codes = labels[np.arange(n), rng.integers(0, counts)]
    return Neighbors(sq_distances, labels, counts=counts), codes


def likelihood(
    neighbors: Neighbors, codes: IntArray, factors: FloatArray, typical: float = 2.5
) -> SharpenedLikelihood:
    log_ratios = SharpenedNED(1.0, typical_distance=typical).log_ratios(neighbors)
    return SharpenedLikelihood(neighbors, codes, log_ratios, factors)


def factors_of(seed: int, n: int = 60) -> FloatArray:
    return 1.0 + np.random.default_rng(seed).exponential(size=n)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("at", POINTS)
def test_losses_are_minus_log_p_of_the_posterior(
    at: tuple[float, float, float],
    corrected: bool,  # noqa: FBT001
    padded: bool,  # noqa: FBT001
) -> None:
    neighbors, codes = hit_points(1, padded=padded)
    factors = factors_of(2) if corrected else np.ones(60)
    form = SharpenedNED(np.exp(at[0]), np.exp(at[1]), at[2], 2.5)
    posterior = form.posterior(neighbors, own_codes=codes, own_factors=factors)
    losses, _ = likelihood(neighbors, codes, factors)(np.array(at))
    assert losses.shape == (60,)
    # A probability near 1 is rounded to 1e-16, and so is what its logarithm can say.
    expected = -np.log(posterior.probability_of(codes))
    np.testing.assert_allclose(losses, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("at", POINTS)
def test_slopes_are_those_of_finite_differences(
    at: tuple[float, float, float],
    corrected: bool,  # noqa: FBT001
    padded: bool,  # noqa: FBT001
) -> None:
    neighbors, codes = hit_points(3, padded=padded)
    function = likelihood(neighbors, codes, factors_of(4) if corrected else np.ones(60))
    _, slopes = function(np.array(at))
    for point in range(60):

        def loss(parameters: FloatArray, point: int = point) -> tuple[float, FloatArray]:
            losses, derivatives = function(parameters)
            return float(losses[point]), derivatives[point]

        np.testing.assert_allclose(
            slopes[point], slopes_by_differences(loss, np.array(at)), rtol=1e-5, atol=1e-7
        )


def test_a_class_that_is_far_has_a_finite_loss_where_its_weights_have_vanished() -> None:
    neighbors = Neighbors([[0.0, 1000.0, 1100.0]], [[0, 1, 1]])
    losses, slopes = likelihood(neighbors, np.array([1]), np.ones(1))(np.array([0.0, 0.0, 0.0]))
    assert losses[0] == pytest.approx(1000.0)
    # d/d log T of s / T is -s at T = 1, and gamma multiplies the logit.
    np.testing.assert_allclose(slopes[0][:2], [-1000.0, 1000.0])


def test_points_do_not_know_of_each_other() -> None:
    neighbors, codes = hit_points(5, padded=True)
    factors, at = factors_of(6), np.array(POINTS[1])
    losses, slopes = likelihood(neighbors, codes, factors)(at)
    for point in (0, 7, 59):
        one = likelihood(neighbors.take(np.array([point])), codes[[point]], factors[[point]])(at)
        np.testing.assert_allclose(one[0][0], losses[point], rtol=1e-12)
        np.testing.assert_allclose(one[1][0], slopes[point], rtol=1e-9, atol=1e-12)


def test_what_classes_are_called_does_not_matter() -> None:
    neighbors, codes = hit_points(7, padded=True)
    names = np.array([30, 2, 11, 0, -1])  # the last is padding's
    renamed = Neighbors(neighbors.sq_distances, names[neighbors.labels], counts=neighbors.counts)
    at, factors = np.array(POINTS[2]), factors_of(8)
    here, there = (
        likelihood(found, own, factors)(at)
        for found, own in ((neighbors, codes), (renamed, names[codes]))
    )
    np.testing.assert_allclose(here[0], there[0], rtol=1e-12)
    np.testing.assert_allclose(here[1], there[1], rtol=1e-9, atol=1e-12)
