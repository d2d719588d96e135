"""Thresholds, sets, audits and drift of a fitted classifier: promises kept, nonsense refused."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier
from nearsure.arrays import FloatArray, IntArray
from nearsure.classifier.parameters import RuleChoice
from nearsure.decisions import ScoreName, choose_threshold, fit_conformal
from nearsure.errors import InvalidInputError, ManyMissesWarning

N_CLASSES = 6
CENTRES = 2.4 * np.random.default_rng(7).normal(size=(N_CLASSES, 3))
N_DRAWS = 20
ALPHA = 0.1
Z, Y = drawn(200)
Q = drawn(120, seed=2)[0]


def points(rng: np.random.Generator, n: int) -> tuple[FloatArray, IntArray]:
    labels = rng.integers(0, N_CLASSES, n)
    return CENTRES[labels] + rng.normal(size=(n, 3)), labels


def true_posterior(queries: FloatArray) -> FloatArray:
    """p(class | query), in closed form, so that no chance in the queries' labels blurs a rate."""
    log_density = -np.square(queries[:, None] - CENTRES).sum(axis=2) / 2
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return np.asarray(density / density.sum(axis=1, keepdims=True))


@pytest.fixture(scope="module")
def draws() -> list[tuple[NEDClassifier, FloatArray]]:
    made = []
    for seed in range(N_DRAWS):
        rng = np.random.default_rng(seed)
        made.append((NEDClassifier().fit(*points(rng, 250)), points(rng, 1000)[0]))
    return made


@pytest.fixture(scope="module")
def fitted() -> NEDClassifier:
    return NEDClassifier().fit(Z, Y)


class TestPromisesOverRepeatedDraws:
    @pytest.mark.parametrize(("target", "certainty"), [(0.92, 0.9), (0.95, 0.7)])
    def test_precision(
        self,
        draws: list[tuple[NEDClassifier, FloatArray]],
        target: float,
        certainty: float,
    ) -> None:
        """Broken no more often than it may be: by chance alone, once in a thousand."""
        broken = reached = 0
        for classifier, queries in draws:
            threshold = classifier.accept_threshold(precision=target, certainty=certainty)
            prediction = classifier.predict_with_confidence(queries)
            accepted = threshold.accepts(prediction.confidence)
            if accepted.any():
                right = true_posterior(queries)[np.arange(len(queries)), prediction.labels]
                reached += 1
                broken += int(right[accepted].mean() < target)
        assert reached > N_DRAWS / 2  # a threshold that accepts nothing would prove nothing
        assert broken <= binom.ppf(0.999, N_DRAWS, 1 - certainty)

    @pytest.mark.parametrize("score", ["aps", "lac"])
    def test_sets_hold_the_true_class(
        self, draws: list[tuple[NEDClassifier, FloatArray]], score: ScoreName
    ) -> None:
        coverage, sizes = [], []
        for classifier, queries in draws:
            sets = classifier.predict_set(queries, ALPHA, score)
            truth = true_posterior(queries)
            coverage.append((sets.to_csr().toarray() * truth).sum(axis=1).mean())
            sizes.append(sets.sizes.mean())
        # Near 1 - alpha, as is promised: leave-one-out has no guarantee.
        assert 1 - ALPHA - 0.02 < np.mean(coverage) < 1 - ALPHA + 0.03
        assert np.mean(sizes) < 2

    def test_the_mean_confidence_is_the_accuracy(
        self, draws: list[tuple[NEDClassifier, FloatArray]]
    ) -> None:
        """Within 3.5 standard errors over the draws, which are below a percent."""
        gaps = []
        for classifier, queries in draws:
            prediction = classifier.predict_with_confidence(queries)
            earned = true_posterior(queries)[np.arange(len(queries)), prediction.labels]
            gaps.append(prediction.confidence.mean() - earned.mean())
        error = np.std(gaps, ddof=1) / np.sqrt(N_DRAWS)
        assert error < 0.01
        assert abs(np.mean(gaps)) < 3.5 * error


