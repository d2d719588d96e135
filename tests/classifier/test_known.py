"""Queries of no class of the gallery: p(known), verdicts, and rows that sum to it."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier
from nearsure.arrays import FloatArray, IntArray
from nearsure.classifier.parameters import RuleChoice
from nearsure.errors import InvalidInputError, StaleFitWarning, UnknownsNotRecognizedWarning

# Queries here are drawn otherwise than the gallery.
pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")

N_CLASSES, SIZE, DIMENSION, SHARE = 30, 12, 6, 0.25
UNKNOWN = -1


def mixture(seed: int, size: int = SIZE) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """A gallery, and queries of which a quarter is of classes that it does not hold."""
    rng = np.random.default_rng(seed)
    centres = 2.5 * rng.normal(size=(2 * N_CLASSES, DIMENSION))
    labels = np.repeat(np.arange(N_CLASSES), size)
    asked = np.concatenate(
        [rng.integers(0, N_CLASSES, 900), rng.integers(N_CLASSES, 2 * N_CLASSES, 300)]
    )
    gallery, queries = (
        centres[codes] + rng.normal(size=(len(codes), DIMENSION)) for codes in (labels, asked)
    )
    return gallery, labels, queries, np.where(asked < N_CLASSES, asked, UNKNOWN)


GALLERY, LABELS, QUERIES, TRUTH = mixture(0)


@pytest.fixture(scope="module")
def fitted() -> NEDClassifier:
    return NEDClassifier(unknown_share=SHARE).fit(GALLERY, LABELS)


def p_known_of(classifier: NEDClassifier, queries: FloatArray) -> FloatArray:
    p_known = classifier.predict_with_confidence(queries).p_known
    assert p_known is not None
    return p_known


def test_without_a_share_nothing_is_said() -> None:
    prediction = NEDClassifier().fit(GALLERY, LABELS).predict_with_confidence(QUERIES)
    assert prediction.p_known is None
    assert prediction.verdicts is None


def test_known_and_unknown_are_told_apart(fitted: NEDClassifier) -> None:
    prediction = fitted.predict_with_confidence(QUERIES)
    p_known = p_known_of(fitted, QUERIES)
    known = TRUTH != UNKNOWN
    # The chance that a known query scores above an unknown one.
    above = (p_known[known][:, None] > p_known[~known]).mean()
    assert above > 0.85
    assert p_known.mean() == pytest.approx(1 - SHARE, abs=0.05)
    assert prediction.confidence.mean() == pytest.approx(
        (prediction.labels == TRUTH).mean(), abs=0.05
    )


def test_confidence_is_a_product_and_verdicts_follow(fitted: NEDClassifier) -> None:
    prediction = fitted.predict_with_confidence(QUERIES)
    p_known = p_known_of(fitted, QUERIES)
    assert prediction.verdicts is not None
    within = fitted._fit.posterior(fitted.kneighbors(QUERIES))
    np.testing.assert_allclose(prediction.confidence, p_known * within.confidence, rtol=1e-12)
    expected = np.where(
        p_known < 0.5, "unknown", np.where(within.confidence < 0.5, "ambiguous", "known")
    )
    np.testing.assert_array_equal(prediction.verdicts, expected)
    assert {"known", "unknown"} <= set(expected)


def test_rows_sum_to_p_known_and_the_largest_is_the_label(fitted: NEDClassifier) -> None:
    probabilities, prediction = (
        fitted.predict_proba(QUERIES),
        fitted.predict_with_confidence(QUERIES),
    )
    np.testing.assert_allclose(
        probabilities.sum(axis=1), p_known_of(fitted, QUERIES), rtol=1e-8, atol=1e-15
    )
    np.testing.assert_array_equal(probabilities.argmax(axis=1), prediction.labels)
    np.testing.assert_array_equal(probabilities.max(axis=1), prediction.confidence)


@pytest.mark.parametrize("distance", [30.0, 1e3, 1e8])
def test_a_query_far_from_everything_is_unknown_however_sure_the_vote(
    fitted: NEDClassifier, distance: float
) -> None:
    far = GALLERY[:40] + distance
    within = fitted._fit.posterior(fitted.kneighbors(far))
    prediction = fitted.predict_with_confidence(far)
    assert within.confidence.mean() > 0.4  # relative votes are of no use here
    assert (p_known_of(fitted, far) < 0.02).all()
    assert (prediction.confidence < 0.02).all()
    assert set(np.asarray(prediction.verdicts)) == {"unknown"}
    np.testing.assert_allclose(
        fitted.predict_proba(far).sum(axis=1), p_known_of(fitted, far), rtol=1e-8, atol=1e-300
    )


def test_the_share_moves_p_known_by_bayes_rule(fitted: NEDClassifier) -> None:
    other = NEDClassifier(unknown_share=0.6).fit(GALLERY, LABELS)

    def odds(classifier: NEDClassifier) -> FloatArray:
        p_known = p_known_of(classifier, QUERIES)
        return np.asarray(p_known / (1 - p_known))

    usual = (p_known_of(fitted, QUERIES) > 1e-6) & (p_known_of(fitted, QUERIES) < 1 - 1e-6)
    ratio = (odds(fitted) / odds(other))[usual]
    np.testing.assert_allclose(ratio, (0.75 / 0.25) / (0.4 / 0.6), rtol=1e-6)


def test_no_share_at_all_takes_every_query_for_known() -> None:
    none = NEDClassifier(unknown_share=0.0).fit(GALLERY, LABELS)
    assert (p_known_of(none, QUERIES + 1e3) == 1.0).all()
    plain = NEDClassifier().fit(GALLERY, LABELS)
    np.testing.assert_array_equal(none.predict_proba(QUERIES), plain.predict_proba(QUERIES))


@pytest.mark.parametrize("rule", ["ned", "knn", "sharpened"])
@pytest.mark.parametrize("prior", ["support", "uniform"])
def test_any_rule_and_prior(rule: RuleChoice, prior: str) -> None:
    fitted = NEDClassifier(rule=rule, prior=prior, unknown_share=SHARE).fit(GALLERY, LABELS)
    known = TRUTH != UNKNOWN
    p_known = p_known_of(fitted, QUERIES)
    assert (p_known[known][:, None] > p_known[~known]).mean() > 0.85


def test_a_file_keeps_it(fitted: NEDClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = NEDClassifier.load(tmp_path / "model")
    assert_same_answers(loaded, fitted, QUERIES)
    assert loaded.accept_threshold(precision=0.8) == fitted.accept_threshold(precision=0.8)
    adapted = NEDClassifier.load(tmp_path / "model")
    assert adapted.adapt_to_queries(QUERIES) is not None
    adapted.save(tmp_path / "adapted")
    again = NEDClassifier.load(tmp_path / "adapted")
    assert_same_answers(again, adapted, QUERIES)
    assert not np.array_equal(p_known_of(again, QUERIES), p_known_of(fitted, QUERIES))
    assert again.unknown_share == SHARE  # what a refit starts from


class TestAChangedGallery:
    def test_a_class_that_is_added_becomes_known(self) -> None:
        """30 points far away: unknown before, of their class afterwards."""
        living = NEDClassifier(unknown_share=SHARE).fit(GALLERY, LABELS)
        rng = np.random.default_rng(3)
        centre = np.full(DIMENSION, 12.0)
        asked = centre + rng.normal(size=(50, DIMENSION))
        assert (p_known_of(living, asked) < 0.1).all()
        living.add(centre + rng.normal(size=(30, DIMENSION)), np.full(30, 99))
        assert np.median(p_known_of(living, asked)) > 0.8
        assert (living.predict(asked) == 99).all()
        np.testing.assert_allclose(
            living.predict_proba(asked).sum(axis=1), p_known_of(living, asked), rtol=1e-8
        )

    def test_a_class_that_is_removed_becomes_less_known(self) -> None:
        living = NEDClassifier(unknown_share=SHARE).fit(GALLERY, LABELS)
        asked = QUERIES[TRUTH == 3]
        before = p_known_of(living, asked)
        living.remove(np.flatnonzero(LABELS == 3), allow_empty_class=True)
        after = p_known_of(living, asked)
        assert after.mean() < before.mean() - 0.1
        assert 3 not in living.predict(QUERIES)

    def test_points_in_place_of_their_like_change_little(self) -> None:
        """Added points have no measured density, and take that of their class."""
        living = NEDClassifier(unknown_share=SHARE).fit(GALLERY, LABELS)
        before = p_known_of(living, QUERIES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StaleFitWarning)
            for start in range(0, 360, 60):
                rows = np.arange(start, start + 60)
                living.add(GALLERY[rows], LABELS[rows])
                living.remove(rows)
        assert np.abs(p_known_of(living, QUERIES) - before).mean() < 0.05
        assert living.accept_threshold is not None
        living.refit()
        assert np.abs(p_known_of(living, QUERIES) - before).max() < 1e-4

    def test_everything_still_answers(self) -> None:
        living = NEDClassifier(unknown_share=SHARE).fit(GALLERY, LABELS)
        living.add(GALLERY[:10] + 0.1, LABELS[:10])
        living.remove([0, 100, 361])
        living.relabel([5], [7])
        threshold = living.accept_threshold(precision=0.7)
        assert threshold.reached
        assert len(living.predict_set(QUERIES)) == 1200
        assert living.adapt_to_queries(QUERIES) is not None
        assert living.compare_queries(QUERIES).accuracy.n_queries == 1200
        assert 0 < living.staleness().share_changed < 0.1

    def test_one_class_cannot_promise_anything_about_unknowns(self) -> None:
        points, labels = drawn(200)
        living = NEDClassifier(unknown_share=0.2).fit(points, labels)
        with pytest.warns(StaleFitWarning):
            living.remove(np.flatnonzero(labels != 0), allow_empty_class=True)
        with pytest.raises(InvalidInputError, match="two classes"):
            living.accept_threshold(precision=0.9)


def test_the_threshold_counts_unknowns() -> None:
    """Promised on average over galleries, and not kept by one that knows of no unknowns."""
    with_unknowns: list[float] = []
    without: list[float] = []
    for seed in range(1, 5):
        gallery, labels, queries, truth = mixture(seed)
        for share, precisions in ((SHARE, with_unknowns), (None, without)):
            classifier = NEDClassifier(unknown_share=share).fit(gallery, labels)
            prediction = classifier.predict_with_confidence(queries)
            accepted = classifier.accept_threshold(precision=0.85).accepts(prediction.confidence)
            assert accepted.any()
            precisions.append(float((prediction.labels == truth)[accepted].mean()))
    assert np.mean(with_unknowns) >= 0.85
    assert np.mean(without) < 0.8


def test_rehearsed_points_are_no_surer_than_queries() -> None:
    """Classes of three, over six galleries: a fellow less makes known points a little less sure."""
    rehearsed, asked = [], []
    for seed in range(6):
        gallery, labels, queries, truth = mixture(seed, size=3)
        classifier = NEDClassifier(unknown_share=SHARE).fit(gallery, labels)
        rehearsed.append(classifier.rehearsed_scores()[0][: len(labels)].mean())
        known = queries[truth != UNKNOWN]
        asked.append(classifier.predict_with_confidence(known).confidence.mean())
    assert np.mean(asked) - 0.2 < np.mean(rehearsed) < np.mean(asked) + 0.01


def test_a_gallery_that_cannot_recognise_unknowns_says_so_and_gives_no_verdicts() -> None:
    shuffled = np.random.default_rng(0).permutation(LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UnknownsNotRecognizedWarning)
        with pytest.raises(UnknownsNotRecognizedWarning, match="30 classes were left out in turn"):
            NEDClassifier(unknown_share=SHARE).fit(GALLERY, shuffled)
        warnings.simplefilter("ignore")
        classifier = NEDClassifier(unknown_share=SHARE).fit(GALLERY, shuffled)
    prediction = classifier.predict_with_confidence(QUERIES)
    assert prediction.verdicts is None
    assert prediction.p_known is not None
    assert prediction.p_known.mean() == pytest.approx(1 - SHARE, abs=0.1)
    again = NEDClassifier.from_bytes(classifier.to_bytes())
    assert again.predict_with_confidence(QUERIES).verdicts is None


def test_far_queries_are_unknown_where_near_unknowns_are_hard_to_tell() -> None:
    rng = np.random.default_rng(0)
    # Classes overlap so much that one that is left out hardly shows.
    centres = 0.5 * rng.normal(size=(N_CLASSES, 30))
    labels = np.repeat(np.arange(N_CLASSES), SIZE)
    gallery, known = (centres[labels] + rng.normal(size=(len(labels), 30)) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = NEDClassifier(unknown_share=SHARE).fit(gallery, labels)
    far = rng.normal(size=(200, 30))
    far *= 10 / np.linalg.norm(far, axis=1, keepdims=True)
    detector = classifier._fit.known
    assert detector is not None
    near_only = detector.with_model(replace(detector.model, far=None), SHARE)

    def without_far(queries: FloatArray) -> FloatArray:
        found = classifier.kneighbors(queries)
        return near_only.p_known(found, classifier._fit.posterior(found))

    assert p_known_of(classifier, known).mean() == pytest.approx(
        without_far(known).mean(), abs=0.03
    )
    assert without_far(far).mean() > 0.2
    assert p_known_of(classifier, far).mean() < 0.05


class TestBesideLogisticRegression:
    """Classes in 40 dimensions, of which neighbours know little."""

    @staticmethod
    def draw() -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
        rng = np.random.default_rng(0)
        centres = 0.9 * rng.normal(size=(2 * N_CLASSES, 40))
        codes = np.repeat(np.arange(N_CLASSES), 20)
        asked = rng.integers(0, 2 * N_CLASSES, 1200)
        gallery, queries = (
            centres[each] + rng.normal(size=(len(each), 40)) for each in (codes, asked)
        )
        return gallery, codes, queries, asked

    def test_its_largest_logit_is_evidence(self, tmp_path: Path) -> None:
        gallery, codes, queries, asked = self.draw()
        known = asked < N_CLASSES
        areas, last = [], NEDClassifier()
        for head in (None, "logistic"):
            last = NEDClassifier(unknown_share=0.5, head=head).fit(gallery, codes)
            p_known = p_known_of(last, queries)
            areas.append(np.mean(p_known[known][:, None] > p_known[~known]))
            detector = last._fit.known
            assert detector is not None
            assert detector.model.has_logits == (head is not None)
        assert areas[1] > areas[0] + 0.02
        # Its share of a half is right, and known and unknown are believed as they should be.
        assert p_known.mean() == pytest.approx(known.mean(), abs=0.05)
        last.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        assert_same_answers(loaded, last, queries)
        assert loaded.accept_threshold(precision=0.8) == last.accept_threshold(precision=0.8)

    def test_a_class_that_it_has_not_seen_becomes_known(self) -> None:
        gallery, codes, queries, asked = self.draw()
        classifier = NEDClassifier(unknown_share=0.5, head="logistic").fit(gallery, codes)
        new = queries[asked == N_CLASSES]
        come, later = np.array_split(new, [3 * len(new) // 4])
        before = p_known_of(classifier, later).mean()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StaleFitWarning)
            classifier.add(come, np.full(len(come), N_CLASSES))
            after = p_known_of(classifier, later).mean()
        assert before < 0.4
        # As sure as of any class: the head, whose logits are low there, has no say.
        assert after > 0.9

    def test_no_step_away_makes_a_query_known(self) -> None:
        """Along the weights of a class its logit rises without end."""
        gallery, codes, _, _ = self.draw()
        classifier = NEDClassifier(unknown_share=0.5, head="logistic").fit(gallery, codes)
        head = classifier._fit.gallery.head
        assert head is not None
        along = head.full.weights / np.linalg.norm(head.full.weights, axis=1, keepdims=True)
        for length in (30.0, 1e3, 1e6):
            assert (p_known_of(classifier, length * along) < 0.02).all()


def test_queries_with_unknowns_in_the_expected_share_are_like_the_gallery(
    fitted: NEDClassifier,
) -> None:
    alike = fitted.accept_threshold(precision=0.7, queries=QUERIES)
    assert alike.state == "holds"
    assert alike == fitted.accept_threshold(precision=0.7)
    noise = np.random.default_rng(1).normal(size=QUERIES.shape)
    far = fitted.accept_threshold(precision=0.7, queries=QUERIES + noise)
    assert far.state == "withdrawn"
    assert not far.reached
