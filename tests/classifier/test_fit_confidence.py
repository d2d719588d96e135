"""fit_confidence: the classifier's answers from somebody else's neighbours."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from nearsure import NEDClassifier, Neighbors, fit_confidence, leave_one_out
from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError

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
def test_answers_are_those_of_the_classifier(rule: str) -> None:
    gallery, labels = made_classes(400, seed=0)
    queries, _ = made_classes(100, seed=1)
    engine = NearestNeighbors().fit(gallery)
    own = leave_one_out(
        found_by_scikit_learn(engine, gallery, labels, K + 1), np.arange(len(labels))
    )
    fitted = fit_confidence(own, labels, rule=rule)
    posterior = fitted.posterior(found_by_scikit_learn(engine, queries, labels, K))
    expected = NEDClassifier(K, rule=rule).fit(gallery, labels).predict_posterior(queries)
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
        fit_confidence(own, [0], rule="auto")
    with pytest.raises(InvalidInputError, match="calibration must be one of"):
        fit_confidence(own, [0], calibration="magic")
