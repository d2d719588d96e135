"""`NEDClassifier.recalibrate`, against simulated truth."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm, t
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.calibration import ShrunkPlatt
from nearsure.classifier.parameters import CalibrationChoice
from nearsure.classifier.promises import expect_of_labels
from nearsure.classifier.recalibration import (
    ASIDE,
    DEGREES,
    LIKE_GALLERY,
    ON_THE_WAY,
    SCALES,
    STEPS,
    UNLIKE_GALLERY,
    choose_rows,
    fit_line,
)
from nearsure.decisions import choose_threshold, fit_conformal
from nearsure.errors import EngineError, InvalidInputError, ModelFileError, QueriesDifferWarning
from nearsure.metrics import expected_calibration_error
from nearsure.model_file import read_model, write_model

# Queries here are drawn otherwise than the gallery.
pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")

GALLERY, LABELS = drawn(300)
QUERIES, TRUTH = drawn(400, seed=1)
# Noise makes the same classes harder than the gallery knows.
SHIFTED = QUERIES + 1.5 * np.random.default_rng(5).normal(size=QUERIES.shape)


def simulated(
    n: int, slope: float, intercept: float, seed: int
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Confidences, whether the answers are right, and the chance of that."""
    rng = np.random.default_rng(seed)
    confidence = expit(1.5 + 2.0 * rng.normal(size=n))
    chance = expit(slope * logit(confidence) + intercept)
    return confidence, rng.random(n) < chance, chance


def error_of(n: int, slope: float, intercept: float, seed: int) -> tuple[float, float]:
    """Mean distance from the true chance, before and after a fit on n labels."""
    confidence, correct, chance = simulated(n + 5000, slope, intercept, seed)
    line, _ = fit_line(confidence[:n], correct[:n])
    asked, true = confidence[n:], chance[n:]
    return float(np.abs(asked - true).mean()), float(np.abs(line(asked) - true).mean())


@pytest.fixture
def classifier() -> NEDClassifier:
    return NEDClassifier().fit(GALLERY, LABELS)


