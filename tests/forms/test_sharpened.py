"""Sharpened NED: its formula, its likelihood, and the sizes of classes."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_classes import slopes_by_differences

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.forms import sharpened
from nearsure.forms.sharpened import SharpenedLikelihood, SharpenedNED, query_scales
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score

# Sharpened NED: the formula in loops, its limits, and what leaves it unchanged.


N_CLASSES = 4


def random_neighbors(seed: int = 0, *, n: int = 40, k: int = 9, padded: bool = True) -> Neighbors:
    """Rows with ties, zero distances and padding; the first row is nothing but padding."""
    rng = np.random.default_rng(seed)
    sq_distances = np.sort(rng.gamma(2.0, 1.0, (n, k)).round(1), axis=1)
    sq_distances[1, :4] = 0.0
    sq_distances[2] = 0.0
    counts = np.full(n, k)
    if padded:
        counts = rng.integers(1, k + 1, n)
        counts[:3] = 0, k, k
    return Neighbors(sq_distances, rng.integers(0, N_CLASSES, (n, k)), counts=counts)


def in_loops(
    form: SharpenedNED,
    neighbors: Neighbors,
    own_codes: IntArray | None = None,
    own_factors: FloatArray | None = None,
) -> FloatArray:
    """p(c | z), straight from the formula, without any shift of exponents."""
    dense = np.zeros((len(neighbors), N_CLASSES))
    for row, count in enumerate(neighbors.counts.tolist()):
        distances = neighbors.sq_distances[row, :count].tolist()
        if not distances:
            continue
        ratio = max(math.fsum(distances) / count / form.typical_distance, 1e-9)
        own_temperature = form.temperature * ratio**form.adaptivity
        sums = [0.0] * N_CLASSES
        for distance, label in zip(distances, neighbors.labels[row].tolist(), strict=False):
            sums[label] += math.exp(-distance / own_temperature)
        if own_codes is not None and own_factors is not None:
            sums[own_codes[row]] *= own_factors[row]
        powers = [total**form.sharpness for total in sums]
        dense[row] = np.array(powers) / math.fsum(powers)
    return dense


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(
    ("temperature", "sharpness", "adaptivity"),
    [(1.0, 1.0, 0.0), (0.7, 2.5, 0.0), (2.0, 0.4, 0.0), (1.3, 1.0, 1.0), (1.0, 3.0, -0.5)],
)
def test_it_is_the_formula(
    temperature: float,
    sharpness: float,
    adaptivity: float,
    padded: bool,  # noqa: FBT001
) -> None:
    neighbors = random_neighbors(padded=padded)
    form = SharpenedNED(temperature, sharpness, adaptivity, typical_distance=2.5)
    posterior = form.posterior(neighbors, n_classes=N_CLASSES)
    expected = in_loops(form, neighbors)
    np.testing.assert_allclose(posterior.to_csr().toarray(), expected, rtol=1e-9, atol=1e-15)
    rng = np.random.default_rng(1)
    codes, factors = rng.integers(0, N_CLASSES, 40), 1.0 + rng.random(40)
    left_out = form.posterior(
        neighbors, n_classes=N_CLASSES, own_codes=codes, own_factors=factors
    ).to_csr()
    np.testing.assert_allclose(
        left_out.toarray(), in_loops(form, neighbors, codes, factors), rtol=1e-9, atol=1e-15
    )
    assert not np.allclose(left_out.toarray(), expected)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.05, 50.0),
    sharpness=st.floats(0.05, 20.0),
    adaptivity=st.floats(-2.0, 4.0),
)
def test_any_parameters_that_a_fit_may_find_give_probabilities_in_order(
    seed: int, temperature: float, sharpness: float, adaptivity: float
) -> None:
    neighbors = random_neighbors(seed, n=12, k=7)
    form = SharpenedNED(temperature, sharpness, adaptivity, typical_distance=3.0)
    posterior = form.posterior(neighbors, n_classes=N_CLASSES)
    sums = np.bincount(posterior.rows, posterior.probabilities, minlength=12)
    np.testing.assert_allclose(sums, neighbors.counts > 0, atol=1e-12)
    same_row = np.diff(posterior.rows) == 0
    assert (np.diff(posterior.probabilities)[same_row] <= 0).all()


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("temperature", [1e-9, 0.3, 4.0, 1e9])
def test_without_sharpness_and_adaptivity_it_is_ned(
    temperature: float,
    padded: bool,  # noqa: FBT001
) -> None:
    neighbors = random_neighbors(padded=padded)
    posterior = SharpenedNED(temperature).posterior(neighbors, n_classes=N_CLASSES)
    ned = score(neighbors, temperature=temperature, n_classes=N_CLASSES)
    np.testing.assert_array_equal(posterior.codes, ned.codes)
    np.testing.assert_allclose(posterior.probabilities, ned.probabilities, rtol=1e-14, atol=1e-300)


def test_a_row_of_nothing_but_padding_has_no_class() -> None:
    neighbors = Neighbors([[1.0, 2.0], [3.0, 4.0]], [[0, 1], [1, 1]], counts=[0, 2])
    form = SharpenedNED(1.0, 2.0, 1.0)
    posterior = form.posterior(neighbors, n_classes=2)
    assert posterior.labels.tolist() == [-1, 1]
    assert posterior.confidence.tolist() == [0.0, 1.0]
    assert query_scales(neighbors).tolist() == [0.0, 3.5]
    nothing = Neighbors([[1.0, 2.0]], [[0, 1]], counts=[0])
    assert not form.weights(nothing).any()
    assert form.posterior(nothing, n_classes=2).labels.tolist() == [-1]


def test_only_what_is_not_padding_makes_the_scale() -> None:
    neighbors = random_neighbors()
    expected = [
        np.mean(row[:count]) if count else 0.0
        for row, count in zip(neighbors.sq_distances, neighbors.counts, strict=True)
    ]
    np.testing.assert_allclose(query_scales(neighbors), expected)


@pytest.mark.parametrize("adaptivity", [-2.0, 0.0, 1.0, 4.0])
def test_a_query_on_top_of_all_its_neighbours_counts_them(adaptivity: float) -> None:
    neighbors = Neighbors(np.zeros((1, 4)), [[2, 2, 2, 0]])
    posterior = SharpenedNED(0.1, 2.0, adaptivity).posterior(neighbors)
    np.testing.assert_allclose(posterior.probabilities, [9 / 10, 1 / 10])


@pytest.mark.parametrize("adaptivity", [-2.0, 0.0, 1.0, 4.0])
@pytest.mark.parametrize("temperature", [5e-324, 1e-200, 1e200, 1e308])
def test_the_limits_are_the_nearest_and_the_count(temperature: float, adaptivity: float) -> None:
    neighbors = Neighbors([[0.5, 1.0, 2.0, 7.0]], [[3, 1, 1, 1]])
    posterior = SharpenedNED(temperature, 2.0, adaptivity).posterior(neighbors)
    limit = [1.0, 0.0] if temperature < 1 else [9 / 10, 1 / 10]
    np.testing.assert_allclose(posterior.probabilities, limit)
    assert posterior.labels[0] == (3 if temperature < 1 else 1)


@pytest.mark.parametrize(
    ("sq_distances", "typical"),
    [([1e307, 5e307, 1.5e308, 1.6e308], 1.0), ([0.0, 1.0, 2.0, 3e100], 5e-324)],
)
def test_distances_that_ned_takes_are_taken(sq_distances: list[float], typical: float) -> None:
    """The rule "ned" answers; with no adaptivity the scale of a query must not matter."""
    neighbors = Neighbors([sq_distances], [[0, 1, 1, 0]])
    form = SharpenedNED(1e307, typical_distance=typical)
    np.testing.assert_allclose(
        form.posterior(neighbors).probabilities, score(neighbors, temperature=1e307).probabilities
    )


def test_any_sharpness_that_is_allowed_is_computed() -> None:
    neighbors = Neighbors(np.zeros((1, 4)), [[0, 0, 0, 1]])
    assert SharpenedNED(1.0, 1000.0).posterior(neighbors).probabilities.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("factor", [2.0**-300, 2.0**10, 2.0**300])
def test_the_unit_of_distance_does_not_matter(factor: float) -> None:
    """Powers of two, under which every operation scales without rounding but the logarithm's."""
    neighbors = random_neighbors()
    here = SharpenedNED(1.3, 2.0, 0.7, 2.5)
    there = SharpenedNED(1.3 * factor, 2.0, 0.7, 2.5 * factor)
    scaled = Neighbors(
        np.where(neighbors.valid, neighbors.sq_distances * factor, 0.0),
        neighbors.labels,
        counts=neighbors.counts,
    )
    expected = here.posterior(neighbors)
    posterior = there.posterior(scaled)
    np.testing.assert_array_equal(posterior.codes, expected.codes)
    np.testing.assert_allclose(posterior.probabilities, expected.probabilities, rtol=1e-12)


