"""Noise takes digits far from the gallery long before it makes them wrong."""

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.drift import QueryDrift

SEED = 0


@cache
def fitted(rule: str) -> tuple[NEDClassifier, AnyArray, AnyArray]:
    digits, labels = load_digits(return_X_y=True)
    gallery, queries, gallery_labels, query_labels = train_test_split(
        digits, labels, test_size=0.5, random_state=SEED, stratify=labels
    )
    return NEDClassifier(rule=rule).fit(gallery, gallery_labels), queries, query_labels


def compared(rule: str, noise: float) -> tuple[QueryDrift, float]:
    """What is said of noisy queries, and their true accuracy."""
    classifier, queries, labels = fitted(rule)
    noisy = queries + noise * np.random.default_rng(SEED).normal(size=queries.shape)
    truth = float((classifier.predict(noisy) == labels).mean())
    return classifier.compare_queries(noisy), truth


@pytest.mark.parametrize("noise", [0.0, 1.0, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("rule", ["auto", "ned", "knn", "gou"])
def test_the_estimate_is_near_the_truth_however_far_the_queries(rule: str, noise: float) -> None:
    drift, truth = compared(rule, noise)
    assert drift.accuracy.estimate == pytest.approx(truth, abs=0.1)


def test_nearly_all_of_these_queries_are_farther_than_the_gallery_and_right() -> None:
    drift, truth = compared("auto", 4.0)
    assert truth > 0.95
    assert drift.distance.direction > 0.9
    assert drift.alarm


@pytest.mark.parametrize("rule", ["ned", "knn", "gou"])
def test_more_noise_leaves_the_estimate_of_the_plain_rules_near_the_truth(rule: str) -> None:
    drift, truth = compared(rule, 6.0)
    assert drift.accuracy.estimate == pytest.approx(truth, abs=0.1)


def test_what_it_gets_wrong_answers_that_are_right_though_hardly_sure() -> None:
    # The query's own scale makes the default rule ever less sure, sooner than it is wrong.
    drift, truth = compared("auto", 6.0)
    assert truth > 0.85
    assert truth - 0.3 < drift.accuracy.estimate < truth - 0.1
