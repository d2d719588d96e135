"""Frozen methods: fitted on the clean gallery, never changed by what they score."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from damaged_points import K, clean, frozen, moved, points

from nearsure.calibration import Isotonic, Platt
from nearsure.comparison import score_by
from nearsure.errors import InvalidInputError
from nearsure.lab.protocols import all_against_others
from nearsure.lab.robust.methods import METHODS, NED, FrozenMethods, Method
from nearsure.rules import RULE_NAMES
from nearsure.temperature import fit_temperature


def test_there_are_fifteen_methods_raw_ones_first_in_the_order_of_the_rules() -> None:
    assert len(set(METHODS)) == 15
    assert METHODS[:5] == tuple(Method(rule) for rule in RULE_NAMES)
    assert METHODS[4] == NED
    assert (
        len({method.title for method in METHODS}) == len({method.name for method in METHODS}) == 15
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


def test_calibration_changes_confidence_and_never_the_label() -> None:
    scores = frozen().scores(moved(0.5), clean().query_codes)
    by_method = dict(zip(METHODS, zip(scores.confidence, scores.correct, strict=True), strict=True))
    for method, (confidence, correct) in by_method.items():
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
    methods = FrozenMethods.fit(clean().own.first(K), clean().own_codes)
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
    methods = FrozenMethods.fit(clean().own.first(K), codes)
    codes[:] = 0
    np.testing.assert_array_equal(methods.gallery_codes, points()[1])


def test_a_gallery_without_an_error_can_be_fitted() -> None:
    codes = np.repeat([0, 1], 10)
    vectors = np.arange(20.0)[:, None] + 1000.0 * codes[:, None]
    found = all_against_others(vectors, codes, k=5)
    scores = FrozenMethods.fit(found.own, codes).scores(found.queries, codes)
    assert scores.correct.all()
    np.testing.assert_array_equal(scores.confidence, 1.0)


def test_too_few_neighbours_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="k must lie"):
        frozen().scores(moved(0.1).first(K - 1), clean().query_codes)