def test_a_common_offset_of_the_distances_matters_only_through_adaptivity() -> None:
    neighbors = random_neighbors(padded=False)
    farther = Neighbors(neighbors.sq_distances + 8.0, neighbors.labels)

    def moved(form: SharpenedNED) -> float:
        before, after = (form.posterior(found).to_csr().toarray() for found in (neighbors, farther))
        return float(np.abs(after - before).max())

    assert moved(SharpenedNED(1.0, 2.0)) < 1e-12
    assert moved(SharpenedNED(1.0, 2.0, 1.0)) > 0.1


def test_sharpness_makes_surer_and_never_changes_the_label() -> None:
    neighbors = random_neighbors()
    soft, sharp = (SharpenedNED(1.0, gamma).posterior(neighbors) for gamma in (1.0, 2.0))
    np.testing.assert_array_equal(soft.labels, sharp.labels)
    assert (sharp.confidence >= soft.confidence).all()
    assert (sharp.confidence > soft.confidence + 0.01).any()


def test_neighbours_and_factors_are_left_alone() -> None:
    neighbors = random_neighbors()
    before = neighbors.sq_distances.copy()
    factors = np.full(40, 1.5)
    SharpenedNED(1.0, 2.0).posterior(neighbors, own_codes=np.zeros(40, int), own_factors=factors)
    np.testing.assert_array_equal(neighbors.sq_distances, before)
    assert (factors == 1.5).all()


