import numpy as np
import pytest
from drifting_queries import made_gallery, scored
from scipy.stats import spearmanr

from nearsure.arrays import BoolArray, FloatArray
from nearsure.drift import Evidence, estimate_accuracy, fit_cut, gather_evidence
from nearsure.errors import InvalidInputError


def drawn(rng: np.random.Generator, n: int) -> tuple[Evidence, BoolArray]:
    """Points that are right with the chance that they claim, at distances that say nothing."""
    confidence = rng.uniform(0.3, 1.0, n)
    evidence = Evidence(confidence, np.log(confidence), rng.uniform(1.0, 2.0, n))
    return evidence, rng.random(n) < confidence


def with_certainty(evidence: Evidence, certainty: FloatArray) -> Evidence:
    return Evidence(evidence.confidence, certainty, evidence.distance)


@pytest.mark.parametrize("n_values", [3, 10_000])
@pytest.mark.parametrize("accuracy", [0.0, 0.03, 0.5, 0.97, 1.0])
def test_the_cut_counts_as_many_gallery_points_as_are_right(accuracy: float, n_values: int) -> None:
    rng = np.random.default_rng(0)
    certainty = rng.integers(-n_values, 0, 600) / n_values  # three values: many ties
    own = Evidence(np.exp(certainty), certainty, rng.exponential(size=600))
    right = np.arange(600) < accuracy * 600
    assert fit_cut(own, right).share(own) == pytest.approx(accuracy)


def test_the_cut_is_what_a_sort_gives() -> None:
    rng = np.random.default_rng(1)
    own, right = drawn(rng, 1000)
    cut = fit_cut(own, right)
    assert cut.threshold == np.sort(own.certainty)[::-1][right.sum() - 1]
    assert cut.tied_share == 1.0


def test_a_gallery_without_errors_counts_all_that_is_as_sure_as_its_least_sure_point() -> None:
    rng = np.random.default_rng(2)
    own, _ = drawn(rng, 1000)
    cut = fit_cut(own, np.ones(1000, bool))
    assert cut.threshold == own.certainty.min()
    assert cut.share(own) == 1.0
    assert cut.share(with_certainty(own, own.certainty - 1.0)) < 0.5


def test_without_a_shift_the_interval_holds_the_accuracy_at_its_level() -> None:
    # Right with chance c, c uniform in [0.3, 1]: the true accuracy is 0.65.
    rng = np.random.default_rng(3)
    n_draws = 200
    held = 0
    for _ in range(n_draws):
        own, right = drawn(rng, 400)
        queries, _ = drawn(rng, 150)
        interval = estimate_accuracy(own, right, queries, seed=rng, n_resamples=120).thresholded
        held += interval.low <= 0.65 <= interval.high
    assert 0.89 <= held / n_draws <= 0.99


@pytest.mark.parametrize("rule", ["ned", "knn", "dudani", "gou", "1nn"])
def test_without_a_shift_the_estimate_is_the_accuracy_under_every_rule(rule: str) -> None:
    gallery = made_gallery(3000)
    own_posterior = scored(gallery.own, rule)  # type: ignore[arg-type]
    neighbors, codes = gallery.queries(3000, seed=1)
    posterior = scored(neighbors, rule)  # type: ignore[arg-type]
    found = estimate_accuracy(
        gather_evidence(gallery.own, own_posterior),
        own_posterior.labels == gallery.codes,
        gather_evidence(neighbors, posterior),
        n_resamples=10,
    )
    # Three standard errors of the difference of two shares of 3000.
    assert found.estimate == pytest.approx(np.mean(posterior.labels == codes), abs=0.035)


