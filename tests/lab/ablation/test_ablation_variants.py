"""Every variant is what it is called: compared with the classifier and with plain formulas."""

from typing import Any

import numpy as np
import pytest
from small_ablation import points

from nearsure import NEDClassifier, fit_temperature, score
from nearsure.calibration import PosteriorTemperature
from nearsure.classifier.parameters import CalibrationChoice, RuleChoice
from nearsure.forms.class_variance import class_variance_weights, fit_class_variance
from nearsure.lab.ablation.trials import half_trial
from nearsure.lab.ablation.variants import (
    CALIBRATED_BASELINES,
    DEFAULT,
    LADDER,
    MAIN_VARIANTS,
    NEIGHBORS_ALONE,
    PROBE_VARIANTS,
    PROBES,
    RAW_BASELINES,
    SLOW_VARIANTS,
    VARIANTS,
    Competition,
)
from nearsure.lab.robust.methods import Method
from nearsure.posterior import Posterior
from nearsure.probes import fit_probe

K = 15
NO_HEAD: dict[str, Any] = {"head": None}
TRIAL = half_trial("own", points(), seed=0)
GALLERY, QUERIES = TRIAL.searched(K)
EVERY = (*VARIANTS, *SLOW_VARIANTS, *PROBE_VARIANTS, DEFAULT)


@pytest.fixture(scope="module")
def posteriors() -> dict[Method, Posterior]:
    competition = Competition.fit(GALLERY, EVERY)
    return dict(competition.posteriors(QUERIES))


def test_every_variant_answers_every_query(posteriors: dict[Method, Posterior]) -> None:
    assert set(posteriors) == set(EVERY)
    assert len(posteriors) == len(EVERY)
    for posterior in posteriors.values():
        assert len(posterior) == len(QUERIES.vectors)
        assert posterior.n_classes == GALLERY.n_classes


@pytest.mark.parametrize(
    ("variant", "settings"), [(DEFAULT, {}), (NEIGHBORS_ALONE, NO_HEAD)], ids=["whole", "alone"]
)
def test_the_default_is_the_classifier_as_it_comes(
    posteriors: dict[Method, Posterior], variant: Method, settings: dict[str, Any]
) -> None:
    classifier = NEDClassifier(n_neighbors=K, **settings).fit(GALLERY.own.vectors, GALLERY.codes)
    expected = classifier.predict_posterior(QUERIES.vectors)
    np.testing.assert_array_equal(posteriors[variant].codes, expected.codes)
    np.testing.assert_array_equal(posteriors[variant].probabilities, expected.probabilities)


def test_probes_are_fitted_on_the_gallery_and_tempered_out_of_fold(
    posteriors: dict[Method, Posterior],
) -> None:
    vectors, codes = GALLERY.own.vectors, GALLERY.codes
    for base, name in PROBES.items():
        fitted = fit_probe(name, vectors, codes, n_classes=8, seed=0)
        raw = fitted.posterior(QUERIES.vectors)
        np.testing.assert_array_equal(posteriors[Method(base)].probabilities, raw.probabilities)
        expected = PosteriorTemperature.fit(fitted.own, codes)(raw)
        found = posteriors[Method(base, "temperature")]
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)


@pytest.mark.parametrize(
    ("name", "rule", "calibration"),
    [
        ("knn + histogram", "knn", "histogram"),
        ("gou + platt", "gou", "platt"),
        ("ned + bbq", "ned", "bbq"),
        ("sharpened", "sharpened", "none"),
        ("adaptive + isotonic", "adaptive", "isotonic"),
    ],
)
def test_others_are_the_classifier_with_these_settings(
    posteriors: dict[Method, Posterior], name: str, rule: RuleChoice, calibration: CalibrationChoice
) -> None:
    classifier = NEDClassifier(n_neighbors=K, rule=rule, calibration=calibration, **NO_HEAD)
    expected = classifier.fit(GALLERY.own.vectors, GALLERY.codes).predict_posterior(QUERIES.vectors)
    found = posteriors[Method.from_name(name)]
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


def test_raw_rules_are_the_papers(posteriors: dict[Method, Posterior]) -> None:
    temperature = fit_temperature(GALLERY.own.neighbors, GALLERY.codes).temperature
    for rule in ("1nn", "knn", "dudani", "gou", "ned"):
        given = temperature if rule == "ned" else None
        expected = score(QUERIES.neighbors, rule=rule, temperature=given)
        found = posteriors[Method(rule)]
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)


def test_no_step_changes_a_label(posteriors: dict[Method, Posterior]) -> None:
    for variant, posterior in posteriors.items():
        raw = posteriors[Method(variant.base)]
        np.testing.assert_array_equal(posterior.labels, raw.labels)


def test_each_step_changes_the_confidence(posteriors: dict[Method, Posterior]) -> None:
    for variant, posterior in posteriors.items():
        if variant.step != "raw":
            raw = posteriors[Method(variant.base)]
            assert not np.array_equal(posterior.confidence, raw.confidence), variant


def test_the_correction_is_felt(posteriors: dict[Method, Posterior]) -> None:
    # Ten members a class: a query's class is larger than a left-out point's.
    with_it = posteriors[Method("adaptive")].confidence
    without = posteriors[Method("adaptive, uncorrected")].confidence
    assert not np.allclose(with_it, without, atol=1e-3)


def test_missed_mass_leaves_one_share_to_all(posteriors: dict[Method, Posterior]) -> None:
    scaled = posteriors[Method("ned", "missed share")].confidence
    shares = 1.0 - scaled / posteriors[Method("ned")].confidence
    np.testing.assert_allclose(shares, shares[0], atol=1e-12)


def test_class_variance_is_fitted_on_the_gallery(posteriors: dict[Method, Posterior]) -> None:
    form = fit_class_variance(GALLERY.own.neighbors, GALLERY.codes, n_classes=8)
    weights = class_variance_weights(QUERIES.neighbors, form)
    mass = np.zeros((len(weights), 8))
    for row, (labels, own) in enumerate(zip(QUERIES.neighbors.labels, weights, strict=True)):
        for label, weight in zip(labels, own, strict=True):
            mass[row, label] += weight
    expected = (mass / mass.sum(axis=1, keepdims=True)).max(axis=1)
    found = posteriors[Method("class variance")].confidence
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_class_variance_is_not_calibrated_by_points_that_it_has_seen() -> None:
    with pytest.raises(ValueError, match="too good to calibrate by"):
        Competition.fit(GALLERY, (Method("class variance", "platt"),))


def test_names_come_back_and_none_is_twice() -> None:
    assert [Method.from_name(variant.name) for variant in EVERY] == list(EVERY)
    assert len({variant.title for variant in EVERY}) == len(EVERY)
    assert {*LADDER, *MAIN_VARIANTS, *RAW_BASELINES, *CALIBRATED_BASELINES} <= set(EVERY)
    assert Method("LDA", "temperature").title == "LDA + temperature"


def test_1nn_is_no_calibrated_baseline() -> None:
    assert "1nn" not in {variant.base for variant in CALIBRATED_BASELINES}
    assert len(CALIBRATED_BASELINES) == 3 * 7