class TestLine:
    @pytest.mark.parametrize(("slope", "intercept"), [(0.5, -0.5), (1.0, -3.0), (2.0, 0.5)])
    def test_a_known_miscalibration_is_recovered(self, slope: float, intercept: float) -> None:
        line, like_gallery = fit_line(*simulated(20_000, slope, intercept, 0)[:2])
        assert line.slope == pytest.approx(slope, abs=0.05)
        assert line.intercept == pytest.approx(intercept, abs=0.08)
        assert like_gallery < 1e-6

    @pytest.mark.parametrize(("slope", "intercept"), [(0.5, -0.5), (1.0, -3.0)])
    def test_a_hundred_labels_mend_most_of_it(self, slope: float, intercept: float) -> None:
        errors = np.array([error_of(100, slope, intercept, seed) for seed in range(20)])
        before, after = errors.mean(axis=0)
        assert before > 0.1
        assert after < 0.05

    def test_the_prior_holds_against_the_noise_of_twenty_labels(self) -> None:
        errors = np.array([error_of(20, 1.0, 0.0, seed)[1] for seed in range(40)])
        # The share of right ones among 20 alone is off by 8 points in the mean.
        assert errors.mean() < 0.03

    @pytest.mark.parametrize("rehearsed", [(), (ShrunkPlatt(0.5, -0.8), ShrunkPlatt(0.3, 0.2))])
    def test_line_is_the_mean_over_all_lines(self, rehearsed: tuple[ShrunkPlatt, ...]) -> None:
        confidence, correct, _ = simulated(40, 0.6, -0.5, 3)
        intercepts, log_slopes = (
            each.ravel()
            for each in np.meshgrid(np.linspace(-6, 6, 601), np.linspace(-2.7, 2.7, 301))
        )
        density = t.pdf(intercepts, DEGREES, scale=SCALES[0])
        density *= t.pdf(log_slopes, DEGREES, scale=SCALES[1])
        if rehearsed:
            ways = [
                norm.pdf(intercepts, step * line.intercept, ASIDE)
                * norm.pdf(log_slopes, step * np.log(line.slope), ASIDE)
                for line in rehearsed
                for step in STEPS
            ]
            density = (1 - ON_THE_WAY) * density + ON_THE_WAY * np.mean(ways, axis=0)
        likelihood, own = np.ones(len(intercepts)), 0.3
        for one, right in zip(confidence, correct, strict=True):
            chance = expit(np.exp(log_slopes) * logit(one) + intercepts)
            likelihood *= chance if right else 1 - chance
            own *= one if right else 1 - one
        weights = 0.7 * density * likelihood * (12 / 600) * (5.4 / 300)
        total = own + weights.sum()
        line, like_gallery = fit_line(confidence, correct, like_gallery=0.3, rehearsed=rehearsed)
        assert like_gallery == pytest.approx(own / total, rel=0.01)
        assert line.intercept == pytest.approx(weights @ intercepts / total, abs=0.005)
        assert line.slope == pytest.approx((own + weights @ np.exp(log_slopes)) / total, abs=0.005)

    def test_own_points_that_foresee_the_change_spare_labels(self) -> None:
        foreseen = ShrunkPlatt(0.3, -1.0)
        errors = []
        for seed in range(30):
            confidence, correct, chance = simulated(50 + 5000, 0.55, -0.5, seed)
            lines = (
                fit_line(confidence[:50], correct[:50], like_gallery=0.3, rehearsed=rehearsed)[0]
                for rehearsed in ((), (foreseen,))
            )
            errors.append([np.abs(line(confidence) - chance).mean() for line in lines])
        without, with_own = np.mean(errors, axis=0)
        assert with_own < 0.85 * without

    def test_own_points_that_are_wrong_are_outvoted(self) -> None:
        confidence, correct, _ = simulated(2000, 1.5, 0.5, 0)
        line, _ = fit_line(confidence, correct, rehearsed=[ShrunkPlatt(0.2, -2.0)])
        plain, _ = fit_line(confidence, correct)
        assert line.slope == pytest.approx(plain.slope, abs=0.03)
        assert line.intercept == pytest.approx(plain.intercept, abs=0.03)

    def test_labels_like_the_gallery_raise_its_odds(self) -> None:
        odds = [fit_line(*simulated(200, 1.0, 0.0, seed)[:2])[1] for seed in range(20)]
        assert np.mean(odds) > 0.5

    def test_answers_keep_their_order_even_if_the_surer_are_the_worse(self) -> None:
        confidence, correct, _ = simulated(500, -2.0, 0.0, 0)
        line, _ = fit_line(confidence, correct)
        assert line.slope > 0

    @pytest.mark.parametrize("correct", [True, False])
    def test_labels_all_right_or_all_wrong_do_not_make_it_certain(self, correct: bool) -> None:  # noqa: FBT001
        line, _ = fit_line(np.full(20, 0.8), np.full(20, correct))
        assert 0.05 < float(line([0.8])[0]) < 0.99

    def test_answers_that_occur_twice_and_count_half_are_the_same_answers(self) -> None:
        confidence, correct, _ = simulated(80, 0.6, -0.5, 3)
        once, odds = fit_line(confidence, correct)
        twice = np.tile(np.arange(80), 2)
        line, odds_of_both = fit_line(confidence[twice], correct[twice], np.full(160, 0.5))
        assert (line.slope, line.intercept) == pytest.approx((once.slope, once.intercept), abs=1e-4)
        assert odds_of_both == pytest.approx(odds, abs=1e-4)
        uncounted, _ = fit_line(confidence[twice], correct[twice])
        assert abs(uncounted.slope - once.slope) > 0.01


class TestChoice:
    def test_every_row_is_as_likely(self) -> None:
        rng = np.random.default_rng(0)
        confidence, codes = rng.random(47), rng.integers(0, 3, 47)
        chosen = np.zeros(47)
        for seed in range(4000):
            chosen[choose_rows(confidence, codes, 10, np.random.default_rng(seed))] += 1
        # Four standard errors.
        assert np.abs(chosen / 4000 - 10 / 47).max() < 4 * np.sqrt(10 / 47 * 37 / 47 / 4000)

    def test_rows_are_spread_over_the_confidence(self) -> None:
        confidence = np.random.default_rng(0).permutation(1000) / 1000
        rows = choose_rows(confidence, np.zeros(1000, np.int64), 100, np.random.default_rng(0))
        assert np.abs(np.sort(confidence[rows]) - (np.arange(100) + 0.5) / 100).max() <= 0.01

    def test_rows_are_spread_over_the_classes(self) -> None:
        codes = np.arange(1000) % 5
        rows = choose_rows(np.full(1000, 0.7), codes, 20, np.random.default_rng(0))
        assert np.bincount(codes[rows], minlength=5).min() >= 1
        assert len(set(rows.tolist())) == 20

    def test_promises_from_chosen_rows_are_kept(self) -> None:
        broken = made = 0
        for seed in range(200):
            confidence, correct, chance = simulated(2000, 0.8, -0.5, seed)
            codes = np.zeros(2000, np.int64)
            rows = choose_rows(confidence, codes, 100, np.random.default_rng(seed))
            accept = choose_threshold(confidence[rows], correct[rows], precision=0.75)
            if accept.reached:
                made += 1
                broken += chance[accept.accepts(confidence)].mean() < 0.75
        assert made > 100
        assert broken <= 0.05 * made + 2 * np.sqrt(0.05 * made)

    def test_the_same_seed_chooses_the_same(self, classifier: NEDClassifier) -> None:
        first = classifier.choose_queries_to_label(QUERIES, seed=3)
        assert first.tolist() == classifier.choose_queries_to_label(QUERIES, seed=3).tolist()
        assert len(first) == 20

    def test_more_than_there_are_is_refused(self, classifier: NEDClassifier) -> None:
        with pytest.raises(InvalidInputError, match="at most the number of queries, 10"):
            classifier.choose_queries_to_label(QUERIES[:10], 11)


