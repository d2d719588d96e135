"""Every prediction compares its queries with the gallery."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from moved_queries import draw
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import QueriesDifferWarning
from nearsure.model_file import read_model, write_model


@pytest.fixture(scope="module")
def classifier() -> NEDClassifier:
    return NEDClassifier().fit(*draw(1200, seed=0))


@pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")
@pytest.mark.parametrize("n", [30, 300, 2000])
def test_queries_like_the_gallery_raise_hardly_an_alarm(n: int) -> None:
    alarms = 0
    for gallery in range(5):
        fitted = NEDClassifier().fit(*draw(1200, seed=gallery))
        for seed in range(20):
            queries, _ = draw(n, seed=100 + seed)
            alarms += fitted.predict_with_confidence(queries).differences != ()
    # The tests have levels of 0.4% together; 4 of 100 would be chance once in a thousand runs.
    assert alarms < 4


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_posterior"])
def test_queries_that_differ_are_warned_of(classifier: NEDClassifier, method: str) -> None:
    queries, _ = draw(300, seed=1, noise=2.0)
    with pytest.warns(QueriesDifferWarning, match="not like the gallery") as caught:
        getattr(classifier, method)(queries)
    assert [Path(one.filename) for one in caught] == [Path(__file__)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"noise": 1.6}, "their answers are less sure"),
        ({"noise": 1.6}, "they lie farther away"),
        ({"n_classes": 5}, "their classes come in other proportions"),
    ],
)
def test_reasons_are_named(
    classifier: NEDClassifier, changes: dict[str, float], reason: str
) -> None:
    queries, _ = draw(400, seed=2, **changes)  # type: ignore[arg-type]
    with pytest.warns(QueriesDifferWarning, match=reason):
        prediction = classifier.predict_with_confidence(queries)
    assert prediction.differences is not None
    assert reason in prediction.differences


def test_few_queries_are_not_compared(classifier: NEDClassifier) -> None:
    far = 30.0 + draw(29, seed=3)[0]
    assert classifier.predict_with_confidence(far).differences is None


def test_queries_are_not_compared_if_that_is_not_asked_for(classifier: NEDClassifier) -> None:
    queries, _ = draw(300, seed=1, noise=2.0)
    with pytest.warns(QueriesDifferWarning):
        compared = classifier.predict_with_confidence(queries)
    plain = classifier.predict_with_confidence(queries, compare=False)
    assert (bool(compared.differences), plain.differences) == (True, None)
    assert classifier.find_differences(plain.neighbors) == compared.differences
    np.testing.assert_array_equal(plain.labels, compared.labels)
    np.testing.assert_array_equal(plain.confidence, compared.confidence)


@pytest.mark.parametrize("size", [2, 3])
def test_a_missing_fellow_is_no_difference(size: int) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(200, 16))
        codes, asked = np.repeat(np.arange(200), size), rng.integers(0, 200, 400)
        points = centres[codes] + 0.4 * rng.normal(size=(len(codes), 16))
        queries = centres[asked] + 0.4 * rng.normal(size=(400, 16))
        fitted = NEDClassifier().fit(points, codes)
        assert fitted.predict_with_confidence(queries).differences == ()


def test_queries_are_compared_in_the_proportions_of_the_prior() -> None:
    points, codes = draw(1200, seed=50)
    prior = np.where(np.arange(12) < 4, 0.2, 0.025)
    few, _ = draw(200, seed=1)
    many, _ = draw(800, seed=2, n_classes=4)
    queries = np.concatenate([few, many])
    with pytest.warns(QueriesDifferWarning, match="other proportions"):
        NEDClassifier().fit(points, codes).predict(queries)
    fitted = NEDClassifier(prior=prior / prior.sum()).fit(points, codes)
    assert fitted.predict_with_confidence(queries).differences == ()


def test_unknown_queries_in_the_expected_share_are_no_difference() -> None:
    centres = np.random.default_rng(5).normal(size=(40, 16))

    def draw_of(n: int, seed: int, classes: int) -> tuple[AnyArray, IntArray]:
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, classes, n)
        return centres[codes] + 0.5 * rng.normal(size=(n, 16)), codes

    points, codes = draw_of(1500, 0, 32)
    fitted = NEDClassifier(unknown_share=0.2).fit(points, codes)
    queries, _ = draw_of(500, 1, 40)
    assert fitted.predict_with_confidence(queries).differences == ()
    with pytest.warns(QueriesDifferWarning, match="farther away"):
        NEDClassifier().fit(points, codes).predict(queries)
    with pytest.warns(QueriesDifferWarning, match="farther away"):
        fitted.predict(queries[np.repeat(np.flatnonzero(draw_of(500, 1, 40)[1] >= 32), 4)])


def test_a_model_file_keeps_what_queries_are_compared_with(
    classifier: NEDClassifier, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    classifier.save(path)
    queries, _ = draw(300, seed=1, noise=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", QueriesDifferWarning)
        expected = classifier.predict_with_confidence(queries).differences
        assert NEDClassifier.load(path).predict_with_confidence(queries).differences == expected
    manifest, tensors = read_model(path)
    del manifest["n_compared"]
    kept = {name: part for name, part in tensors.items() if not name.startswith("compared_")}
    write_model(path, manifest, kept)
    # In memory it is measured again.
    with pytest.warns(QueriesDifferWarning):
        assert NEDClassifier.load(path).predict_with_confidence(queries).differences == expected