class TestAcceptThreshold:
    def test_it_is_chosen_on_the_leave_one_out_scores(self, fitted: NEDClassifier) -> None:
        posterior = fitted.leave_one_out_posterior()
        expected = choose_threshold(
            posterior.confidence, posterior.labels == Y, precision=0.8, certainty=0.9
        )
        chosen = fitted.accept_threshold(precision=0.8, certainty=0.9)
        assert chosen == replace(expected, rests_on="points left out alone")
        assert fitted.accept_threshold(error=0.2, certainty=0.9).threshold == expected.threshold
        assert expected.reached

    def test_it_says_so_in_a_sentence(self, fitted: NEDClassifier) -> None:
        said = str(fitted.accept_threshold(precision=0.8))
        assert said.startswith("Accept at confidence >= 0.")
        assert "at least 80% right, with 95% certainty, for queries like the gallery" in said
        refused = fitted.accept_threshold(precision=0.9999)
        assert not refused.reached
        assert str(refused).startswith("No threshold on the confidence can promise at least 99.99%")
        assert not refused.accepts(fitted.predict_with_confidence(Q).confidence).any()

    def test_a_lower_false_accept_rate_accepts_less(self, fitted: NEDClassifier) -> None:
        lax, strict = (fitted.accept_threshold(false_accept_rate=rate) for rate in (0.7, 0.4))
        assert lax.threshold < strict.threshold
        assert lax.coverage > strict.coverage > 0

    @pytest.mark.parametrize(
        ("targets", "message"),
        [
            ({}, "Exactly one of .* Got none"),
            ({"precision": 0.9, "error": 0.1}, "Exactly one of .* Got precision and error"),
            ({"precision": 1.0}, "'precision' parameter must lie strictly between 0 and 1"),
            ({"precision": 0.0}, "'precision' parameter must lie strictly between 0 and 1"),
            ({"error": 0.0}, "'error' parameter must lie strictly between 0 and 1"),
            ({"error": 1}, "'error' parameter must lie strictly between 0 and 1"),
            ({"precision": 95}, "precision"),
            ({"precision": np.nan}, "precision"),
            ({"precision": 0.9, "certainty": 1.0}, "certainty"),
            ({"precision": 0.9, "certainty": 0.0}, "certainty"),
        ],
    )
    def test_targets_that_nobody_can_promise_are_refused(
        self, fitted: NEDClassifier, targets: dict[str, float], message: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=message):
            fitted.accept_threshold(**targets)

    def test_it_is_that_of_the_gallery_of_now(self) -> None:
        living = NEDClassifier().fit(Z, Y)
        before = living.accept_threshold(precision=0.8)
        living.relabel(np.arange(0, 200, 12), (Y[::12] + 1) % 3)
        after = living.accept_threshold(precision=0.8)
        assert after.n_wrong > before.n_wrong
        assert after.n_points == before.n_points == 200


class TestPredictSet:
    def test_it_is_conformal_on_the_leave_one_out_posterior(self, fitted: NEDClassifier) -> None:
        fit = fit_conformal(fitted.leave_one_out_posterior(), Y, alpha=0.2, score="lac")
        assert fitted.conformal_fit(0.2, "lac") == fit

    def test_smaller_alpha_means_larger_sets(self, fitted: NEDClassifier) -> None:
        sizes = [fitted.predict_set(Q, alpha).sizes for alpha in (0.3, 0.1, 0.02)]
        assert (sizes[0] <= sizes[1]).all()
        assert (sizes[1] <= sizes[2]).all()
        assert sizes[0].sum() < sizes[2].sum()
        assert (sizes[0] >= 1).all()

    def test_the_label_is_in_its_set(self, fitted: NEDClassifier) -> None:
        sets = fitted.predict_set(Q)
        assert sets.contains(fitted.predict(Q)).all()

    @pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 5, np.nan])
    def test_alpha_outside_is_refused(self, fitted: NEDClassifier, alpha: float) -> None:
        with pytest.raises(InvalidInputError, match="alpha"):
            fitted.predict_set(Q, alpha=alpha)

    def test_another_score_is_refused(self, fitted: NEDClassifier) -> None:
        with pytest.raises(InvalidInputError, match="score"):
            fitted.predict_set(Q, score="raps")  # type: ignore[arg-type]


class TestAudit:
    @pytest.mark.parametrize("rule", ["auto", "ned", "knn"])
    def test_planted_flips_are_the_first_suspects(self, rule: RuleChoice) -> None:
        points_, labels = drawn(300, spread=2.0)
        flipped = np.arange(5, 300, 30)
        wrong = labels.copy()
        wrong[flipped] = (labels[flipped] + 1) % 3
        found = NEDClassifier(rule=rule).fit(points_, wrong).audit().suspects
        assert len(set(found.ids[:10].tolist()) & set(flipped.tolist())) >= 9

    def test_its_ids_are_the_gallerys(self) -> None:
        points_, labels = drawn(300, spread=2.0)
        living = NEDClassifier().fit(points_, labels)
        living.remove(np.arange(0, 20))
        new = living.add(points_[50:52] + 1e-3, (labels[50:52] + 1) % 3)
        report = living.audit()
        assert set(new.tolist()) <= set(report.suspects.ids[:8].tolist())
        assert report.n_points == 282
        pairs = {frozenset(pair) for pair in report.duplicates.ids.tolist()}
        assert {frozenset((50, 300)), frozenset((51, 301))} <= pairs


