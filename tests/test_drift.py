"""Whether queries look like the gallery, and what that means for the answers."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.classifier.parameters import RuleChoice
from nearsure.drift import (
    Evidence,
    QueryDrift,
    certainty,
    compare_queries,
    compare_samples,
    estimate_accuracy,
    fit_cut,
    gather_evidence,
)
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.neighbors import ClassScores, Neighbors
from nearsure.posterior import Posterior, score, with_confidence
from nearsure.rules import RuleName

# Queries here are drawn otherwise than the gallery.
pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")

# Made galleries on the unit sphere, whose queries can be drawn again and moved.


N_CLASSES = 20
N_FEATURES = 32
SPREAD = 0.8
K = 20
# About what fit_temperature finds.
TEMPERATURE = 0.08


@dataclass(frozen=True, eq=False)
class MadeGallery:
    """Gaussian classes, put on the sphere; the leave-one-out pass and batches of queries."""

    index: ExactIndex
    codes: IntArray
    own: Neighbors

    def queries(
        self, n: int, seed: int, *, noise: float = 0.0, pull: float = 0.0, offset: float = 0.0
    ) -> tuple[Neighbors, IntArray]:
        """Neighbours and true codes of new points.

        Noise hits each alone, a pull takes all in one direction, and an offset lifts them off the
        sphere, as far from every gallery point as from any other.
        """
        rng = np.random.default_rng([seed, 1])
        codes = rng.integers(N_CLASSES, size=n)
        damage = noise * rng.normal(size=(n, N_FEATURES)) + pull * COMMON
        points = _points(codes, rng, damage)
        points[:, -1] = offset
        sq_distances, ids = self.index.search(points, K)
        return Neighbors(sq_distances, self.codes[ids]), codes


def made_gallery(n: int, seed: int = 0) -> MadeGallery:
    rng = np.random.default_rng([seed, 0])
    codes = rng.integers(N_CLASSES, size=n)
    points = _points(codes, rng, np.zeros((n, N_FEATURES)))
    index = ExactIndex(points)
    own = search_leaving_one_out(index, points, np.arange(n), codes, k=K)
    return MadeGallery(index, codes, own)


def scored(neighbors: Neighbors, rule: RuleName = "ned") -> Posterior:
    temperature = TEMPERATURE if rule == "ned" else None
    return score(neighbors, rule=rule, temperature=temperature, n_classes=N_CLASSES)


_CLASSES = np.random.default_rng(7)
CENTRES: FloatArray = SPREAD * _CLASSES.normal(size=(N_CLASSES, N_FEATURES))
COMMON: FloatArray = _CLASSES.normal(size=N_FEATURES)


def _points(codes: IntArray, rng: np.random.Generator, damage: FloatArray) -> FloatArray:
    vectors = CENTRES[codes] + rng.normal(size=damage.shape) + damage
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.column_stack([vectors, np.zeros(len(vectors))])


def row(probabilities: list[float], n_classes: int = 100) -> Posterior:
    n = len(probabilities)
    return Posterior(np.array([0, n]), np.arange(n), np.array(probabilities), n_classes)


def naive(probabilities: list[float]) -> float:
    """Negative entropy, what is lacking being dealt out in pieces no larger than the first."""
    pieces, lacking = list(probabilities), 1.0 - sum(probabilities)
    while lacking > 1e-9:
        pieces.append(min(lacking, probabilities[0]))
        lacking -= pieces[-1]
    return float(sum(p * np.log(p) for p in pieces))


@pytest.mark.parametrize(
    "probabilities",
    [
        [1.0],
        [0.6, 0.3, 0.1],
        [0.9],
        [0.6, 0.2],
        [0.5],
        [0.4, 0.05],
        [0.21],
        [0.01, 0.01, 0.005],
    ],
)
def test_a_row_is_as_certain_as_a_loop_over_its_classes_says(probabilities: list[float]) -> None:
    assert certainty(row(probabilities))[0] == pytest.approx(naive(probabilities), abs=1e-7)


def test_full_rows_have_their_negative_entropy() -> None:
    posterior = scored(made_gallery(300).own)
    np.testing.assert_allclose(certainty(posterior), -posterior.entropy, atol=1e-13)


def test_less_confidence_in_the_same_row_is_less_certainty() -> None:
    # Also where next to nothing is left of the label, as isotonic calibration may have it.
    confidences = [1.0, 0.95, 0.7, 0.5, 0.3, 0.1, 0.02, 0.0]
    for probabilities in ([1.0], [0.7, 0.3], [0.5, 0.3, 0.2]):
        found = np.concatenate(
            [certainty(with_confidence(row(probabilities), [c])) for c in confidences]
        )
        assert (np.diff(found) < 0).all()


def test_rows_of_nothing_are_the_least_certain() -> None:
    assert certainty(row([])).tolist() == [-np.inf]
    assert certainty(row([0.0, 0.0])).tolist() == [-np.inf]


def test_gap_and_direction_are_what_loops_over_pairs_and_thresholds_give() -> None:
    rng = np.random.default_rng(0)
    own, queries = rng.integers(0, 12, 40) / 12, rng.integers(3, 15, 35) / 12
    shift = compare_samples(own, queries)
    gap = max(
        abs(np.mean(own <= t) - np.mean(queries <= t)) for t in np.concatenate([own, queries])
    )
    delta = np.mean([np.sign(query - point) for query in queries for point in own])
    assert shift.gap == pytest.approx(gap)
    assert shift.direction == pytest.approx(delta)


@pytest.mark.parametrize("n_queries", [40, 300, 3000])
def test_false_alarms_are_no_more_than_the_level(n_queries: int) -> None:
    rng = np.random.default_rng(n_queries)
    n_draws, level = 400, 0.1
    alarms = [
        compare_samples(
            rng.normal(size=800), rng.normal(size=n_queries), level=level, smallest_gap=0.001
        ).alarm
        for _ in range(n_draws)
    ]
    # Three standard errors above the level.
    assert np.mean(alarms) <= level + 3 * np.sqrt(level * (1 - level) / n_draws)


def test_ties_make_false_alarms_rarer() -> None:
    rng = np.random.default_rng(1)
    alarms = [
        compare_samples(
            rng.integers(0, 4, 800), rng.integers(0, 4, 300), level=0.1, smallest_gap=0.001
        ).alarm
        for _ in range(400)
    ]
    assert np.mean(alarms) <= 0.1


def test_a_tiny_shift_of_a_huge_batch_is_beyond_chance_but_no_alarm() -> None:
    rng = np.random.default_rng(2)
    shift = compare_samples(rng.normal(size=100_000), rng.normal(0.05, size=100_000))
    assert shift.p_value < 1e-6
    assert not shift.alarm


def test_a_gap_that_chance_explains_is_no_alarm() -> None:
    shift = compare_samples(np.arange(30.0), np.arange(30.0) + 5)
    assert shift.gap > shift.smallest_gap
    assert not shift.alarm


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_shift_of_place_or_of_spread_alarms(scale: float) -> None:
    rng = np.random.default_rng(3)
    moved = rng.normal(0.0 if scale > 1 else 1.0, scale, size=200)
    assert compare_samples(rng.normal(size=1000), moved).alarm


def test_the_gap_needed_parts_alarms_from_silence() -> None:
    own = np.arange(1000.0)

    def shifted(gap: float) -> bool:
        # One in a thousand values moved past the end is a gap of 0.001.
        queries = np.arange(0.0, 1000.0, 4)
        queries[: round(gap * len(queries))] = 2000.0
        return compare_samples(own, queries).alarm

    needed = compare_samples(own, np.arange(0.0, 1000.0, 4)).gap_needed
    assert needed > 0.1
    assert not shifted(needed - 0.02)
    assert shifted(needed + 0.02)


def test_the_gap_needed_falls_with_the_batch_to_the_gap_that_matters() -> None:
    own = np.arange(2000.0)
    needed = [compare_samples(own, np.arange(float(n))).gap_needed for n in (30, 100, 300, 2000)]
    assert needed == sorted(needed, reverse=True)
    assert needed[-1] == 0.1


def test_only_the_order_of_values_counts() -> None:
    rng = np.random.default_rng(4)
    own, queries = rng.uniform(0.1, 1, 200), rng.uniform(0.3, 1, 100)
    squared, logged = (
        compare_samples(change(own), change(queries)) for change in (np.square, np.log)
    )
    plain = compare_samples(own[::-1], rng.permutation(queries))
    for other in (squared, logged):
        assert (other.gap, other.p_value) == (plain.gap, plain.p_value)
        assert other.direction == pytest.approx(plain.direction)


def test_swapping_the_samples_turns_the_direction() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=90), rng.normal(0.4, size=60)
    there, back = compare_samples(one, other), compare_samples(other, one)
    assert there.gap == pytest.approx(back.gap)
    assert there.direction == pytest.approx(-back.direction)


def test_infinite_distances_are_far() -> None:
    shift = compare_samples(np.arange(50.0), np.full(50, np.inf))
    assert (shift.gap, shift.direction, shift.query_median) == (1.0, 1.0, np.inf)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([], r"at least 30 values.*\(0,\)"),
        (np.zeros(29), r"at least 30 values.*\(29,\)"),
        (np.zeros((40, 2)), r"\(40, 2\)"),
        (np.full(40, np.nan), "NaN. Got 40 of 40"),
    ],
)
def test_bad_samples_are_refused(queries: ArrayLike, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        compare_samples(np.zeros(40), queries)


def test_bad_levels_are_refused() -> None:
    values = np.zeros(40)
    with pytest.raises(InvalidInputError, match="'level'"):
        compare_samples(values, values, level=1.0)
    with pytest.raises(InvalidInputError, match="'smallest_gap'"):
        compare_samples(values, values, smallest_gap=0.0)


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


@pytest.fixture(scope="module")
def gallery() -> MadeGallery:
    return made_gallery(1500)


def compared(gallery: MadeGallery, queries: Neighbors, *, alarm_level: float = 0.01) -> QueryDrift:
    return compare_queries(
        gallery.own,
        scored(gallery.own),
        gallery.codes,
        queries,
        scored(queries),
        alarm_level=alarm_level,
        n_resamples=20,
    )


def test_false_alarms_over_galleries_are_no_more_than_the_level() -> None:
    # New galleries, too: the points of one share neighbours, and its queries share the gallery.
    n_draws, level = 150, 0.1
    alarms = 0
    for seed in range(n_draws):
        gallery = made_gallery(400, seed)
        own = gather_evidence(gallery.own, scored(gallery.own))
        queries, _ = gallery.queries(120, seed)
        found = compare_queries(
            gallery.own,
            scored(gallery.own),
            gallery.codes,
            queries,
            scored(queries),
            alarm_level=level,
            smallest_gap=0.001,
            n_resamples=1,
        )
        assert found.confidence.n_own == len(own)
        alarms += found.alarm
    # Three standard errors above the level.
    assert alarms / n_draws <= level + 3 * np.sqrt(level * (1 - level) / n_draws)


def test_damaged_queries_alarm_and_are_said_to_be_farther_and_less_sure(
    gallery: MadeGallery,
) -> None:
    drift = compared(gallery, gallery.queries(200, seed=1, noise=1.5)[0])
    assert drift.confidence.alarm
    assert drift.distance.alarm
    assert drift.confidence.direction < 0 < drift.distance.direction
    assert drift.accuracy.estimate < drift.accuracy.own_accuracy - 0.1


def test_the_distance_sees_what_the_confidence_does_not(gallery: MadeGallery) -> None:
    drift = compared(gallery, gallery.queries(200, seed=2, offset=0.5)[0])
    assert drift.distance.alarm
    assert not drift.confidence.alarm
    assert drift.alarm


def test_queries_that_are_suspiciously_near_and_sure_alarm_too(gallery: MadeGallery) -> None:
    close = Neighbors(0.1 * gallery.own.sq_distances, gallery.own.labels)
    drift = compare_queries(
        gallery.own, scored(gallery.own), gallery.codes, close, scored(gallery.own), n_resamples=5
    )
    assert drift.alarm
    assert drift.distance.direction < 0


def test_queries_like_the_gallery_raise_no_alarm_and_are_as_accurate(
    gallery: MadeGallery,
) -> None:
    queries, codes = gallery.queries(800, seed=3)
    drift = compared(gallery, queries)
    assert not drift.alarm
    truth = np.mean(scored(queries).labels == codes)
    assert drift.accuracy.thresholded.estimate == pytest.approx(truth, abs=0.05)


def test_each_test_has_half_of_the_level(gallery: MadeGallery) -> None:
    drift = compared(gallery, gallery.queries(100, seed=4)[0], alarm_level=0.04)
    assert drift.confidence.level == drift.distance.level == 0.02


def test_names_of_classes_do_not_matter(gallery: MadeGallery) -> None:
    queries, _ = gallery.queries(100, seed=5, noise=1.0)
    renamed = np.random.default_rng(0).permutation(gallery.codes.max() + 1)

    def other(neighbors: Neighbors) -> Neighbors:
        return Neighbors(neighbors.sq_distances, renamed[neighbors.labels])

    own, theirs = other(gallery.own), other(queries)
    again = compare_queries(
        own, scored(own), renamed[gallery.codes], theirs, scored(theirs), n_resamples=20
    )
    assert again == compared(gallery, queries)


def test_evidence_of_points_without_neighbours() -> None:
    neighbors = Neighbors([[1.0, 4.0], [0.0, 0.0]], [[0, 0], [0, 0]], counts=[2, 0])
    evidence = gather_evidence(neighbors, scored(neighbors, "knn"))
    assert evidence.confidence.tolist() == [1.0, 0.0]
    assert evidence.certainty.tolist() == [0.0, -np.inf]
    assert evidence.distance.tolist() == [1.0, np.inf]


def test_the_text_says_what_was_found(gallery: MadeGallery) -> None:
    drift = compared(gallery, gallery.queries(200, seed=6, noise=2.0)[0])
    text = drift.to_text()
    assert text.startswith("200 queries compared with 1500 gallery points: ALARM")
    for part in (
        "confidence          lower",
        "distance            farther",
        f"estimated accuracy  {100 * drift.accuracy.estimate:.1f}%",
        f"gallery points {100 * drift.accuracy.own_accuracy:.1f}%",
        "An estimate, not a measurement",
    ):
        assert part in text
    calm = compared(gallery, gallery.queries(200, seed=7)[0])
    assert "no alarm below a gap of 0.1" in calm.to_text()
    assert calm.to_text().splitlines()[0].endswith("no alarm")


def test_another_k_is_refused_with_the_remedy(gallery: MadeGallery) -> None:
    queries = gallery.queries(50, seed=8)[0].first(5)
    with pytest.raises(InvalidInputError, match=rf"k = {K} and 5 instead: cut both with first\(5"):
        compared(gallery, queries)


def test_too_few_queries_are_refused(gallery: MadeGallery) -> None:
    with pytest.raises(InvalidInputError, match=r"at least 30.*\(7,\)"):
        compared(gallery, gallery.queries(7, seed=9)[0])


def test_codes_and_posteriors_must_be_of_these_points(gallery: MadeGallery) -> None:
    own, posterior = gallery.own, scored(gallery.own)
    queries, _ = gallery.queries(50, seed=10)
    theirs = scored(queries)
    with pytest.raises(InvalidInputError, match=r"'own_codes'.*1500"):
        compare_queries(own, posterior, gallery.codes[1:], queries, theirs)
    with pytest.raises(InvalidInputError, match="Got 50 and 1500 points"):
        compare_queries(own, posterior, gallery.codes, queries, posterior)
    with pytest.raises(InvalidInputError, match="same order"):
        compare_queries(own, posterior, gallery.codes, queries, theirs.take(np.arange(50)[::-1]))
    with pytest.raises(InvalidInputError, match="alarm_level"):
        compared(gallery, queries, alarm_level=0.0)
    with pytest.raises(InvalidInputError, match=r"\(3,\), \(2,\) and \(3,\)"):
        Evidence(np.ones(3), np.ones(2), np.ones(3))


# Noise takes digits far from the gallery long before it makes them wrong.


SEED = 0


@cache
def fitted(rule: RuleChoice) -> tuple[NEDClassifier, AnyArray, AnyArray]:
    digits, labels = load_digits(return_X_y=True)
    gallery, queries, gallery_labels, query_labels = train_test_split(
        digits, labels, test_size=0.5, random_state=SEED, stratify=labels
    )
    return NEDClassifier(rule=rule).fit(gallery, gallery_labels), queries, query_labels


def compare_noisy_digits(rule: str, noise: float) -> tuple[QueryDrift, float]:
    """What is said of noisy queries, and their true accuracy."""
    classifier, queries, labels = fitted(rule)
    noisy = queries + noise * np.random.default_rng(SEED).normal(size=queries.shape)
    truth = float((classifier.predict(noisy) == labels).mean())
    return classifier.compare_queries(noisy), truth


@pytest.mark.parametrize("noise", [0.0, 1.0, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("rule", ["auto", "ned", "knn", "gou"])
def test_the_estimate_is_near_the_truth_however_far_the_queries(rule: str, noise: float) -> None:
    drift, truth = compare_noisy_digits(rule, noise)
    assert drift.accuracy.estimate == pytest.approx(truth, abs=0.1)


def test_nearly_all_of_these_queries_are_farther_than_the_gallery_and_right() -> None:
    drift, truth = compare_noisy_digits("auto", 4.0)
    assert truth > 0.95
    assert drift.distance.direction > 0.9
    assert drift.alarm


@pytest.mark.parametrize("rule", ["ned", "knn", "gou"])
def test_more_noise_leaves_the_estimate_of_the_plain_rules_near_the_truth(rule: str) -> None:
    drift, truth = compare_noisy_digits(rule, 6.0)
    assert drift.accuracy.estimate == pytest.approx(truth, abs=0.1)


def test_what_it_gets_wrong_answers_that_are_right_though_hardly_sure() -> None:
    # The query's own scale makes the default rule ever less sure, sooner than it is wrong.
    drift, truth = compare_noisy_digits("auto", 6.0)
    assert truth > 0.85
    assert truth - 0.3 < drift.accuracy.estimate < truth - 0.1


def test_a_head_may_answer_with_a_class_of_no_neighbour() -> None:
    alone = Neighbors([[1.0, 4.0]], [[0, 1]])
    answer = Posterior(np.array([0, 2]), np.array([2, 0]), np.array([0.7, 0.3]), 3)
    with pytest.raises(InvalidInputError, match="no neighbour of it"):
        gather_evidence(alone, answer)
    scores = ClassScores(np.array([[2]]), np.zeros((1, 1)), np.zeros(1), np.zeros(1), 3)
    assert gather_evidence(alone.with_scores(scores), answer).confidence.tolist() == [0.7]
