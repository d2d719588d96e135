"""A fitted rule: other neighbours, priors, calibrators, small and uneven classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.neighbors import NearestNeighbors
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier, Neighbors, fit_confidence, leave_one_out
from nearsure.arrays import FloatArray, IntArray
from nearsure.calibration import CALIBRATORS
from nearsure.classifier import rule as rule_module
from nearsure.classifier.parameters import CalibrationChoice, Prior, RuleChoice
from nearsure.errors import DegenerateTemperatureWarning, InvalidInputError, ManyMissesWarning
from nearsure.forms import FreeParameters
from nearsure.rules import RuleName

K = 20


def made_classes(n: int, seed: int) -> tuple[FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, n)
    centres = np.random.default_rng(99).normal(size=(5, 6))
    return 1.5 * centres[labels] + rng.normal(size=(n, 6)), labels


def found_by_scikit_learn(
    index: NearestNeighbors, vectors: FloatArray, labels: IntArray, k: int
) -> Neighbors:
    distances, ids = index.kneighbors(vectors, k)
    return Neighbors.from_l2(distances, labels[ids], ids=ids)


@pytest.mark.parametrize("rule", ["adaptive", "sharpened", "ned", "gou"])
def test_answers_are_those_of_the_classifier(rule: FreeParameters | RuleName) -> None:
    gallery, labels = made_classes(400, seed=0)
    queries, _ = made_classes(100, seed=1)
    engine = NearestNeighbors().fit(gallery)
    own = leave_one_out(
        found_by_scikit_learn(engine, gallery, labels, K + 1), np.arange(len(labels))
    )
    fitted = fit_confidence(own, labels, rule=rule)
    posterior = fitted.posterior(found_by_scikit_learn(engine, queries, labels, K))
    classifier = NEDClassifier(K, rule=rule, head=None).fit(gallery, labels)
    expected = classifier.predict_posterior(queries)
    np.testing.assert_array_equal(posterior.labels, expected.labels)
    np.testing.assert_allclose(posterior.confidence, expected.confidence, atol=1e-6)


def test_a_sample_needs_the_sizes_of_the_classes() -> None:
    """Counted in a tenth of the points, classes would look small and the correction large."""
    gallery, labels = made_classes(600, seed=2)
    sample = np.random.default_rng(0).choice(600, 60, replace=False)
    engine = NearestNeighbors().fit(gallery)
    found = found_by_scikit_learn(engine, gallery[sample], labels, K + 1)
    own = leave_one_out(found, sample)
    told = fit_confidence(own, labels[sample], class_counts=np.bincount(labels))
    untold = fit_confidence(own, labels[sample])
    assert told.sharpened_fit is not None
    assert untold.sharpened_fit is not None
    assert told.sharpened_fit.form != untold.sharpened_fit.form
    with pytest.raises(InvalidInputError, match="class_counts must count"):
        fit_confidence(own, labels[sample], class_counts=[1, 1, 1, 1, 1])


def test_bad_input() -> None:
    own = Neighbors([[0.0, 1.0]], [[0, 1]])
    with pytest.raises(InvalidInputError, match="one class code for each of the 1 points"):
        fit_confidence(own, [0, 1])
    with pytest.raises(InvalidInputError, match="rule must be one of"):
        fit_confidence(own, [0], rule="auto")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="calibration must be one of"):
        fit_confidence(own, [0], calibration="magic")  # type: ignore[arg-type]


Z, Y = drawn(240)
Q, TRUTH = drawn(400, seed=2)
NAMES = np.array(["ant", "bee", "cow"])


def uneven(seed: int) -> tuple[FloatArray, IntArray]:
    """120 of class 0, 40 of 1 and 20 of 2."""
    points, labels = drawn(900, seed=seed)
    chosen = np.concatenate([np.flatnonzero(labels == c)[:n] for c, n in enumerate((120, 40, 20))])
    return points[chosen], labels[chosen]


class TestPrior:
    @pytest.mark.parametrize("rule", ["ned", "knn"])
    def test_it_is_bayes_rule(self, rule: RuleChoice) -> None:
        points, labels = uneven(0)
        prior = np.array([0.2, 0.5, 0.3])
        plain = NEDClassifier(rule=rule).fit(points, labels).predict_proba(Q)
        fitted = NEDClassifier(rule=rule, prior=prior).fit(points, labels)
        expected = plain * prior / np.bincount(labels)
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(fitted.predict_proba(Q), expected, atol=1e-12)
        best = expected.argmax(axis=1)
        clear = np.sort(expected, axis=1)[:, -1] - np.sort(expected, axis=1)[:, -2] > 1e-9
        np.testing.assert_array_equal(fitted.predict(Q)[clear], best[clear])

    @pytest.mark.parametrize("rule", ["auto", "sharpened", "ned", "gou"])
    def test_the_gallerys_own_shares_change_nothing(self, rule: RuleChoice) -> None:
        points, labels = uneven(0)
        own = NEDClassifier(rule=rule).fit(points, labels)
        given = NEDClassifier(rule=rule, prior=np.bincount(labels)).fit(points, labels)
        np.testing.assert_allclose(given.predict_proba(Q), own.predict_proba(Q), atol=1e-9)

    def test_array_list_mapping_and_name_agree(self) -> None:
        points, labels = uneven(0)
        uniform = NEDClassifier(prior="uniform").fit(points, NAMES[labels])
        priors: list[Any] = [
            [1, 1, 1],
            np.full(3, 1 / 3),
            {"cow": 0.2, "ant": 0.2, "bee": 0.2},
            dict.fromkeys(NAMES, 7),
        ]
        for prior in priors:
            fitted = NEDClassifier(prior=prior).fit(points, NAMES[labels])
            np.testing.assert_allclose(
                fitted.predict_proba(Q), uniform.predict_proba(Q), atol=1e-12
            )

    def test_a_mapping_goes_by_label_and_an_array_by_order(self) -> None:
        by_label = NEDClassifier(prior={"bee": 0.7, "cow": 0.2, "ant": 0.1}).fit(Z, NAMES[Y])
        by_order = NEDClassifier(prior=[0.1, 0.7, 0.2]).fit(Z, NAMES[Y])
        assert_same_answers(by_label, by_order, Q)
        numbers: dict[Any, float] = {np.int64(1): 0.7, 2: 0.2, 0: 0.1}
        np.testing.assert_array_equal(
            NEDClassifier(prior=numbers).fit(Z, Y).predict_proba(Q), by_order.predict_proba(Q)
        )

    def test_confidence_holds_where_queries_are_even(self) -> None:
        """Over several uneven galleries; with the gallery's prior it is seen to be off."""
        gaps = {"uniform": [], "support": []}  # type: dict[str, list[float]]
        accuracy = {"uniform": [], "support": []}  # type: dict[str, list[float]]
        for seed in range(8):
            points, labels = uneven(seed + 30)
            for prior, found in gaps.items():
                fitted = NEDClassifier(prior=prior).fit(points, labels)
                prediction = fitted.predict_with_confidence(Q)
                right = prediction.labels == TRUTH
                found.append(float(prediction.confidence.mean() - right.mean()))
                accuracy[prior].append(float(right.mean()))
        assert abs(np.mean(gaps["uniform"])) < 0.04
        assert abs(np.mean(gaps["uniform"])) < abs(np.mean(gaps["support"]))
        assert np.mean(accuracy["uniform"]) > np.mean(accuracy["support"])

    def test_uniform_follows_the_gallery_of_now(self) -> None:
        """A new class has its share of an even prior; no parameter is fitted again."""
        living = NEDClassifier(rule="ned", prior="uniform").fit(Z, Y)
        living.add(Q[:20], np.full(20, 3))
        plain = NEDClassifier(temperature=living.temperature_ or 0.0)
        labels = np.concatenate([Y, np.full(20, 3)])
        dense = plain.fit(np.concatenate([Z, Q[:20]]), labels).predict_proba(Q[20:])
        expected = dense / np.bincount(labels)
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(living.predict_proba(Q[20:]), expected, atol=1e-12)

    def test_a_new_class_has_no_place_in_a_given_prior(self) -> None:
        priors: list[Any] = [[0.2, 0.3, 0.5], {0: 0.2, 1: 0.3, 2: 0.5}]
        for prior in priors:
            living = NEDClassifier(prior=prior).fit(Z, Y)
            before = living.predict_proba(Q)
            with pytest.raises(InvalidInputError, match=r"given for 3 classes and misses \[7\]"):
                living.add(Z[:2], [0, 7])
            with pytest.raises(InvalidInputError, match=r"given for 3 classes and misses \[8, 9\]"):
                living.relabel([0, 1], [9, 8])
            np.testing.assert_array_equal(living.predict_proba(Q), before)
            living.add(Z[:2], [0, 1])  # of classes that it knows, more are welcome

    @pytest.mark.parametrize(
        ("prior", "message"),
        [
            ("even", "prior must be one of 'support', 'uniform'. Got 'even'"),
            ({0: 0.5, 1: 0.5}, r"each of the 3 classes of the gallery. It misses \[2\]"),
            ({0: 0.2, 1: 0.2, 2: 0.2, "a": 0.4}, r"It names \['a'\], which it has not"),
            ({"0": 0.2, "1": 0.2, "2": 0.2}, r"It misses \[0, 1, 2\]"),
            ([0.5, 0.5], "prior must be one number for each of the 3 classes"),
            ([[0.5, 0.3, 0.2]], "prior must be one number for each of the 3 classes"),
            (0.3, "prior must be one number for each of the 3 classes"),
            (None, "prior must be one number for each of the 3 classes"),
            ([0.5, 0.5, -0.1], "prior must hold finite numbers of at least 0"),
            ([0.5, 0.5, np.nan], "prior must hold finite numbers of at least 0"),
            ([0.5, 0.5, 0.0], "prior must be positive for every class that has members"),
            ({0: 0.5, 1: 0.5, 2: 0.0}, "prior must be positive for every class"),
        ],
    )
    def test_a_bad_prior_is_refused(self, prior: object, message: str) -> None:
        parameters: dict[str, Any] = {"prior": prior}
        with pytest.raises(InvalidInputError, match=message):
            NEDClassifier(**parameters).fit(Z, Y)

    @pytest.mark.parametrize("prior", [["a", "b", "c"], {0: "a", 1: 0.5, 2: 0.5}])
    def test_a_prior_of_other_things_than_numbers_is_refused(self, prior: object) -> None:
        parameters: dict[str, Any] = {"prior": prior}
        with pytest.raises(InvalidInputError, match="prior"):
            NEDClassifier(**parameters).fit(Z, Y)

    @pytest.mark.parametrize("prior", ["uniform", [0.2, 0.3, 0.5], {0: 0.2, 1: 0.3, 2: 0.5}])
    def test_a_file_keeps_it(self, prior: Prior, tmp_path: Path) -> None:
        fitted = NEDClassifier(prior=prior).fit(Z, Y)
        fitted.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        assert loaded.prior == prior
        assert_same_answers(loaded, fitted, Q)
        assert_same_answers(loaded.refit(), fitted, Q)


