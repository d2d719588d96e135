"""How far neighbours alone, and the class as a whole, support an answer; which head, and why."""

from pathlib import Path

import numpy as np
import pytest

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.engines.sqlite import SqliteEngine
from nearsure.heads.joint import HeadFit, Joint

# Queries here are few, or of classes that came later.
pytestmark = pytest.mark.filterwarnings(
    "ignore::nearsure.errors.QueriesDifferWarning", "ignore::nearsure.errors.StaleFitWarning"
)

N_CLASSES, DIMENSION = 5, 12


def draw(n: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Round classes that lie in two of many directions."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % N_CLASSES
    centres = np.zeros((N_CLASSES, DIMENSION))
    angles = 2 * np.pi * np.arange(N_CLASSES) / N_CLASSES
    centres[:, :2] = 2.5 * np.column_stack([np.cos(angles), np.sin(angles)])
    return centres[codes] + rng.normal(size=(n, DIMENSION)), codes


def fit(**parameters: object) -> NEDClassifier:
    return NEDClassifier(n_neighbors=10, **parameters).fit(*draw(200, seed=0))  # type: ignore[arg-type]


def naive_head(classifier: NEDClassifier, queries: AnyArray) -> FloatArray:
    """Probabilities of all classes by the head, query by query."""
    head = classifier.kneighbors(queries).class_scores
    assert head is not None
    shares = np.zeros((len(queries), N_CLASSES))
    for row in range(len(queries)):
        for code, log_share in zip(head.codes[row], head.log_shares[row], strict=True):
            shares[row, code] = np.exp(log_share)
    return shares


@pytest.mark.parametrize("head", ["means", "logistic"])
def test_support_is_what_either_says_alone(head: str) -> None:
    classifier, queries = fit(head=head), draw(50, seed=1)[0]
    prediction = classifier.predict_with_confidence(queries)
    support = classifier.support(prediction)
    codes = prediction.posterior.labels
    agrees = prediction.neighbors.labels == codes[:, None]
    shares = classifier.vote_shares(prediction.neighbors)
    np.testing.assert_array_equal(support.shares, shares)
    np.testing.assert_allclose(support.neighbors, (shares * agrees).sum(axis=1))
    by_head = naive_head(classifier, queries)
    assert support.head is not None
    np.testing.assert_allclose(support.head, by_head[np.arange(50), codes], rtol=1e-9)
    for each in (support.neighbors, support.head):
        assert (each >= 0).all()
        assert (each <= 1).all()
    assert support.neighbors.std() > 0.1


def test_another_prior_counts_for_both() -> None:
    classifier = fit(head="means", prior=[0.6, 0.1, 0.1, 0.1, 0.1])
    queries = draw(50, seed=1)[0]
    prediction = classifier.predict_with_confidence(queries)
    codes, support = prediction.posterior.labels, classifier.support(prediction)
    weighted = naive_head(classifier, queries) * [3.0, 0.5, 0.5, 0.5, 0.5]
    weighted /= weighted.sum(axis=1, keepdims=True)
    assert support.head is not None
    np.testing.assert_allclose(support.head, weighted[np.arange(50), codes], rtol=1e-9)


@pytest.mark.filterwarnings("ignore::nearsure.errors.ManyMissesWarning")
def test_a_class_without_a_neighbour_has_no_support_by_neighbours() -> None:
    classifier = NEDClassifier(n_neighbors=4, head="means").fit(*draw(200, seed=0))
    prediction = classifier.predict_with_confidence(draw(1000, seed=1)[0])
    absent = (prediction.neighbors.labels != prediction.posterior.labels[:, None]).all(axis=1)
    support = classifier.support(prediction)
    assert absent.any()
    assert (support.neighbors[absent] == 0).all()
    assert (support.neighbors[~absent] > 0).all()
    assert support.head is not None
    assert (support.head[absent] > 1 / N_CLASSES).all()


@pytest.mark.parametrize("parameters", [{"head": None}, {"rule": "ned"}])
def test_without_a_head_neighbours_alone_support(parameters: dict[str, object]) -> None:
    classifier = fit(**parameters)
    prediction = classifier.predict_with_confidence(draw(5, seed=1)[0])
    assert classifier.support(prediction).head is None
    assert (classifier.support(prediction).neighbors > 0).all()


def test_a_head_has_no_opinion_on_a_class_that_came_later() -> None:
    classifier = fit(head="logistic")
    far = np.full((30, DIMENSION), 20.0) + np.random.default_rng(3).normal(size=(30, DIMENSION))
    classifier.add(far, np.full(30, N_CLASSES))
    prediction = classifier.predict_with_confidence(np.vstack([far[:1], draw(1, seed=1)[0]]))
    assert prediction.labels.tolist() == [N_CLASSES, 0]
    support = classifier.support(prediction)
    assert support.head is not None
    assert np.isnan(support.head).tolist() == [True, False]
    assert support.neighbors[0] == pytest.approx(1.0)


def test_a_head_of_a_cosine_engine_sees_directions(tmp_path: Path) -> None:
    """Engines keep vectors as they came, while queries come at unit length."""
    vectors, codes = draw(200, seed=0)
    vectors *= np.random.default_rng(4).uniform(0.1, 10.0, (200, 1))
    queries, ids = draw(40, seed=1)[0], np.arange(200)
    with SqliteEngine.create(tmp_path / "g.sqlite", DIMENSION, metric="cosine") as engine:
        engine.add(vectors, np.array([f"p{i:03}" for i in ids]), codes.astype(str))
        there = NEDClassifier(metric="cosine", head="means", engine=engine).fit_engine()
        here = NEDClassifier(metric="cosine", head="means").fit(vectors, codes.astype(str))
        first, second = (one.predict_with_confidence(queries) for one in (there, here))
        np.testing.assert_allclose(first.confidence, second.confidence, rtol=1e-4)
        there.remove(np.array(["p003", "p004"]))
        here.remove([3, 4])
        first, second = (one.predict_with_confidence(queries) for one in (there, here))
        np.testing.assert_allclose(first.confidence, second.confidence, rtol=1e-4)


JOINT = Joint(1.0, 1.0, 0.1)
ERRORS = {"means": 0.01, "logistic": 0.02}
ONE_CLASS = "there is one class"
CHOICES = {
    "Logistic regression is used beside the neighbours: with logistic regression the log loss of "
    "own points falls by 0.300 (standard error 0.020); with class means it falls by 0.303 "
    "(standard error 0.010), which is not clearly more.": HeadFit(
        "logistic", JOINT, {"means": 0.303, "logistic": 0.3}, ERRORS
    ),
    "Class means are used beside the neighbours: with class means the log loss of own points falls "
    "by 0.200 (standard error 0.010); logistic regression was not tried, as it would take "
    "long.": HeadFit("means", JOINT, {"means": 0.2}, ERRORS, {"logistic": "it would take long"}),
    "The neighbours answer alone, as no head helps beyond chance: with class means the log loss of "
    "own points rises by 0.004 (standard error 0.010); with logistic regression it falls by 0.001 "
    "(standard error 0.020).": HeadFit(None, None, {"means": -0.004, "logistic": 0.001}, ERRORS),
    "The neighbours answer alone: class means and logistic regression were not tried, as there is "
    "one class.": HeadFit(left_out={"means": ONE_CLASS, "logistic": ONE_CLASS}),
    "The neighbours answer alone.": HeadFit(),
}


@pytest.mark.parametrize("sentence", CHOICES)
def test_the_choice_of_a_head_is_a_sentence(sentence: str) -> None:
    assert str(CHOICES[sentence]) == sentence
