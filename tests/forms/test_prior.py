"""Another prior: Bayes' rule on the sparse posterior, and calibration where queries are even."""

import numpy as np
import pytest
from made_classes import gaussian_classes
from numpy.typing import ArrayLike

from nearsure.errors import InvalidInputError
from nearsure.forms.missed_mass import leave_room
from nearsure.forms.prior import prior_factors, with_prior
from nearsure.metrics import (
    calibration_floor,
    expected_calibration_error,
    row_negative_log_likelihoods,
)
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score
from nearsure.temperature import fit_temperature

COUNTS = np.array([5, 0, 20, 1, 40])


def random_posterior(seed: int = 0, *, n: int = 50, k: int = 8) -> tuple[Posterior, Neighbors]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(COUNTS), p=COUNTS / COUNTS.sum(), size=(n, k))
    neighbors = Neighbors(
        np.sort(rng.gamma(2.0, 1.0, (n, k)), axis=1), labels, counts=rng.integers(0, k + 1, n)
    )
    return score(neighbors, temperature=1.0, n_classes=len(COUNTS)), neighbors


def test_it_is_bayes_rule_on_the_dense_matrix() -> None:
    posterior, neighbors = random_posterior()
    room = leave_room(posterior, np.random.default_rng(1).uniform(0, 0.6, len(posterior)))
    prior = np.array([0.5, 0.0, 0.1, 0.3, 0.1])
    moved = with_prior(room, prior_factors(7.0 * prior, COUNTS), neighbors=neighbors)
    before, after = room.to_csr().toarray(), moved.to_csr().toarray()
    likelihoods = np.divide(before, COUNTS / COUNTS.sum(), where=COUNTS > 0, out=before * 0)
    joint = likelihoods * prior
    for row in np.flatnonzero(neighbors.counts > 0):
        expected = joint[row] / joint[row].sum() * before[row].sum()
        np.testing.assert_allclose(after[row], expected, rtol=1e-12)
        _, probabilities = moved.take(np.array([row])).top(5)
        assert (np.diff(probabilities[0]) <= 0).all()
    assert (after[neighbors.counts == 0] == 0).all()


def test_the_support_prior_and_its_own_frequencies_change_nothing() -> None:
    posterior, _ = random_posterior()
    for prior in ("support", COUNTS / COUNTS.sum()):
        same = with_prior(posterior, prior_factors(prior, COUNTS))
        np.testing.assert_array_equal(same.codes, posterior.codes)
        np.testing.assert_allclose(same.probabilities, posterior.probabilities, rtol=1e-14)


def test_going_there_and_back_is_the_identity() -> None:
    posterior, neighbors = random_posterior()
    factors = prior_factors("uniform", COUNTS)
    back = with_prior(with_prior(posterior, factors), 1.0 / factors, neighbors=neighbors)
    np.testing.assert_array_equal(back.codes, posterior.codes)
    np.testing.assert_allclose(back.probabilities, posterior.probabilities, rtol=1e-13)


def test_ties_go_to_the_nearer_class_and_then_to_the_smaller_code() -> None:
    # Two votes of class 2, which has twice the members of the others: all three become equal.
    neighbors = Neighbors(
        [[1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 2.0]], [[1, 2, 2, 0], [2, 1, 2, 0]]
    )
    posterior = score(neighbors, rule="knn")
    factors = prior_factors("uniform", [10, 10, 20])
    even = with_prior(posterior, factors, neighbors=neighbors)
    np.testing.assert_array_equal(even.codes.reshape(2, 3), [[1, 2, 0], [0, 1, 2]])
    np.testing.assert_array_equal(even.probabilities, np.full(6, 1 / 3))
    kept = with_prior(posterior, factors)
    np.testing.assert_array_equal(kept.codes, posterior.codes)


def test_even_queries_of_an_uneven_gallery_are_calibrated_by_the_uniform_prior() -> None:
    sizes = np.array([10] * 6 + [90] * 6)
    made = gaussian_classes(
        np.broadcast_to(np.eye(2), (12, 2, 2)),
        sizes=sizes,
        n_queries=np.full(12, 300),
        spread=2.0,
        seed=0,
    )
    temperature = fit_temperature(made.own_neighbors(100), made.codes).temperature
    support = score(made.query_neighbors(100), temperature=temperature, n_classes=12)
    uniform = with_prior(support, prior_factors("uniform", made.counts))
    errors = {}
    for name, posterior in (("support", support), ("uniform", uniform)):
        correct = posterior.labels == made.query_codes
        error = expected_calibration_error(posterior.confidence, correct)
        errors[name] = error - calibration_floor(posterior.confidence, seed=0)
    assert errors["uniform"] < 0.02
    assert errors["support"] > 3 * errors["uniform"]
    gain = row_negative_log_likelihoods(
        support, made.query_codes, floor=1e-6
    ) - row_negative_log_likelihoods(uniform, made.query_codes, floor=1e-6)
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("even", "'support', 'uniform' or one number for each class. Got 'even'"),
        ([1, 1, 1], "each of the 5 classes, in their order"),
        ([1, 0, -1, 1, 1], "at least 0. Got -1.0 for class 2"),
        ([1, 0, np.nan, 1, 1], "finite numbers .* Got nan for class 2"),
        ([1, 0, np.inf, 1, 1], "finite numbers .* Got inf for class 2"),
        ([1, 0, 0, 1, 1], "Got 0 for class 2 instead: .* remove its members"),
        ([1, 1, 1, 1, 1], "0 for a class without members, .* Got 1.0 for class 1"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior: ArrayLike, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        prior_factors(prior, COUNTS)


def test_factors_counts_and_neighbors_must_fit() -> None:
    posterior, _ = random_posterior()
    with pytest.raises(InvalidInputError, match="each of the 5 classes"):
        with_prior(posterior, [1.0, 1.0])
    with pytest.raises(InvalidInputError, match="finite and positive"):
        with_prior(posterior, [1.0, 0.0, 1.0, 1.0, 1.0])
    with pytest.raises(InvalidInputError, match="posterior's 50 queries"):
        with_prior(posterior, np.ones(5), neighbors=Neighbors([[1.0]], [[0]]))
    with pytest.raises(InvalidInputError, match="what the posterior was made of"):
        with_prior(posterior, np.ones(5), neighbors=random_posterior(seed=5)[1])
    with pytest.raises(InvalidInputError, match="class_counts must be one integer"):
        prior_factors("uniform", [0.5, 0.5])
    with pytest.raises(InvalidInputError, match="at least one member"):
        prior_factors("uniform", [0, 0])