class TestCalibration:
    @pytest.mark.parametrize("rule", ["auto", "1nn"])
    @pytest.mark.parametrize("calibration", ["auto", *CALIBRATORS])
    def test_probabilities_sum_to_one_and_the_largest_is_the_label(
        self, calibration: CalibrationChoice, rule: RuleChoice
    ) -> None:
        fitted = NEDClassifier(30, calibration=calibration, rule=rule).fit(Z, Y)
        prediction, probabilities = fitted.predict_with_confidence(Q), fitted.predict_proba(Q)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-8)
        np.testing.assert_array_equal(probabilities.max(axis=1), prediction.confidence)
        np.testing.assert_array_equal(
            probabilities[np.arange(400), fitted.encode(prediction.labels)], prediction.confidence
        )
        if fitted.rule_.calibrator.name != "none":  # where votes tie, no calibrator parts them
            np.testing.assert_array_equal(
                fitted.classes_[probabilities.argmax(axis=1)], prediction.labels
            )

    @pytest.mark.parametrize("calibration", sorted(set(CALIBRATORS) - {"none"}))
    def test_it_never_touches_a_label(self, calibration: CalibrationChoice) -> None:
        plain, calibrated = (
            NEDClassifier(calibration=name).fit(Z, Y).predict_with_confidence(Q)
            for name in ("none", calibration)
        )
        np.testing.assert_array_equal(calibrated.labels, plain.labels)
        np.testing.assert_array_equal(calibrated.posterior.codes, plain.posterior.codes)
        assert (calibrated.confidence >= 1 / 3).all()

    @pytest.mark.parametrize("calibration", sorted(set(CALIBRATORS) - {"none"}))
    def test_it_is_fitted_on_the_leave_one_out_scores(self, calibration: CalibrationChoice) -> None:
        plain = NEDClassifier(rule="knn", n_neighbors=9, calibration="none").fit(Z, Y)
        own = plain.leave_one_out_posterior()
        expected = CALIBRATORS[calibration].fit(own.confidence, own.labels == Y)
        fitted = NEDClassifier(rule="knn", n_neighbors=9, calibration=calibration).fit(Z, Y)
        assert fitted.rule_.calibrator == expected
        calibrated = expected(plain.predict_with_confidence(Q).confidence)
        np.testing.assert_allclose(
            fitted.predict_with_confidence(Q).confidence, np.maximum(calibrated, 1 / 3), rtol=1e-8
        )

    def test_auto_calibrates_the_sharpened_forms_alone(self) -> None:
        cases: tuple[tuple[RuleChoice, str], ...] = (
            ("auto", "shrunk"),
            ("adaptive", "shrunk"),
            ("sharpened", "shrunk"),
            ("ned", "none"),
            ("gou", "none"),
        )
        for rule, expected in cases:
            assert NEDClassifier(rule=rule).fit(Z, Y).rule_.calibrator.name == expected

    @pytest.mark.parametrize("calibration", sorted(set(CALIBRATORS)))
    def test_a_file_keeps_it(self, calibration: CalibrationChoice, tmp_path: Path) -> None:
        fitted = NEDClassifier(calibration=calibration).fit(Z, Y)
        fitted.save(tmp_path / "model")
        assert_same_answers(NEDClassifier.load(tmp_path / "model"), fitted, Q)

    @pytest.mark.parametrize("calibration", ["magic", None, 1])
    def test_a_calibration_that_there_is_not_is_refused(self, calibration: object) -> None:
        parameters: dict[str, Any] = {"calibration": calibration}
        with pytest.raises(InvalidInputError, match=r"calibration must be one of 'auto', 'none'"):
            NEDClassifier(**parameters).fit(Z, Y)

    @pytest.mark.parametrize("calibration", sorted(set(CALIBRATORS) - {"none", "shrunk"}))
    def test_calibrators_that_cannot_weigh_refuse_another_prior(
        self, calibration: CalibrationChoice
    ) -> None:
        with pytest.raises(InvalidInputError, match="no other calibrator can weigh its points"):
            NEDClassifier(calibration=calibration, prior="uniform").fit(Z, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"rule": "adaptive", "temperature": 1.0},
            "temperature must be 'auto' for rule 'adaptive'",
        ),
        ({"rule": "knn", "temperature": 1.0}, "temperature must be 'auto' for rule 'knn'"),
        ({"rule": "sharpened", "objective": "brier"}, "objective must be 'nll' for rule 'sharp"),
        ({"rule": "best"}, "rule must be one of 'auto', "),
        ({"unknown_share": 1.0}, r"unknown_share must lie in \[0, 1\)"),
        ({"unknown_share": True}, "unknown_share must be None or a fraction"),
        ({"unknown_share": "0.1"}, "unknown_share must be None or a fraction"),
        ({"max_fit_samples": 0}, "max_fit_samples must be None or an integer >= 1"),
        ({"max_fit_samples": True}, "max_fit_samples must be None or an integer >= 1"),
        ({"max_effort": -1}, "max_effort must be None or an integer >= 0"),
        ({"max_effort": True}, "max_effort must be None or an integer >= 0"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        NEDClassifier(**parameters).fit(Z, Y)


def test_auto_is_ned_if_something_is_said_about_its_temperature() -> None:
    for parameters, name in (
        ({}, "adaptive"),
        ({"temperature": 1.0}, "ned"),
        ({"objective": "brier"}, "ned"),
    ):
        fitted = NEDClassifier(**parameters).fit(Z, Y)
        assert fitted.rule_.name == name
        assert (fitted.sharpened_fit_ is not None) == (name == "adaptive")


@pytest.mark.parametrize("rule", ["adaptive", "sharpened"])
def test_where_nothing_is_sharpened_points_count_as_they_are(rule: RuleChoice) -> None:
    """Confidence is then learned from plain answers, each point without itself."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 20, 10])
    vectors = rng.normal(size=(70, 3)) + 30 * labels[:, None]
    with pytest.warns(DegenerateTemperatureWarning):
        apart = NEDClassifier(rule=rule).fit(vectors, labels)
    assert apart.temperature_fit_ is not None
    assert apart.temperature_fit_.status == "low"
    assert apart.predict_with_confidence(np.full((1, 3), 30.1)).confidence[0] > 0.99
    # Nothing but copies: every answer is the largest class, which is right for half of the points.
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    with (
        pytest.warns(DegenerateTemperatureWarning, match="the same at every temperature"),
        pytest.warns(ManyMissesWarning),
    ):
        same = NEDClassifier(rule=rule).fit(np.ones((60, 2)), labels)
    assert same.temperature_fit_ is not None
    assert same.temperature_fit_.status == "flat"
    prediction = same.predict_with_confidence(np.ones((1, 2)))
    assert prediction.labels[0] == 0
    assert prediction.confidence[0] == pytest.approx(0.5, abs=0.01)


pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.FitWarning")


def draw_members(
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
        gallery, labels = draw_members(rng, centres, np.full(250, members))
        queries, truth = draw_members(rng, centres, np.full(250, 8))
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
        gallery, labels = draw_members(rng, centres, np.array([1800, 100, 100]))
        queries, truth = draw_members(rng, centres, np.full(3, 1000))
        classifier = NEDClassifier(prior="uniform").fit(gallery, labels)
        prediction = classifier.predict_with_confidence(queries)
        accept = classifier.accept_threshold(precision=0.85, certainty=0.9)
        accepted = accept.accepts(prediction.confidence)
        if accepted.any():
            broken += bool((prediction.labels == truth)[accepted].mean() < 0.85)
        sets = classifier.predict_set(queries, alpha=0.1)
        covered.append(sets.contains(truth).mean())
    assert broken <= binom.ppf(0.99, n_galleries, 0.1)
    assert np.mean(covered) > 0.88


def test_a_new_class_of_three_is_found_beside_large_ones() -> None:
    """Where the size of a class counted to the power gamma, it hardly ever was."""
    accuracies = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        centres = 3.0 * rng.normal(size=(21, 8))
        gallery, labels = draw_members(rng, centres[:20], np.full(20, 30))
        classifier = NEDClassifier().fit(gallery, labels)
        few = centres[20] + rng.normal(size=(3, 8))
        classifier.add(few, np.full(3, 20))
        queries = centres[20] + rng.normal(size=(200, 8))
        accuracies.append((classifier.predict(queries) == 20).mean())
    assert np.mean(accuracies) > 0.9


def test_the_history_of_a_gallery_does_not_change_a_refit() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = draw_members(rng, 2.0 * rng.normal(size=(4, 5)), np.full(4, 100))
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
    vectors, labels = draw_members(rng, 2.0 * rng.normal(size=(3, 4)), np.full(3, 20))
    classifier = NEDClassifier(n_neighbors="all", rule="ned").fit(vectors, labels)
    classifier.add(vectors[:5] + 0.1, labels[:5])
    assert classifier.kneighbors(vectors[:2]).k == 65


def test_what_was_learned_of_queries_survives_a_refit() -> None:
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.normal(size=(8, 6))
    gallery, labels = draw_members(rng, centres[:6], np.full(6, 40))
    queries, _ = draw_members(rng, centres, np.full(8, 60))
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
    gallery, labels = draw_members(rng, centres[:12], np.full(12, 20))
    strangers, _ = draw_members(rng, centres[12:], np.full(4, 50))
    groups = np.where(labels < 6, labels, 100 + np.arange(len(labels)))
    classifier = NEDClassifier(unknown_share=0.2).fit(gallery, labels, groups=groups)
    verdicts = classifier.predict_with_confidence(strangers).verdicts
    assert (np.asarray(verdicts) == "unknown").mean() > 0.8


# Galleries of a few members a class.


def few_members(size: int, seed: int) -> tuple[FloatArray, IntArray, FloatArray]:
    """Members and as many queries of 120 overlapping Gaussian classes, in the same order."""
    rng = np.random.default_rng([seed, size])
    centres, codes = rng.normal(size=(120, 8)), np.repeat(np.arange(120), size)
    members, queries = (centres[codes] + 0.6 * rng.normal(size=(len(codes), 8)) for _ in "ab")
    return members, codes, queries


def biases(size: int, *, n_galleries: int = 12) -> FloatArray:
    """Mean confidence less accuracy of queries, of each gallery."""
    found = []
    for seed in range(n_galleries):
        members, codes, queries = few_members(size, seed)
        said = NEDClassifier(head=None).fit(members, codes).predict_with_confidence(queries)
        found.append(said.confidence.mean() - (said.labels == codes).mean())
    return np.array(found)


@pytest.mark.filterwarnings("ignore::nearsure.errors.ManyMissesWarning")
def test_pairs_are_not_taken_for_what_a_point_without_its_fellow_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each point misses half of its class. Left out alone, it makes queries too unsure."""
    after = biases(2)
    monkeypatch.setattr(rule_module, "has_small_classes", lambda *_: False)
    before = biases(2)
    assert before.mean() < -0.08
    assert before.mean() / 2 < after.mean() < 0.02


@pytest.mark.parametrize(("size", "is_small"), [(12, True), (13, False)])
def test_larger_classes_are_fitted_as_ever(
    size: int,
    is_small: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rehearsed: list[int] = []
    plain = rule_module.rehearse_small

    def count(*arguments: Any) -> Any:  # noqa: ANN401
        rehearsed.append(1)
        return plain(*arguments)

    monkeypatch.setattr(rule_module, "rehearse_small", count)
    members, codes, _ = few_members(size, 0)
    NEDClassifier().fit(members, codes)
    assert bool(rehearsed) == is_small


@pytest.mark.parametrize("calibration", ["none", "isotonic", "platt"])
def test_other_calibrators_take_each_point_of_a_small_gallery_once(
    calibration: CalibrationChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, codes, queries = few_members(4, 1)
    seen: list[int] = []
    if calibration != "none":
        kind = CALIBRATORS[calibration]
        plain = kind.fit

        def count(confidence: FloatArray, correct: FloatArray) -> Any:  # noqa: ANN401
            seen.append(len(correct))
            return plain(confidence, correct)

        monkeypatch.setattr(kind, "fit", count)
    classifier = NEDClassifier(calibration=calibration).fit(members, codes)
    assert seen == ([] if calibration == "none" else [len(codes)])
    confidence = classifier.predict_with_confidence(queries).confidence
    assert ((confidence >= 0) & (confidence <= 1)).all()