def test_json_holds_the_parameters_to_the_last_bit() -> None:
    form = SharpenedNED(1 / 3, math.e, -math.pi / 7, 1e-17)
    again = SharpenedNED.from_dict(json.loads(json.dumps(form.to_dict(), allow_nan=False)))
    assert again == form
    assert isinstance(again.posterior(random_neighbors()), Posterior)


@pytest.mark.parametrize("name", ["temperature", "sharpness", "typical_distance"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_numbers_that_are_not_positive_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} must be a finite number > 0. Got {value}"):
        SharpenedNED(**{"temperature": 1.0, name: value})


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_adaptivity_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(InvalidInputError, match="adaptivity must be a finite number"):
        SharpenedNED(1.0, adaptivity=value)


@pytest.mark.parametrize("name", ["sharpness", "adaptivity", "typical_distance"])
@pytest.mark.parametrize("value", [None, "1"])
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    parameters: dict[str, Any] = {"temperature": 1.0, name: value}
    with pytest.raises(InvalidInputError, match=f"{name} must be a finite number"):
        SharpenedNED(**parameters)


# A class's density is sharpened, and its size counts once: formula, likelihood, slopes.


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


# The likelihood that sharpened NED is fitted by: its value and its slopes.


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


@pytest.mark.parametrize("n_classes", [4, 10**6], ids=["few classes", "a class for each"])
def test_blocks_of_points_have_the_losses_of_all(
    monkeypatch: pytest.MonkeyPatch, n_classes: int
) -> None:
    monkeypatch.setattr(sharpened, "BLOCK", 7)
    neighbors, codes = hit_points(8, padded=True, n_classes=n_classes)
    factors, at = factors_of(9), np.array(POINTS[2])
    log_ratios = SharpenedNED(1.0, typical_distance=2.5).log_ratios(neighbors)
    in_blocks = sharpened._in_blocks(neighbors, codes, log_ratios, factors, None)(at)
    for found, expected in zip(in_blocks, likelihood(neighbors, codes, factors)(at), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_classes_of_one_neighbour_each_are_told_by_their_distances() -> None:
    neighbors = Neighbors([[0.0, 1.0, 3.0]], [[4, 2, 7]])
    losses, slopes = likelihood(neighbors, np.array([2]), np.ones(1))(np.zeros(3))
    weights = np.exp([-1.0, 0.0, -3.0])
    shares = weights / weights.sum()
    np.testing.assert_allclose(losses, -np.log(shares[0]))
    # d logit / d log T is the distance, at T = 1, and d logit / d log gamma minus that.
    slope = shares @ [1.0, 0.0, 3.0] - 1.0
    np.testing.assert_allclose(slopes[0, :2], [slope, -slope])


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
