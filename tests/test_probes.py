"""Probes are scikit-learn's and the closed form's, and own scores have not seen the point."""

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid

from nearsure.arrays import FloatArray, IntArray
from nearsure.calibration import PosteriorTemperature
from nearsure.heads.folds import assign_folds
from nearsure.probes import (
    PROBE_NAMES,
    STRENGTHS,
    ProbeName,
    dense_posterior,
    fit_probe,
)


def drawn(
    n: int = 300, *, n_classes: int = 4, d: int = 6, seed: int = 0, spread: float = 1.0
) -> tuple[FloatArray, IntArray]:
    """Gaussian classes of one covariance, far from the origin; the centres are always the same."""
    centres = spread * np.random.default_rng(99).normal(size=(n_classes, d)) + 50.0
    scales = np.linspace(0.4, 1.6, d)
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    return centres[codes] + scales * rng.normal(size=(n, d)), codes


def test_means_are_spherical_gaussians_of_equal_share() -> None:
    vectors, codes = drawn()
    queries, _ = drawn(seed=1)
    fitted = fit_probe("means", vectors, codes, n_classes=4, seed=0)
    means = [vectors[codes == c].mean(axis=0) for c in range(4)]
    squares = sum(((vectors[codes == c] - means[c]) ** 2).sum() for c in range(4))
    variance = squares / ((300 - 4) * 6)
    densities = [multivariate_normal(mean, variance * np.eye(6)).logpdf(queries) for mean in means]
    expected = log_softmax(np.stack(densities, axis=1), axis=1)
    np.testing.assert_allclose(fitted.probe.log_probabilities(queries), expected, atol=1e-9)
    nearest = NearestCentroid().fit(vectors, codes).predict(queries)
    np.testing.assert_array_equal(fitted.posterior(queries).labels, nearest)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_lda_is_that_of_scikit_learn(n_classes: int) -> None:
    vectors, codes = drawn(n_classes=n_classes)
    queries, _ = drawn(seed=1, n_classes=n_classes)
    probe = fit_probe("lda", vectors, codes, n_classes=n_classes, seed=0).probe
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(vectors, codes)
    expected = model.predict_log_proba(queries)
    np.testing.assert_allclose(probe.log_probabilities(queries), expected, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_logistic_regression_is_that_of_scikit_learn(n_classes: int) -> None:
    vectors, codes = drawn(n_classes=n_classes)
    queries, _ = drawn(seed=1, n_classes=n_classes)
    fitted = fit_probe("logistic", vectors, codes, n_classes=n_classes, seed=0)
    centre = vectors.mean(axis=0)
    scale = np.sqrt(((vectors - centre) ** 2).mean())
    model = LogisticRegression(C=fitted.strength, max_iter=200)
    model.fit(((vectors - centre) / scale).astype(np.float32), codes)
    expected = model.predict_proba((queries - centre) / scale)
    found = np.exp(fitted.probe.log_probabilities(queries))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_strength_is_the_most_likely_one_after_tempering() -> None:
    vectors, codes = drawn(n=120, d=40, spread=0.5)
    fitted = fit_probe("logistic", vectors, codes, n_classes=4, seed=3)
    folds = assign_folds(codes, seed=3)
    losses = []
    for strength in STRENGTHS:
        own = np.empty((120, 4))
        for fold in range(10):
            left = folds == fold
            centre = vectors[~left].mean(axis=0)
            scale = np.sqrt(((vectors[~left] - centre) ** 2).mean())
            model = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000)
            model.fit((vectors[~left] - centre) / scale, codes[~left])
            own[left] = model.predict_log_proba((vectors[left] - centre) / scale)
        tempered = (
            log_softmax(exponent * own, axis=1)[np.arange(120), codes].sum()
            for exponent in np.geomspace(0.02, 10, 400)
        )
        losses.append(-max(tempered))
    assert fitted.strength == STRENGTHS[int(np.argmin(losses))]
    assert fitted.strength not in {STRENGTHS[0], STRENGTHS[-1]}


