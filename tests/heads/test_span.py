"""Heads of fewer points than features: fitted in the points' own coordinates, or in all."""

from typing import Literal

import numpy as np
import pytest

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.classifier import head as head_module
from nearsure.heads.class_means import Moments, find_factor
from nearsure.heads.fitted_head import FittedHead
from nearsure.heads.span import Span

N, DIMENSION, N_CLASSES = 60, 90, 12
RNG = np.random.default_rng(0)
CODES = np.arange(N) % N_CLASSES
CENTRES = 0.6 * RNG.normal(size=(N_CLASSES, DIMENSION))
POINTS = CENTRES[CODES] + RNG.normal(size=(N, DIMENSION))
POINTS[12] = POINTS[0]  # The points have fewer directions than they are many.
QUERIES = CENTRES[CODES] + RNG.normal(size=(N, DIMENSION))


def test_coordinates_keep_distances() -> None:
    span = Span.of_points(POINTS)
    np.testing.assert_allclose(span.basis.T @ span.basis, np.eye(N), atol=1e-12)
    within = span.reduce(POINTS)
    for row in range(0, N, 7):
        expected = np.linalg.norm(POINTS - POINTS[row], axis=1)
        np.testing.assert_allclose(
            np.linalg.norm(within - within[row], axis=1), expected, atol=1e-9
        )


@pytest.mark.parametrize("is_widened", [False, True])
def test_the_usual_variance_is_that_of_all_features(*, is_widened: bool) -> None:
    """Points times the factor have the same products in either space."""
    span = Span.of_points(POINTS)
    products = []
    for points in (POINTS, span.reduce(POINTS)):
        moments = Moments.empty(points.mean(axis=0), N_CLASSES, DIMENSION).add(points, CODES)
        factor = find_factor(moments.covariance, 0.3, DIMENSION, is_widened=is_widened)
        whitened = (points - moments.centre) @ factor
        products.append(whitened @ whitened.T)
    np.testing.assert_allclose(products[1], products[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["means", "logistic"])
def test_the_head_is_that_of_all_features(
    name: Literal["means", "logistic"], dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its folds of points and of classes, for queries off the span, too."""
    points: AnyArray = POINTS.astype(dtype)
    heads, said = [], []
    for is_reduced in (True, False):
        with monkeypatch.context() as patched:
            if not is_reduced:
                patched.setattr(head_module, "MOST_CORRELATED", 0)
            classifier = NEDClassifier(head=name, unknown_share=0.1).fit(points, CODES)
        head = classifier._fit.gallery.head
        assert head is not None
        heads.append(head)
        said.append(classifier.predict_proba(QUERIES))
    for found, expected in zip(all_weights(heads[0]), all_weights(heads[1]), strict=True):
        largest = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, atol=1e-5 * largest)
    np.testing.assert_allclose(said[0], said[1], atol=1e-5)
    assert len(heads[0].class_folds) == (5 if name == "logistic" else 0)


def all_weights(head: FittedHead) -> list[AnyArray]:
    every = (head.full, *head.folds, *head.class_folds)
    arrays: list[AnyArray] = [each.weights for each in every]
    if head.means is not None:
        # The factor itself may be turned.
        arrays += [head.means.means, head.means.factor @ head.means.factor.T]
    return arrays


def test_means_follow_points_off_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = []
    for is_reduced in (True, False):
        with monkeypatch.context() as patched:
            if not is_reduced:
                patched.setattr(head_module, "MOST_CORRELATED", 0)
            living = NEDClassifier(head="means").fit(POINTS, CODES)
        living.add(QUERIES[:3], CODES[:3])
        living.remove(np.arange(2))
        changed.append(living.predict_proba(QUERIES[3:]))
    np.testing.assert_allclose(changed[0], changed[1], atol=1e-6)
