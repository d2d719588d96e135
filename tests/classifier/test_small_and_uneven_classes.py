"""Classes of two or three, classes of different sizes, and what must hold for them all the same."""

import numpy as np
import pytest
from scipy.stats import binom

from nearsure import NEDClassifier
from nearsure.arrays import FloatArray, IntArray

pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.FitWarning")


def drawn(
    rng: np.random.Generator, centres: FloatArray, sizes: IntArray, spread: float = 1.0
) -> tuple[FloatArray, IntArray]:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return centres[labels] + spread * rng.normal(size=(len(labels), centres.shape[1])), labels


@pytest.mark.parametrize(("members", "precision"), [(2, 0.7), (3, 0.6)])
def test_a_promise_holds_for_classes_of_few_members(members: int, precision: float) -> None:
    """Scored with the factor that knows the true class, most of these promises were broken."""
    n_galleries, certainty = 20, 0.9
    broken = 0
    for seed in range(n_galleries):
        rng = np.random.default_rng([members, seed])
        centres = 2.0 * rng.normal(size=(250, 8))
        gallery, labels = drawn(rng, centres, np.full(250, members))
        queries, truth = drawn(rng, centres, np.full(250, 8))
        classifier = NEDClassifier().fit(gallery, labels)
        accept = classifier.accept_threshold(precision=precision, certainty=certainty)
        prediction = classifier.predict_with_confidence(queries)
        accepted = accept.accepts(prediction.confidence)
        if accepted.any():
            broken += bool((prediction.labels == truth)[accepted].mean() < precision)
    assert broken <= binom.ppf(0.99, n_galleries, 1 - certainty)


def test_promises_keep_to_the_prior() -> None:
    """A gallery of 90, 5 and 5%, queries of all classes alike."""
    n_galleries, broken, covered = 12, 0, []
    for seed in range(n_galleries):
        rng = np.random.default_rng(seed)
        centres = 1.6 * np.eye(3)
        gallery, labels = drawn(rng, centres, np.array([1800, 100, 100]))
        queries, truth = drawn(rng, centres, np.full(3, 1000))
        classifier = NEDClassifier(prior="uniform").fit(gallery, labels)
        prediction = classifier.predict_with_confidence(queries)
        accept = classifier.accept_threshold(precision=0.85, certainty=0.9)
        accepted = accept.accepts(prediction.confidence)
        if accepted.any():
            broken += bool((prediction.labels == truth)[accepted].mean() < 0.85)
        sets = classifier.predict_set(queries, alpha=0.1)
        covered.append(sets.contains(classifier.encode(truth)).mean())
    assert broken <= binom.ppf(0.99, n_galleries, 0.1)
    assert np.mean(covered) > 0.88


def test_a_new_class_of_three_is_found_beside_large_ones() -> None:
    """Where the size of a class counted to the power gamma, it hardly ever was."""
    accuracies = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        centres = 3.0 * rng.normal(size=(21, 8))
        gallery, labels = drawn(rng, centres[:20], np.full(20, 30))
        classifier = NEDClassifier().fit(gallery, labels)
        few = centres[20] + rng.normal(size=(3, 8))
        classifier.add(few, np.full(3, 20))
        queries = centres[20] + rng.normal(size=(200, 8))
        accuracies.append((classifier.predict(queries) == 20).mean())
    assert np.mean(accuracies) > 0.9


def test_the_history_of_a_gallery_does_not_change_a_refit() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = drawn(rng, 2.0 * rng.normal(size=(4, 5)), np.full(4, 100))
    straight = NEDClassifier(max_fit_samples=80).fit(vectors, labels)
    changed = NEDClassifier(max_fit_samples=80).fit(vectors, labels)
    changed.relabel([5], [3])
    changed.relabel([5], [0])
    gone = changed.add(vectors[:3] + 1.0, labels[:3])
    changed.remove(np.array([7, 300]))
    changed.add(vectors[[7, 300]], labels[[7, 300]], ids=np.array([7, 300]))
    changed.remove(gone)
    assert changed.refit().temperature_ == straight.refit().temperature_


def test_all_neighbours_are_all_after_an_addition() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = drawn(rng, 2.0 * rng.normal(size=(3, 4)), np.full(3, 20))
    classifier = NEDClassifier(n_neighbors="all", rule="ned").fit(vectors, labels)
    classifier.add(vectors[:5] + 0.1, labels[:5])
    assert classifier.kneighbors(vectors[:2]).k == 65


def test_what_was_learned_of_queries_survives_a_refit() -> None:
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.normal(size=(8, 6))
    gallery, labels = drawn(rng, centres[:6], np.full(6, 40))
    queries, _ = drawn(rng, centres, np.full(8, 60))
    classifier = NEDClassifier(unknown_share=0.05).fit(gallery, labels)
    estimate = classifier.adapt_to_queries(queries)
    assert estimate is not None
    assert estimate.share > 0.1
    before = classifier.predict_with_confidence(queries).p_known
    after = classifier.refit().predict_with_confidence(queries).p_known
    np.testing.assert_allclose(np.asarray(after), np.asarray(before), atol=1e-9)


def test_a_class_in_one_group_plays_no_known_query() -> None:
    """It has no fellow left, and would teach that known queries lie as far as unknown ones."""
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.normal(size=(16, 8))
    gallery, labels = drawn(rng, centres[:12], np.full(12, 20))
    strangers, _ = drawn(rng, centres[12:], np.full(4, 50))
    groups = np.where(labels < 6, labels, 100 + np.arange(len(labels)))
    classifier = NEDClassifier(unknown_share=0.2).fit(gallery, labels, groups=groups)
    verdicts = classifier.predict_with_confidence(strangers).verdicts
    assert (np.asarray(verdicts) == "unknown").mean() > 0.8