@pytest.mark.parametrize("name", PROBE_NAMES)
def test_own_scores_are_of_probes_that_have_not_seen_the_point(name: ProbeName) -> None:
    # Labels without any meaning in more dimensions than points: who has seen a label knows it.
    rng = np.random.default_rng(0)
    vectors, codes = rng.normal(size=(100, 200)), rng.integers(0, 2, 100)
    fitted = fit_probe(name, vectors, codes, n_classes=2, seed=0)
    assert (fitted.posterior(vectors).labels == codes).mean() > 0.9
    assert (fitted.own.labels == codes).mean() < 0.65


@pytest.mark.parametrize("name", PROBE_NAMES)
def test_own_scores_tell_a_temperature_that_holds_for_others(name: ProbeName) -> None:
    vectors, codes = drawn(n=400, d=60, spread=0.25)
    queries, truth = drawn(n=4000, d=60, spread=0.25, seed=1)
    fitted = fit_probe(name, vectors, codes, n_classes=4, seed=0)
    tempered = PosteriorTemperature.fit(fitted.own, codes)(fitted.posterior(queries))
    right = (tempered.labels == truth).mean()
    assert 0.5 < right < 0.95
    assert tempered.confidence.mean() == pytest.approx(right, abs=0.04)


@pytest.mark.parametrize("name", PROBE_NAMES)
def test_a_class_that_was_not_seen_has_probability_0(name: ProbeName) -> None:
    vectors, codes = drawn(n=60, n_classes=3)
    # Class 3 is a single point, which leaves its fold without it; class 4 has none at all.
    vectors, codes = np.vstack([vectors, np.full(6, 60.0)]), np.append(codes, 3)
    fitted = fit_probe(name, vectors, codes, n_classes=5, seed=0)
    assert fitted.own.probability_of(codes)[-1] == 0
    assert (fitted.own.probability_of(codes)[:-1] > 0).all()
    found = np.exp(fitted.probe.log_probabilities(vectors))
    assert (found[:, 4] == 0).all()
    assert found[-1].argmax() == 3
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


@pytest.mark.parametrize("name", PROBE_NAMES)
@pytest.mark.parametrize("case", ["one class", "all alike", "all single", "copies"])
def test_galleries_that_determine_little(name: ProbeName, case: str) -> None:
    vectors, codes = drawn(n=20)
    if case == "one class":
        codes = np.zeros(20, np.int64)
    elif case == "all alike":
        vectors = np.ones((20, 3))
    elif case == "all single":
        codes = np.arange(20)
    else:
        vectors = np.eye(4)[codes]
    fitted = fit_probe(name, vectors, codes, n_classes=20, seed=0)
    found = np.exp(fitted.probe.log_probabilities(vectors))
    assert np.isfinite(found).all()
    if case == "copies":
        np.testing.assert_array_equal(fitted.own.labels, codes)


def test_improbable_classes_keep_what_a_temperature_can_raise() -> None:
    posterior = dense_posterior(np.array([[0.0, -5000.0, -np.inf]]))
    assert posterior.probabilities.tolist() == [1.0, 1e-300, 0.0]
    assert PosteriorTemperature.fit(posterior, [1]).exponent < 0.01


def test_folds_are_even_and_keep_groups_together() -> None:
    codes = np.repeat(np.arange(7), 10)
    folds = assign_folds(codes, seed=0)
    counts = np.zeros((7, 10), int)
    np.add.at(counts, (codes, folds), 1)
    assert (counts == 1).all()
    assert not np.array_equal(folds, assign_folds(codes, seed=1))
    groups = np.repeat(np.arange(35), 2)
    together = assign_folds(codes, groups)
    assert (together[::2] == together[1::2]).all()
    assert set(together.tolist()) == set(range(10))
    # A class has five groups, and there are ten folds: no two of its groups share one.
    assert [len(set(of_class)) for of_class in together.reshape(7, 10).tolist()] == [5] * 7
