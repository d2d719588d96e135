"""Probabilities of own points, and what cleanlab finds with them."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, BoolArray
from nearsure.integrations.cleanlab import own_probabilities


def noisy_digits() -> tuple[AnyArray, AnyArray, BoolArray]:
    Z, y = load_digits(return_X_y=True)
    Z, y = Z[:800], y[:800]
    rng = np.random.default_rng(0)
    flipped = rng.random(len(y)) < 0.05
    return Z, np.where(flipped, (y + rng.integers(1, 10, len(y))) % 10, y), flipped


@pytest.mark.parametrize("unknown_share", [None, 0.2])
def test_rows_are_points_left_out(unknown_share: float | None) -> None:
    Z, y, _ = noisy_digits()
    classifier = NEDClassifier(head=None, rule="ned", unknown_share=unknown_share)
    shares = own_probabilities(classifier.fit(Z, y))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    temperature = classifier.temperature_
    assert temperature is not None
    for row in range(0, 800, 80):
        sq_distances = ((Z - Z[row]) ** 2).sum(axis=1)
        sq_distances[row] = np.inf
        near = np.argsort(sq_distances, kind="stable")[:50]
        weights = np.exp(-(sq_distances[near] - sq_distances[near[0]]) / temperature)
        plain = np.bincount(y[near], weights, minlength=10) / weights.sum()
        np.testing.assert_allclose(shares[row], plain, atol=1e-9)


def test_columns_are_in_the_order_of_sorted_labels() -> None:
    Z, y, _ = noisy_digits()
    later = y == 3
    classifier = NEDClassifier(head=None, rule="ned").fit(Z[~later], y[~later])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that much of the gallery is new
        classifier.add(Z[later], y[later])
    assert classifier.classes_.tolist()[-1] == 3
    shares = own_probabilities(classifier)
    labels = classifier.support_labels(classifier.support_ids_)
    assert (shares.argmax(axis=1) == labels).mean() > 0.85


def test_a_class_without_points_has_no_column() -> None:
    Z, y, _ = noisy_digits()
    classifier = NEDClassifier(head=None, rule="ned").fit(Z, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that much of the gallery is gone
        classifier.remove(np.flatnonzero(y == 3), allow_empty_class=True)
        shares = own_probabilities(classifier)
    labels = classifier.support_labels(classifier.support_ids_)
    present = np.unique(labels)
    assert shares.shape == (len(labels), 9)
    assert (present[shares.argmax(axis=1)] == labels).mean() > 0.85


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_datalab_finds_wrong_labels_with_them() -> None:
    pytest.importorskip("datasets", reason="Datalab needs pip install 'cleanlab[datalab]'")
    cleanlab: Any = pytest.importorskip("cleanlab", reason="cleanlab is not installed")
    Z, y, flipped = noisy_digits()
    precision = {}
    probabilities = own_probabilities(NEDClassifier().fit(Z, y))
    for name, given in {"ours": {"pred_probs": probabilities}, "knn": {"features": Z}}.items():
        lab = cleanlab.Datalab({"label": y.tolist()}, label_name="label", verbosity=0)
        lab.find_issues(**given, issue_types={"label": {}})
        scores = lab.get_issues("label")["label_score"].to_numpy()
        precision[name] = average_precision_score(flipped, -scores)
    assert precision["ours"] > 0.9
    assert precision["ours"] > precision["knn"]
