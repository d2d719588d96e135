"""What the paper's theorem and its appendix say, checked against closed forms and invariances."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, special_ortho_group

from nearsure import NEDClassifier, Neighbors, score
from nearsure.arrays import FloatArray, IntArray
from nearsure.metrics import calibration_floor, expected_calibration_error
from nearsure.rules import RULE_NAMES, RuleName

MEANS = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 2.0]])
SPREAD = 0.8


def gaussian_classes(n_points: int, seed: int) -> tuple[FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(MEANS), n_points)
    points: FloatArray = MEANS[labels] + SPREAD * rng.normal(size=(n_points, 2))
    return points, labels


def full_sum(points: FloatArray, labels: IntArray, queries: FloatArray, T: float) -> FloatArray:
    """eq:theorem, as it is written."""
    kernel = np.exp(-np.square(queries[:, None] - points[None]).sum(axis=2) / T)
    sums = np.stack([kernel[:, labels == c].sum(axis=1) for c in range(len(MEANS))], axis=1)
    shares: FloatArray = sums / sums.sum(axis=1, keepdims=True)
    return shares


def test_all_neighbours_give_the_full_sum_of_the_theorem() -> None:
    points, labels = gaussian_classes(400, seed=0)
    queries, _ = gaussian_classes(50, seed=1)
    classifier = NEDClassifier(n_neighbors="all", temperature=0.3).fit(points, labels)
    np.testing.assert_allclose(
        classifier.predict_proba(queries), full_sum(points, labels, queries, 0.3), atol=1e-12
    )


def test_nearest_form_approaches_the_full_sum_as_k_grows() -> None:
    points, labels = gaussian_classes(1000, seed=0)
    queries, _ = gaussian_classes(100, seed=1)
    truth = full_sum(points, labels, queries, 0.1)
    errors = [
        np.abs(
            NEDClassifier(n_neighbors=k, temperature=0.1).fit(points, labels).predict_proba(queries)
            - truth
        ).max()
        for k in (5, 20, 80, 320, 1000)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.1
    assert errors[-1] < 1e-12


def test_full_sum_approaches_the_posterior_of_wider_gaussians() -> None:
    """Smoothing classes of variance s^2 with exp(-d^2 / T) gives variance s^2 + T / 2."""
    T = 0.5
    queries, _ = gaussian_classes(200, seed=1)
    variance = SPREAD**2 + T / 2
    densities = np.stack(
        [multivariate_normal(mean, variance * np.eye(2)).pdf(queries) for mean in MEANS], axis=1
    )
    truth = densities / densities.sum(axis=1, keepdims=True)
    errors = []
    for n_support in (300, 3000, 30_000):
        points, labels = gaussian_classes(n_support, seed=2)
        classifier = NEDClassifier(n_neighbors="all", temperature=T).fit(points, labels)
        errors.append(np.abs(classifier.predict_proba(queries) - truth).mean())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.004
    # A kernel of another width (T instead of T / 2, say) is clearly told apart.
    wrong = np.stack(
        [multivariate_normal(m, (SPREAD**2 + T) * np.eye(2)).pdf(queries) for m in MEANS], axis=1
    )
    wrong /= wrong.sum(axis=1, keepdims=True)
    assert np.abs(classifier.predict_proba(queries) - wrong).mean() > 5 * errors[2]


def test_confidence_is_calibrated_where_the_theorem_holds() -> None:
    """With support enough, what is left of the ECE is the noise of any perfect forecaster."""
    points, labels = gaussian_classes(16_000, seed=3)
    queries, truth = gaussian_classes(20_000, seed=4)
    classifier = NEDClassifier(n_neighbors=200, head=None).fit(points, labels)
    prediction = classifier.predict_with_confidence(queries)
    ece = expected_calibration_error(prediction.confidence, prediction.labels == truth)
    floor = calibration_floor(prediction.confidence, n_simulations=200, seed=0)
    assert floor < 0.008
    assert ece < 1.5 * floor


@pytest.fixture(params=RULE_NAMES)
def classifier(request: pytest.FixtureRequest) -> NEDClassifier:
    rule: RuleName = request.param
    return NEDClassifier(n_neighbors=15, rule=rule)


class TestInvariances:
    """What must not change the answer; NED's T is refitted each time."""

    points, labels = gaussian_classes(300, seed=5)
    queries, _ = gaussian_classes(80, seed=6)

    def probabilities(self, classifier: NEDClassifier) -> FloatArray:
        return classifier.fit(self.points, self.labels).predict_proba(self.queries)

    def test_rotation(self, classifier: NEDClassifier) -> None:
        rotation = special_ortho_group.rvs(2, random_state=0)
        turned = classifier.fit(self.points @ rotation, self.labels)
        np.testing.assert_allclose(
            turned.predict_proba(self.queries @ rotation), self.probabilities(classifier), atol=1e-6
        )

    def test_shift(self, classifier: NEDClassifier) -> None:
        shifted = classifier.fit(self.points + 1000, self.labels).predict_proba(self.queries + 1000)
        np.testing.assert_allclose(shifted, self.probabilities(classifier), atol=1e-6)

    def test_scale(self, classifier: NEDClassifier) -> None:
        before = self.probabilities(classifier)
        T = classifier.temperature_
        scaled = classifier.fit(3 * self.points, self.labels)
        np.testing.assert_allclose(scaled.predict_proba(3 * self.queries), before, atol=1e-6)
        if T is not None:
            assert scaled.temperature_ == pytest.approx(9 * T, rel=1e-5)

    def test_order_of_the_support_set(self, classifier: NEDClassifier) -> None:
        order = np.random.default_rng(0).permutation(300)
        shuffled = classifier.fit(self.points[order], self.labels[order])
        np.testing.assert_allclose(
            shuffled.predict_proba(self.queries), self.probabilities(classifier), atol=1e-9
        )

    def test_names_of_the_classes(self, classifier: NEDClassifier) -> None:
        before = self.probabilities(classifier)
        renamed = classifier.fit(self.points, np.array(["wren", "auk", "emu"])[self.labels])
        assert renamed.classes_.tolist() == ["auk", "emu", "wren"]
        np.testing.assert_allclose(
            renamed.predict_proba(self.queries), before[:, [1, 2, 0]], atol=1e-9
        )


def test_temperature_interpolates_between_1nn_and_knn() -> None:
    rng = np.random.default_rng(0)
    neighbors = Neighbors(np.sort(rng.random((50, 9)), axis=1), rng.integers(0, 4, (50, 9)))
    cold, hot = score(neighbors, temperature=1e-9), score(neighbors, temperature=1e9)
    np.testing.assert_array_equal(cold.labels, score(neighbors, rule="1nn").labels)
    np.testing.assert_allclose(
        hot.to_csr().toarray(), score(neighbors, rule="knn").to_csr().toarray(), atol=1e-8
    )
