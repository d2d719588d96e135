"""NEDClassifier on an engine: what is refused, warned of, saved, and seen of others' changes."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy_engine import NumpyEngine
from sklearn.base import clone

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.classifier import estimator
from nearsure.engines import Fingerprint
from nearsure.errors import (
    EngineChangedWarning,
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
)

DIMENSION = 5


class TunedEngine(NumpyEngine):
    """With a parameter that is part of its fingerprint, and a secret that is not."""

    effort = 10
    address = "postgresql://ann:s3cret@db/shop"

    def fingerprint(self) -> Fingerprint:
        return {"engine": "numpy", "effort": self.effort}


def _points(n: int = 120, seed: int = 0) -> tuple[AnyArray, AnyArray]:
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n) % 6)
    centres = 2.5 * np.random.default_rng(9).standard_normal((6, DIMENSION))
    vectors = centres[codes] + rng.standard_normal((n, DIMENSION))
    return vectors.astype(np.float32), np.array(list("abcdef"))[codes]


def _fitted(**options: object) -> NEDClassifier:
    engine = TunedEngine(DIMENSION, labels="text")
    return NEDClassifier(engine=engine, **options).fit(*_points())  # type: ignore[arg-type]


def test_another_parameter_of_the_same_engine_warns_once() -> None:
    classifier = _fitted()
    queries, _ = _points(seed=1)
    engine = classifier.engine_
    assert isinstance(engine, TunedEngine)
    classifier.predict(queries)
    engine.effort = 20
    with pytest.warns(EngineChangedWarning, match="effort 10 -> 20"):
        classifier.predict(queries)
    classifier.predict(queries)
    classifier.refit()
    assert classifier.fingerprint_["effort"] == 20
    classifier.predict(queries)


def test_another_engine_warns_and_answers() -> None:
    classifier = NEDClassifier(engine="exact").fit(*_points())
    queries, _ = _points(seed=1)
    before = classifier.predict_with_confidence(queries)
    other = TunedEngine(DIMENSION, labels="text")
    vectors, labels = _points()
    other.add(vectors, np.arange(len(vectors)), labels)
    with pytest.warns(EngineChangedWarning, match="index 'exact' -> None"):
        classifier.use_engine(other)
    after = classifier.predict_with_confidence(queries)
    assert (before.labels == after.labels).all()
    np.testing.assert_allclose(before.confidence, after.confidence, atol=1e-9)
    assert classifier.engine_ is other
    with pytest.raises(GalleryMismatchError, match="length 5"):
        classifier.use_engine(NumpyEngine(3, labels="text"))


@pytest.mark.parametrize(
    "address",
    ["postgresql://ann:s3cret@db/shop", "http://ann:s3cret@db:19530", "/tmp/s3cret.db"],  # noqa: S108
)
def test_an_address_is_no_parameter_and_is_not_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError, match="open_engine") as caught:
        NEDClassifier(engine=address).fit(*_points())
    assert "s3cret" not in str(caught.value)


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'auto', 'exact'"):
        NEDClassifier(engine="fiass").fit(*_points())
    with pytest.raises(InvalidInputError, match="engine"):
        NEDClassifier(engine=object()).fit(*_points())  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="fit\\(Z, y\\)"):
        NEDClassifier(engine="hnsw").fit_engine()


def test_an_engine_with_points_is_not_filled_again() -> None:
    classifier = _fitted()
    with pytest.raises(InvalidInputError, match="120 points already"):
        classifier.fit(*_points())
    assert len(classifier.support_ids_) == 120
    with pytest.raises(InvalidInputError, match="no points"):
        NEDClassifier(engine=NumpyEngine(DIMENSION)).fit_engine()


def test_dimension_metric_and_kinds_must_fit() -> None:
    vectors, labels = _points()
    with pytest.raises(GalleryMismatchError, match="length 3"):
        NEDClassifier(engine=NumpyEngine(3, labels="text")).fit(vectors, labels)
    with pytest.raises(GalleryMismatchError, match="metric='cosine'"):
        NEDClassifier(engine=NumpyEngine(DIMENSION, metric="cosine")).fit(vectors, labels)
    with pytest.raises(GalleryMismatchError, match="strings"):
        NEDClassifier(engine=NumpyEngine(DIMENSION, labels="text")).fit(vectors, np.arange(120) % 3)
    with pytest.raises(InvalidInputError, match="fit_engine"):
        NEDClassifier(engine=NumpyEngine(DIMENSION, ids="text")).fit(vectors, labels)


def test_cosine_needs_unit_vectors_in_an_engine_that_compares_them_as_they_are() -> None:
    vectors, labels = _points()
    engine = NumpyEngine(DIMENSION, labels="text")
    engine.add(vectors, np.arange(120), labels)
    with pytest.raises(GalleryMismatchError, match="unit length"):
        NEDClassifier(engine=engine, metric="cosine").fit_engine()
    scaling = NumpyEngine(DIMENSION, labels="text", metric="cosine")
    scaling.add(vectors, np.arange(120), labels)
    queries, _ = _points(seed=1)
    through = NEDClassifier(engine=scaling, metric="cosine").fit_engine()
    direct = NEDClassifier(engine="exact", metric="cosine").fit(vectors, labels)
    np.testing.assert_allclose(
        through.predict_with_confidence(queries).confidence,
        direct.predict_with_confidence(queries).confidence,
        atol=1e-6,
    )


def test_a_saved_model_holds_no_points_and_no_secret(tmp_path: Path) -> None:
    classifier = _fitted(unknown_share=0.1)
    path = tmp_path / "model.nearsure"
    classifier.save(path)
    assert b"s3cret" not in path.read_bytes()
    assert "s3cret" not in repr(classifier)
    with pytest.raises(InvalidInputError, match="engine="):
        NEDClassifier.load(path)
    engine = classifier.engine_
    assert engine is not None
    queries, _ = _points(seed=1)
    again = NEDClassifier.load(path, engine=engine).predict_with_confidence(queries)
    assert (again.confidence == classifier.predict_with_confidence(queries).confidence).all()


def test_a_model_loaded_with_other_parameters_warns(tmp_path: Path) -> None:
    classifier = _fitted()
    classifier.save(tmp_path / "model.nearsure")
    engine = classifier.engine_
    assert isinstance(engine, TunedEngine)
    engine.effort = 99
    with pytest.warns(EngineChangedWarning, match="effort 10 -> 99"):
        NEDClassifier.load(tmp_path / "model.nearsure", engine=engine)


def test_changes_since_the_fit_are_still_known_after_loading(tmp_path: Path) -> None:
    classifier = _fitted()
    classifier.relabel([0, 1], ["a", "a"], allow_empty_class=True)
    share = classifier.staleness().share_changed
    assert share > 0
    classifier.save(tmp_path / "model.nearsure")
    loaded = NEDClassifier.load(tmp_path / "model.nearsure", engine=classifier.engine_)
    assert loaded.staleness().share_changed == share


def test_classes_that_others_add_are_answers() -> None:
    classifier = _fitted()
    engine = classifier.engine_
    assert engine is not None
    far = np.full((8, DIMENSION), 40.0, np.float32)
    far += np.random.default_rng(3).standard_normal(far.shape).astype(np.float32)
    engine.add(far, 500 + np.arange(8), np.array(["zebra"] * 8))
    assert classifier.predict(far).tolist() == ["zebra"] * 8
    probabilities = classifier.predict_proba(far)
    assert probabilities.shape == (8, 7)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    staleness = classifier.staleness()
    assert staleness.share_changed == pytest.approx(8 / 120)
    classifier.refit()
    assert classifier.classes_.tolist() == [*"abcdef", "zebra"]
    assert classifier.staleness().share_changed == 0


def test_a_new_class_that_could_not_be_added_is_no_class() -> None:
    classifier = _fitted()
    point = np.ones((1, DIMENSION), np.float32)
    with pytest.raises(InvalidInputError):
        classifier.add(point, ["phantom"], ids=[0])
    classifier.add(point, ["real"], ids=[1000])
    assert classifier.classes_.tolist() == [*"abcdef", "real"]
    assert classifier.support_labels([1000]).tolist() == ["real"]


def test_a_server_that_dies_in_a_fit_leaves_the_old_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = _fitted()
    queries, _ = _points(seed=1)
    before = classifier.predict_with_confidence(queries).confidence
    engine = classifier.engine_

    def dead(*_: object) -> None:
        raise EngineUnavailableError("The server went away.")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "search", dead)
        for fit in (classifier.refit, classifier.fit_engine):
            with pytest.raises(EngineUnavailableError):
                fit()
    assert (classifier.predict_with_confidence(queries).confidence == before).all()


def test_a_clone_asks_the_same_engine() -> None:
    classifier = _fitted(rule="ned")
    copy = clone(classifier)
    assert copy.engine is classifier.engine
    assert copy.rule == "ned"
    assert not hasattr(copy, "classes_")


def test_a_fit_sample_is_the_same_in_memory_and_in_an_engine() -> None:
    vectors, labels = _points(400)
    direct = NEDClassifier(engine="exact", max_fit_samples=50).fit(vectors, labels)
    engine = NumpyEngine(DIMENSION, labels="text")
    through = NEDClassifier(engine=engine, max_fit_samples=50).fit(vectors, labels)
    assert direct.fit_indices_.tolist() == through.fit_indices_.tolist()
    assert through.fingerprint_ == {"engine": "numpy", "metric": "euclidean"}
    assert direct.engine_ is None


def test_a_sample_of_very_many_points_is_distinct_and_seeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimator, "LARGEST_PERMUTATION", 100)
    vectors, labels = _points(400)
    drawn = [
        NEDClassifier(temperature=1.0, max_fit_samples=50, random_state=seed)
        .fit(vectors, labels)
        .fit_indices_
        for seed in (0, 0, 1)
    ]
    assert drawn[0].tolist() == drawn[1].tolist() != drawn[2].tolist()
    assert len(np.unique(drawn[0])) == 50
    assert (np.diff(drawn[0]) > 0).all()


def test_the_paper_s_full_sum_needs_no_limit_or_says_so() -> None:
    vectors, labels = _points()
    limited = NumpyEngine(DIMENSION, labels="text", largest_k=100)
    with pytest.raises(InvalidInputError, match="100"):
        NEDClassifier("all", engine=limited).fit(vectors, labels).predict(vectors[:2])
    free = NumpyEngine(DIMENSION, labels="text")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        through = NEDClassifier("all", engine=free).fit(vectors, labels)
    direct = NEDClassifier("all", engine="exact").fit(vectors, labels)
    np.testing.assert_allclose(
        through.predict_with_confidence(vectors).confidence,
        direct.predict_with_confidence(vectors).confidence,
        atol=1e-6,
    )