def error(classifier: NEDClassifier, queries: AnyArray) -> float:
    prediction = classifier.predict_with_confidence(queries)
    return expected_calibration_error(prediction.confidence, prediction.labels == TRUTH[200:])


class TestClassifier:
    def test_shifted_queries_are_calibrated_and_labels_stay(
        self, classifier: NEDClassifier
    ) -> None:
        before, labels = error(classifier, SHIFTED[200:]), classifier.predict(SHIFTED[200:])
        assert classifier.recalibrated_ is None
        found = classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        assert error(classifier, SHIFTED[200:]) < before - 0.02
        assert (classifier.predict(SHIFTED[200:]) == labels).all()
        assert classifier.recalibrated_ is found
        assert found.mean_after < found.mean_before
        assert found.n_right == (classifier.predict(SHIFTED[:200]) == TRUTH[:200]).sum()
        assert "200 labelled queries" in str(found)

    def test_thresholds_rest_on_the_labelled_queries(self, classifier: NEDClassifier) -> None:
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        prediction = classifier.predict_with_confidence(SHIFTED[:200])
        correct = prediction.labels == TRUTH[:200]
        accept = classifier.accept_threshold(precision=0.6)
        expected = choose_threshold(prediction.confidence, correct, precision=0.6)
        assert (accept.threshold, accept.n_points) == (expected.threshold, 200)
        assert accept.reached
        assert accept.rests_on == "labelled queries"
        assert "certainty, for queries like those labelled (measured" in str(accept)
        assert str(accept).endswith(", from 200 labelled queries).")
        unreached = str(classifier.accept_threshold(precision=0.999))
        assert "from 200 labelled queries of which" in unreached
        assert ", for queries like those labelled: add labelled queries, or" in unreached

    def test_promise_from_labels_is_for_queries_like_those_labelled(
        self, classifier: NEDClassifier, tmp_path: Path
    ) -> None:
        without_labels = classifier.accept_threshold(precision=0.7, queries=SHIFTED[200:])
        assert without_labels.state != "holds"
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        plain = classifier.accept_threshold(precision=0.7)
        assert plain.condition == "for queries like those labelled"
        classifier.save(tmp_path / "model")
        for own in (classifier, NEDClassifier.load(tmp_path / "model")):
            for queries in (QUERIES[200:], SHIFTED[200:]):
                assert own.accept_threshold(precision=0.7, queries=queries) == plain
                assert own.predict_with_confidence(queries).differences == ()
            farther = 3.0 * SHIFTED[200:]
            given = own.accept_threshold(precision=0.7, queries=farther)
            assert given.state == "withdrawn"
            assert "farther away, and no labelled query can stand for them" in str(given)
            with pytest.warns(QueriesDifferWarning, match="not like those labelled"):
                own.predict(farther)

    def test_promise_from_labels_stands_where_unknowns_are_expected(self) -> None:
        own = NEDClassifier(unknown_share=0.2).fit(GALLERY, LABELS)
        assert own.accept_threshold(precision=0.7, queries=SHIFTED[200:]).state == "withdrawn"
        own.recalibrate(SHIFTED[:200], TRUTH[:200])
        given = own.accept_threshold(precision=0.7, queries=SHIFTED[200:])
        assert given.state == "holds"
        assert given.threshold == own.accept_threshold(precision=0.7).threshold

    def test_own_points_are_asked_before_the_labels(self, classifier: NEDClassifier) -> None:
        fit, own = classifier._fit, classifier._self_search()
        for queries, expected in ((QUERIES, LIKE_GALLERY), (SHIFTED, UNLIKE_GALLERY)):
            like_gallery, lines = expect_of_labels(fit, own, classifier.kneighbors(queries))
            assert like_gallery == expected
            assert bool(lines) == (expected == UNLIKE_GALLERY)

    def test_queries_are_compared_by_the_gallery_alone(self, classifier: NEDClassifier) -> None:
        before = classifier.compare_queries(SHIFTED[200:])
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        assert classifier.compare_queries(SHIFTED[200:]) == before

    def test_a_second_call_starts_from_the_gallery_again(self, classifier: NEDClassifier) -> None:
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        classifier.recalibrate(QUERIES[:100], TRUTH[:100])
        other = NEDClassifier().fit(GALLERY, LABELS)
        other.recalibrate(QUERIES[:100], TRUTH[:100])
        assert_same_answers(classifier, other, QUERIES[200:])

    def test_the_order_of_queries_does_not_matter(self, classifier: NEDClassifier) -> None:
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        other = NEDClassifier().fit(GALLERY, LABELS)
        other.recalibrate(SHIFTED[:200][::-1], TRUTH[:200][::-1])
        one, two = (own.predict_with_confidence(QUERIES).confidence for own in (classifier, other))
        np.testing.assert_allclose(one, two, atol=1e-5)

    @pytest.mark.parametrize("calibration", ["none", "isotonic", "histogram"])
    def test_it_follows_any_calibrator(self, calibration: CalibrationChoice) -> None:
        own = NEDClassifier(calibration=calibration).fit(GALLERY, LABELS)
        before = error(own, SHIFTED[200:])
        own.recalibrate(SHIFTED[:200], TRUTH[:200])
        assert error(own, SHIFTED[200:]) < before

    @pytest.mark.parametrize("settings", [{}, {"unknown_share": 0.2}, {"engine": "hnsw"}])
    def test_a_model_file_keeps_it(self, tmp_path: Path, settings: dict[str, object]) -> None:
        names = np.array(["owl", "wren", "crow"])
        own = NEDClassifier(**settings).fit(GALLERY, names[LABELS])  # type: ignore[arg-type]
        found = own.recalibrate(SHIFTED[:100], names[TRUTH[:100]])
        own.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        assert_same_answers(loaded, own, QUERIES)
        assert str(loaded.recalibrated_) == str(found)
        assert loaded.accept_threshold(precision=0.6) == own.accept_threshold(precision=0.6)

    def test_a_line_without_its_queries_is_no_model(
        self, classifier: NEDClassifier, tmp_path: Path
    ) -> None:
        classifier.recalibrate(SHIFTED[:100], TRUTH[:100])
        classifier.save(tmp_path / "model")
        manifest, arrays = read_model(tmp_path / "model")
        del manifest["recalibration"]
        kept = {name: own for name, own in arrays.items() if not name.startswith("labelled")}
        write_model(tmp_path / "altered", manifest, kept)
        with pytest.raises(ModelFileError, match="queries were labelled"):
            NEDClassifier.load(tmp_path / "altered")

    def test_a_refit_asks_the_queries_again_and_a_fit_forgets_them(
        self, classifier: NEDClassifier
    ) -> None:
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        classifier.add(*drawn(20, seed=7))
        classifier.refit()
        more, labels = drawn(20, seed=7)
        other = NEDClassifier().fit(np.vstack([GALLERY, more]), np.append(LABELS, labels))
        other.recalibrate(SHIFTED[:200], TRUTH[:200])
        assert_same_answers(classifier, other, QUERIES)
        assert classifier.fit(GALLERY, LABELS).recalibrated_ is None

    def test_a_refit_that_fails_keeps_the_labels_and_the_fit(
        self, classifier: NEDClassifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        before, labelled = copy.deepcopy(classifier), classifier.recalibrated_

        def fail(*_: object, **__: object) -> None:
            raise EngineError("The engine does not answer.")

        classifier.set_params(n_neighbors=7)
        with monkeypatch.context() as patch:
            patch.setattr("nearsure.classifier.estimator.fit_to_labelled", fail)
            with pytest.raises(EngineError):
                classifier.refit()
        assert classifier.recalibrated_ is labelled
        assert_same_answers(classifier, before, QUERIES)

    def test_thresholds_follow_a_gallery_that_changes(self, classifier: NEDClassifier) -> None:
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        classifier.remove(np.arange(20))
        confidence, _ = classifier.rehearsed_scores()
        expected = classifier.predict_with_confidence(SHIFTED[:200]).confidence
        np.testing.assert_array_equal(confidence, expected)

    def test_staleness_is_about_the_gallery(self, classifier: NEDClassifier) -> None:
        before = classifier.staleness()
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        assert classifier.staleness() == before

    def test_unknown_labels_count_as_wrong_where_they_are_expected(self) -> None:
        own = NEDClassifier(unknown_share=0.2).fit(GALLERY, LABELS)
        p_known = own.predict_with_confidence(QUERIES).p_known
        truth = np.where(np.arange(100) < 30, 99, TRUTH[:100])
        own.recalibrate(SHIFTED[:100], truth)
        _, correct = own.rehearsed_scores()
        assert not correct[:30].any()
        np.testing.assert_array_equal(own.predict_with_confidence(QUERIES).p_known, p_known)


class TestSets:
    def test_they_rest_on_labelled_queries_as_held_out_points(
        self, classifier: NEDClassifier
    ) -> None:
        posterior = classifier.predict_posterior(SHIFTED[:200])
        expected = fit_conformal(posterior, TRUTH[:200], alpha=0.1)
        classifier.recalibrate(SHIFTED[:200], TRUTH[:200])
        found = classifier.conformal_fit(0.1)
        assert found == replace(expected, rests_on="labelled queries")
        assert str(found).endswith("from 200 labelled queries.")

    def test_they_hold_the_class_of_shifted_queries(self, classifier: NEDClassifier) -> None:
        covered = []
        own, rng = NEDClassifier().fit(GALLERY, LABELS), np.random.default_rng(0)
        for seed in range(20):
            queries, truth = drawn(300, seed=100 + seed)
            queries = queries + 1.5 * rng.normal(size=queries.shape)
            plain = own.predict_set(queries[100:], 0.1).contains(truth[100:]).mean()
            classifier.recalibrate(queries[:100], truth[:100])
            labelled = classifier.predict_set(queries[100:], 0.1).contains(truth[100:]).mean()
            covered.append([plain, labelled])
        plain, labelled = np.mean(covered, axis=0)
        assert plain < 0.85
        # 4,000 queries, and 20 times 100 labels: a standard error is below 0.01.
        assert 0.88 < labelled < 0.95

    def test_too_few_labels_leave_them_to_the_gallery(self, classifier: NEDClassifier) -> None:
        before = classifier.conformal_fit(0.01)
        classifier.recalibrate(SHIFTED[:98], TRUTH[:98])
        found = classifier.conformal_fit(0.01)
        assert (found.quantile, found.n_points) == (before.quantile, before.n_points)
        assert "300 points of the gallery, as 98 labelled queries are too few" in str(found)
        classifier.recalibrate(SHIFTED[:99], TRUTH[:99])
        assert classifier.conformal_fit(0.01).rests_on == "labelled queries"

    def test_labels_of_unknown_queries_take_no_part(self) -> None:
        own = NEDClassifier(unknown_share=0.2).fit(GALLERY, LABELS)
        truth = np.where(np.arange(100) < 30, 99, TRUTH[:100])
        own.recalibrate(SHIFTED[:100], truth)
        assert own.conformal_fit(0.1).n_points == 70


class TestRefusals:
    @pytest.mark.parametrize(
        ("queries", "labels", "what"),
        [
            (QUERIES[:30], TRUTH[:29], "one label for each of the 30"),
            (QUERIES[:19], TRUTH[:19], "at least 20 labels .* Got 19"),
            (QUERIES[:30], np.where(np.arange(30) < 2, 7, TRUTH[:30]), r"Got \[7\] besides"),
            (QUERIES[:30], TRUTH[:30].astype(str), "of the kind that was fitted"),
            (QUERIES[:30], np.full(30, np.nan), "NaN"),
        ],
    )
    def test_labels(
        self, classifier: NEDClassifier, queries: AnyArray, labels: AnyArray, what: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=what):
            classifier.recalibrate(queries, labels)
        assert classifier.recalibrated_ is None

    def test_vectors_that_hold_nan(self, classifier: NEDClassifier) -> None:
        with pytest.raises(ValueError, match="NaN"):
            classifier.recalibrate(np.full((30, 4), np.nan), TRUTH[:30])