class TestCompareQueries:
    def test_queries_of_the_same_kind_raise_no_alarm(self, fitted: NEDClassifier) -> None:
        report = fitted.compare_queries(drawn(300, seed=21)[0])
        assert not report.alarm
        truth = drawn(300, seed=21)[1]
        accuracy = (fitted.predict(drawn(300, seed=21)[0]) == truth).mean()
        assert report.accuracy.estimate == pytest.approx(accuracy, abs=0.08)

    @pytest.mark.parametrize("shift", [4.0, 1000.0])
    def test_shifted_queries_raise_one(self, fitted: NEDClassifier, shift: float) -> None:
        report = fitted.compare_queries(drawn(300, seed=21)[0] + shift)
        assert report.alarm
        assert report.distance.alarm

    def test_all_neighbours(self) -> None:
        """Queries have one neighbour more than points that leave themselves out."""
        fitted = NEDClassifier("all").fit(Z, Y)
        assert not fitted.compare_queries(drawn(300, seed=21)[0]).alarm


class TestAdaptToQueries:
    def test_without_unknown_share_it_says_what_to_do(self, fitted: NEDClassifier) -> None:
        with pytest.raises(InvalidInputError, match=r"Give unknown_share .* and fit again"):
            fitted.adapt_to_queries(Q)

    def test_a_given_share_is_used(self) -> None:
        fitted = NEDClassifier(unknown_share=0.1).fit(Z, Y)
        before = fitted.predict_with_confidence(Q).p_known
        assert fitted.adapt_to_queries(Q, unknown_share=0.6) is None
        after = fitted.predict_with_confidence(Q).p_known
        assert before is not None
        assert after is not None
        assert (after < before).all()

    def test_an_estimate_is_returned_and_used(self) -> None:
        fitted = NEDClassifier(unknown_share=0.5).fit(Z, Y)
        far = np.random.default_rng(0).normal(size=(100, 4)) + 40
        queries = np.concatenate([drawn(300, seed=21)[0], far])
        estimate = fitted.adapt_to_queries(queries)
        assert estimate is not None
        assert estimate.share == pytest.approx(0.25, abs=0.08)
        p_known = fitted.predict_with_confidence(queries).p_known
        assert p_known is not None
        assert p_known.mean() == pytest.approx(1 - estimate.share, abs=0.03)

    @pytest.mark.parametrize("share", [1.0, -0.1, 50])
    def test_a_share_outside_is_refused_and_changes_nothing(self, share: float) -> None:
        fitted = NEDClassifier(unknown_share=0.1).fit(Z, Y)
        with pytest.raises(InvalidInputError, match="unknown_share"):
            fitted.adapt_to_queries(Q, unknown_share=share)
        assert_same_answers(fitted, NEDClassifier(unknown_share=0.1).fit(Z, Y), Q)

    def test_a_gallery_of_one_class_cannot_imitate_unknowns(self) -> None:
        with pytest.raises(InvalidInputError, match="gallery must have at least two classes"):
            NEDClassifier(unknown_share=0.1).fit(Z, np.zeros(200, np.int64))


@pytest.mark.parametrize(
    "method", ["accept_threshold", "audit", "conformal_fit", "predict_set", "compare_queries"]
)
def test_unfitted(method: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "conformal_fit": (0.1,),
        "predict_set": (Q,),
        "compare_queries": (Q,),
    }
    options = {"precision": 0.9} if method == "accept_threshold" else {}
    with pytest.raises(ValueError, match="not fitted yet"):
        getattr(NEDClassifier(), method)(*arguments.get(method, ()), **options)


def test_sets_are_searched_deeper_before_they_hold_every_class() -> None:
    """Twenty classes that overlap; among two neighbours, most points miss their class."""
    rng = np.random.default_rng(0)
    means, codes = rng.normal(size=(20, 3)), np.repeat(np.arange(20), 30)
    vectors = means[codes] + rng.normal(scale=0.7, size=(600, 3))
    queries = means[codes] + rng.normal(scale=0.7, size=(600, 3))
    with pytest.warns(ManyMissesWarning):
        classifier = NEDClassifier(n_neighbors=2, head=None).fit(vectors, codes)
    own = classifier.leave_one_out_posterior()
    assert fit_conformal(own, codes, alpha=0.1).everything
    fit = classifier.conformal_fit(0.1)
    assert not fit.everything
    assert fit.n_neighbors in {32, 128, 512}
    assert f"Searched {fit.n_neighbors} neighbours deep." in str(fit)
    sets = classifier.predict_set(queries, 0.1)
    assert sets.contains(codes).mean() > 0.87
    assert sets.sizes.mean() < 16
    # An alpha that the usual neighbours serve is not searched for.
    assert classifier.conformal_fit(0.7).n_neighbors is None


def test_sets_that_no_depth_can_narrow_say_how_deep_was_searched() -> None:
    """The only member of a class misses it at any depth."""
    vectors = np.random.default_rng(0).normal(size=(40, 2))
    codes = np.concatenate([np.arange(20), np.repeat([20, 21], 10)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = NEDClassifier(n_neighbors=5).fit(vectors, codes).conformal_fit(0.1)
    assert fit.everything
    assert fit.n_neighbors == 39
    assert str(fit).endswith("Searched 39 neighbours deep.")
