"""Frozen methods: fitted on the clean gallery, never changed by what they score."""

from dataclasses import FrozenInstanceError
from typing import Literal

import numpy as np
import pytest
from damaged_points import K, clean, damaged_queries, frozen, moved, points

from nearsure import NEDClassifier
from nearsure.calibration import Isotonic, Platt
from nearsure.comparison import score_by
from nearsure.errors import InvalidInputError
from nearsure.lab.protocols import all_against_others
from nearsure.lab.robust.methods import (
    DEFAULT,
    METHODS,
    NED,
    NEIGHBORS_ALONE,
    FrozenMethods,
    Method,
)
from nearsure.rules import RULE_NAMES
from nearsure.temperature import fit_temperature


def test_methods_are_the_rules_raw_and_calibrated_then_nearsure() -> None:
    assert len(set(METHODS)) == 17
    assert METHODS[-2:] == (NEIGHBORS_ALONE, DEFAULT)
    assert METHODS[:5] == tuple(Method(rule) for rule in RULE_NAMES)
    assert METHODS[4] == NED
    assert (
        len({method.title for method in METHODS}) == len({method.name for method in METHODS}) == 17
    )


def test_raw_scores_are_the_rules_with_t_of_the_clean_gallery() -> None:
    temperature = fit_temperature(clean().own.first(K), clean().own_codes).temperature
    assert frozen().temperature_fit.temperature == temperature
    damaged = moved(0.5)
    scores = frozen().scores(damaged, clean().query_codes)
    for rule in RULE_NAMES:
        posterior = score_by(rule, damaged.first(K), temperature)
        place = METHODS.index(Method(rule))
        np.testing.assert_array_equal(scores.confidence[place], posterior.confidence)
        np.testing.assert_array_equal(
            scores.correct[place], posterior.labels == clean().query_codes
        )


def test_calibrators_are_fitted_on_leave_one_out_scores_of_the_gallery() -> None:
    own, codes = clean().own.first(K), clean().own_codes
    for rule in RULE_NAMES:
        posterior = score_by(rule, own, frozen().temperature_fit.temperature)
        fitted_on = posterior.confidence, posterior.labels == codes
        assert frozen().calibrators[Method(rule, "isotonic")] == Isotonic.fit(*fitted_on)
        assert frozen().calibrators[Method(rule, "platt")] == Platt.fit(*fitted_on)


@pytest.mark.parametrize(("method", "head"), [(NEIGHBORS_ALONE, None), (DEFAULT, "auto")])
def test_nearsure_is_the_classifier_that_a_user_fits(
    method: Method, head: Literal["auto"] | None
) -> None:
    gallery, gallery_codes, _, codes = points()
    classifier = NEDClassifier(n_neighbors=K, head=head).fit(gallery, gallery_codes)
    queries = damaged_queries(0.3)
    expected = classifier.predict_with_confidence(queries)
    scores, place = frozen().scores(moved(0.3), codes), METHODS.index(method)
    np.testing.assert_allclose(scores.confidence[place], expected.confidence, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(scores.correct[place], expected.labels == codes)


def test_a_head_says_something_here() -> None:
    """Otherwise the test above would compare the same thing twice."""
    scores = frozen().scores(moved(0.3), clean().query_codes)
    alone, whole = scores.confidence[-2:]
    assert frozen().classifier.head is not None
    assert not np.allclose(alone, whole, atol=1e-3)


def test_a_query_in_the_gallery_is_scored_by_a_head_that_has_not_seen_it() -> None:
    gallery, codes, *_ = points()
    classifier = NEDClassifier(n_neighbors=K).fit(gallery, codes)
    expected = classifier.predict_own()
    scores = frozen().scores(clean().own, codes)
    np.testing.assert_allclose(scores.confidence[-1], expected.confidence, rtol=0, atol=1e-9)


def test_calibration_changes_confidence_and_never_the_label() -> None:
    scores = frozen().scores(moved(0.5), clean().query_codes)
    by_method = dict(zip(METHODS, zip(scores.confidence, scores.correct, strict=True), strict=True))
    for method in METHODS[:-2]:
        confidence, correct = by_method[method]
        raw_confidence, raw_correct = by_method[Method(method.base)]
        np.testing.assert_array_equal(correct, raw_correct)
        if method.step != "raw":
            expected = frozen().calibrators[method](raw_confidence)
            np.testing.assert_array_equal(confidence, expected)
            assert not np.array_equal(confidence, raw_confidence)


def test_1nn_calibrated_says_the_share_of_the_gallery_that_it_has_right() -> None:
    labels = clean().own.labels[:, 0]
    share = (labels == clean().own_codes).mean()
    scores = frozen().scores(moved(1.0), clean().query_codes)
    for calibration in ("isotonic", "platt"):
        row = scores.confidence[METHODS.index(Method("1nn", calibration))]
        np.testing.assert_allclose(row, share, rtol=0, atol=1e-12)


def test_scores_of_some_queries_do_not_depend_on_any_others() -> None:
    """Nothing is fitted, normalised or remembered while scoring."""
    methods = FrozenMethods.fit(clean().own.first(K), clean().own_codes, points()[0])
    codes = clean().query_codes
    before = methods.scores(moved(0.5), codes)
    temperature, calibrators = methods.temperature_fit, dict(methods.calibrators)
    methods.scores(moved(5.0, seed=9), codes)
    after = methods.scores(moved(0.5), codes)
    np.testing.assert_array_equal(before.confidence, after.confidence)
    np.testing.assert_array_equal(before.correct, after.correct)
    assert methods.temperature_fit == temperature
    assert dict(methods.calibrators) == calibrators
    rows = np.array([3, 77, 12])
    some = methods.scores(moved(0.5).take(rows), codes[rows])
    np.testing.assert_array_equal(some.confidence, before.confidence[:, rows])
    np.testing.assert_array_equal(some.correct, before.correct[:, rows])


def test_nothing_can_be_exchanged_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        frozen().k = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        frozen().calibrators[NED] = Platt(1.0, 0.0)  # type: ignore[index]
    codes = clean().own_codes.copy()
    methods = FrozenMethods.fit(clean().own.first(K), codes, points()[0])
    codes[:] = 0
    np.testing.assert_array_equal(methods.gallery_codes, points()[1])


def test_a_gallery_without_an_error_can_be_fitted() -> None:
    codes = np.repeat([0, 1], 10)
    vectors = np.arange(20.0)[:, None] + 1000.0 * codes[:, None]
    found = all_against_others(vectors, codes, k=5)
    scores = FrozenMethods.fit(found.own, codes, vectors).scores(found.queries, codes)
    assert scores.correct.all()
    np.testing.assert_array_equal(scores.confidence[:-2], 1.0)
    # Calibrated by a line with a prior, which never is quite sure.
    assert (scores.confidence[-2:] > 0.999).all()


def test_too_few_neighbours_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="k must lie"):
        frozen().scores(moved(0.1).first(K - 1), clean().query_codes)