def test_over_planted_shifts_the_estimate_is_closer_than_the_mean_confidence() -> None:
    gallery = made_gallery(1500)
    own_posterior = scored(gallery.own)
    own = gather_evidence(gallery.own, own_posterior)
    cut = fit_cut(own, own_posterior.labels == gallery.codes)
    truths, estimates, confidences = [], [], []
    for noise in (0.0, 0.5, 1.0, 2.0, 3.0):
        for pull in (0.0, 0.5, 1.0, 2.0):
            neighbors, codes = gallery.queries(600, seed=2, noise=noise, pull=pull)
            posterior = scored(neighbors)
            truths.append(np.mean(posterior.labels == codes))
            estimates.append(cut.share(gather_evidence(neighbors, posterior)))
            confidences.append(posterior.confidence.mean())
    assert min(truths) < 0.3
    assert max(truths) > 0.9
    errors = np.abs(np.array([estimates, confidences]) - truths).mean(axis=1)
    assert errors[0] < 0.8 * errors[1]
    # Not only nearer on average: it ranks the batches as the truth does.
    assert spearmanr(estimates, truths).statistic > 0.9


def test_what_it_cannot_see_sure_errors() -> None:
    rng = np.random.default_rng(4)
    own, right = drawn(rng, 500)
    attacked = Evidence(np.full(100, 0.99), np.full(100, -0.01), np.full(100, 1.5))
    # All of them wrong, for all it knows.
    assert estimate_accuracy(own, right, attacked, n_resamples=10).estimate == 1.0


def test_right_answers_that_are_far_are_counted_as_right() -> None:
    # Lifted off the sphere, queries are as far from all: labels and NED's posterior stay.
    gallery = made_gallery(1500)
    own_posterior = scored(gallery.own)
    neighbors, codes = gallery.queries(600, seed=3, offset=1.0)
    posterior = scored(neighbors)
    own, queries = (
        gather_evidence(gallery.own, own_posterior),
        gather_evidence(neighbors, posterior),
    )
    found = estimate_accuracy(own, own_posterior.labels == gallery.codes, queries, n_resamples=10)
    assert queries.distance.min() > own.distance.max()
    assert found.estimate == pytest.approx(np.mean(posterior.labels == codes), abs=0.05)


def test_order_and_repetition_of_queries_do_not_matter_and_seeds_do_what_they_say() -> None:
    rng = np.random.default_rng(5)
    own, right = drawn(rng, 300)
    queries, _ = drawn(rng, 100)
    found = estimate_accuracy(own, right, queries, seed=1)
    order = rng.permutation(300)
    shuffled = estimate_accuracy(own.take(order), right[order], queries.take(np.arange(100)[::-1]))
    assert shuffled.estimate == found.estimate
    assert shuffled.cut == found.cut
    doubled = queries.take(np.tile(np.arange(100), 2))
    assert estimate_accuracy(own, right, doubled).estimate == pytest.approx(found.estimate)
    assert estimate_accuracy(own, right, queries, seed=1) == found
    assert estimate_accuracy(own, right, queries, seed=2).thresholded != found.thresholded


def test_distances_and_the_unit_of_the_certainty_do_not_matter() -> None:
    rng = np.random.default_rng(6)
    own, right = drawn(rng, 300)
    queries, _ = drawn(rng, 100)
    far = Evidence(queries.confidence, queries.certainty, 1024.0 * queries.distance)
    found = estimate_accuracy(own, right, queries)
    assert estimate_accuracy(own, right, far) == found
    own, queries = (with_certainty(points, 2.0 * points.certainty) for points in (own, queries))
    assert estimate_accuracy(own, right, queries).thresholded == found.thresholded


def test_bad_input_is_refused() -> None:
    rng = np.random.default_rng(7)
    own, right = drawn(rng, 100)
    few, _ = drawn(rng, 12)
    with pytest.raises(InvalidInputError, match=r"'queries'.*at least 30.*Got 12"):
        estimate_accuracy(own, right, few)
    with pytest.raises(InvalidInputError, match=r"'own'.*at least 30.*Got 12"):
        estimate_accuracy(few, np.ones(12, bool), own)
    with pytest.raises(InvalidInputError, match="none of 100"):
        estimate_accuracy(own, np.zeros(100, bool), own)
    with pytest.raises(InvalidInputError, match="same number of rows"):
        estimate_accuracy(own, right[1:], own)
    with pytest.raises(InvalidInputError, match="n_resamples"):
        estimate_accuracy(own, right, own, n_resamples=0)
