"""NEDClassifier on an engine: what is refused, warned of, saved, and seen of others' changes."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from label_machine import LabelMachine, OwnLabelMachine, run_machine
from numpy_engine import NumpyEngine
from sklearn.base import clone

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.classifier import head as head_module
from nearsure.classifier import rule
from nearsure.engines import Fingerprint
from nearsure.engines.contract import Engine
from nearsure.engines.embedded import FaissEngine, exact
from nearsure.engines.shards import ShardedEngine
from nearsure.errors import (
    EngineChangedWarning,
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
    StaleFitWarning,
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


ENGINES: dict[str, Callable[[], Engine]] = {
    "numpy": lambda: NumpyEngine(DIMENSION, labels="text"),
    "shards": lambda: ShardedEngine([NumpyEngine(DIMENSION, labels="text") for _ in range(3)]),
    "text": lambda: NumpyEngine(DIMENSION, ids="text", labels="text"),
}


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("most_read", [50, 100_000])
@pytest.mark.parametrize("head", ["means", "logistic"])
def test_a_head_is_the_same_in_memory_and_in_an_engine(
    kind: str, head: Literal["means", "logistic"], most_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fitted through it, loaded with it, moved to it, and after changes."""
    monkeypatch.setattr(head_module, "MOST_READ", most_read)
    vectors, labels = _points()
    queries, query_labels = _points(29, seed=1)
    memory = NEDClassifier(head=head, engine="exact").fit(vectors, labels)
    engine, numbers = ENGINES[kind](), np.arange(120)
    ids: AnyArray = np.array([f"{i:03d}" for i in numbers]) if kind == "text" else numbers
    engine.add(vectors, ids, labels)
    through = NEDClassifier(head=head, engine=engine).fit_engine()
    with pytest.warns(EngineChangedWarning):
        moved = NEDClassifier.from_bytes(memory.to_bytes()).use_engine(engine)
    loaded = NEDClassifier.from_bytes(through.to_bytes(), engine)

    def check() -> None:
        expected = memory.predict_with_confidence(queries)
        for classifier in (through, loaded, moved):
            found = classifier.predict_with_confidence(queries)
            assert found.labels.tolist() == expected.labels.tolist()
            np.testing.assert_allclose(found.confidence, expected.confidence, atol=1e-6)

    check()
    np.testing.assert_allclose(
        through.predict_own().confidence, memory.predict_own().confidence, atol=1e-6
    )
    through.remove(ids[:3])
    memory.remove(numbers[:3])
    through.relabel(ids[10:12], ["a", "b"])
    memory.relabel(numbers[10:12], ["a", "b"])
    through.add(queries[:2], query_labels[:2], ids=["998", "999"] if kind == "text" else [998, 999])
    memory.add(queries[:2], query_labels[:2], ids=[998, 999])
    loaded, moved = through, through
    check()


@pytest.mark.parametrize("index", ["hnsw", "ivf"])
@pytest.mark.parametrize("head", ["means", "logistic"])
def test_an_index_that_finds_not_all_has_the_same_head(
    index: str, head: Literal["means", "logistic"]
) -> None:
    queries, _ = _points(29, seed=1)
    memory, approximate = (
        NEDClassifier(head=head, engine=kind).fit(*_points()) for kind in ("exact", index)
    )
    said, expected = (each.kneighbors(queries).class_scores for each in (approximate, memory))
    assert said is not None
    assert expected is not None
    # The index holds vectors in single precision.
    np.testing.assert_allclose(said.log_shares, expected.log_shares, rtol=1e-6, atol=1e-6)


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
    with pytest.raises(InvalidInputError, match="fit\\(X, y\\)"):
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


def test_a_new_class_that_could_not_be_added_stays_without_members() -> None:
    classifier = _fitted()
    point = np.full((1, DIMENSION), 30.0, np.float32)
    with pytest.raises(InvalidInputError):
        classifier.add(point, ["phantom"], ids=[0])
    classifier.add(point, ["real"], ids=[1000])
    assert classifier.classes_.tolist() == [*"abcdef", "phantom", "real"]
    assert classifier.support_labels([1000, 0, 1000]).tolist()[::2] == ["real", "real"]
    assert classifier.predict(point).tolist() == ["real"]
    assert classifier.predict_proba(point)[0, 6] == 0.0


def test_what_others_do_is_seen_before_any_prediction() -> None:
    """A class of others in the neighbourhood breaks neither staleness nor labels nor a refit."""
    for ask in ("staleness", "support_labels", "refit"):
        classifier = _fitted()
        engine = classifier.engine_
        assert engine is not None
        near = np.asarray(engine.fetch(np.arange(20)).vectors) + np.float32(0.01)
        engine.add(near, 700 + np.arange(20), np.array(["other"] * 20))
        if ask == "support_labels":
            assert classifier.support_labels([700]).tolist() == ["other"]
        else:
            getattr(classifier, ask)()
        assert "other" in classifier.classes_.tolist()


def test_a_given_prior_outlives_classes_of_others() -> None:
    classifier = _fitted(prior=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1])
    engine = classifier.engine_
    assert engine is not None
    engine.add(np.full((3, DIMENSION), 50.0), 700 + np.arange(3), np.array(["other"] * 3))
    queries, truth = _points(seed=1)
    assert (classifier.predict(queries) == truth).mean() > 0.8
    assert classifier.predict(np.full((1, DIMENSION), 50.0)).tolist() == ["other"]
    with pytest.raises(InvalidInputError, match="prior"):
        classifier.refit()


def test_labels_that_others_change_make_a_fit_stale() -> None:
    classifier = _fitted()
    engine = classifier.engine_
    assert engine is not None
    assert not classifier.staleness().is_stale
    ids = np.arange(0, 120, 3)
    engine.relabel(ids, np.roll(classifier.support_labels(ids), 1))
    assert classifier.staleness().is_stale


@pytest.mark.parametrize("n_removed", [6, 30])
def test_points_that_others_remove_count_as_changed(n_removed: int) -> None:
    classifier = _fitted()
    engine = classifier.engine_
    assert engine is not None
    assert classifier.staleness().share_changed == 0
    engine.remove(np.arange(n_removed))
    staleness = classifier.staleness()
    # A share of the points that this classifier knows of, which it has not counted again.
    assert staleness.share_changed == pytest.approx(n_removed / 120)
    assert staleness.share_changed > 0
    n_added = n_removed + 12
    engine.add(np.ones((n_added, DIMENSION)), 700 + np.arange(n_added), np.array(["a"] * n_added))
    assert classifier.staleness().share_changed == pytest.approx(12 / 120)


def test_counts_follow_what_others_did_when_points_go() -> None:
    classifier = _fitted()
    engine = classifier.engine_
    assert engine is not None
    engine.add(np.ones((40, DIMENSION)), 700 + np.arange(40), np.array(["other"] * 40))
    classifier.predict(np.ones((1, DIMENSION)))
    classifier.add(np.ones((1, DIMENSION)), ["ours"], ids=[900])
    with pytest.warns(StaleFitWarning):
        classifier.remove(700 + np.arange(39))
    sizes = dict(zip(classifier.classes_, classifier._fit.gallery.class_counts, strict=True))
    assert sizes["other"] == 1
    assert sizes["ours"] == 1
    with pytest.raises(InvalidInputError, match="Every class"):
        classifier.remove([739])


def test_ids_that_others_took_are_passed_over(tmp_path: Path) -> None:
    classifier = _fitted()
    classifier.save(tmp_path / "model.nearsure")
    engine = classifier.engine_
    first = NEDClassifier.load(tmp_path / "model.nearsure", engine=engine)
    assert first.add(np.ones((1, DIMENSION)), ["a"]).tolist() == [120]
    second = NEDClassifier.load(tmp_path / "model.nearsure", engine=engine)
    assert second.add(np.ones((1, DIMENSION)), ["a"]).tolist() == [121]
    assert first.add(np.ones((1, DIMENSION)), ["a"]).tolist() == [122]


def test_an_address_is_not_saved(tmp_path: Path) -> None:
    classifier = NEDClassifier(temperature=1.0).fit(*_points())
    classifier.set_params(engine="postgresql://ann:s3cret@db/x")
    with pytest.raises(InvalidInputError, match="open_engine"):
        classifier.save(tmp_path / "model.nearsure")
    assert not list(tmp_path.iterdir())


def test_cosine_is_checked_wherever_an_engine_comes_in(tmp_path: Path) -> None:
    vectors, labels = _points()
    raw = NumpyEngine(DIMENSION, labels="text")
    raw.add(vectors, np.arange(120), labels)
    classifier = NEDClassifier(metric="cosine", temperature=1.0).fit(vectors, labels)
    classifier.save(tmp_path / "model.nearsure")
    with pytest.raises(GalleryMismatchError, match="unit length"):
        classifier.use_engine(raw)
    with pytest.raises(GalleryMismatchError, match="unit length"):
        NEDClassifier.load(tmp_path / "model.nearsure", engine=raw)


@pytest.mark.parametrize("index", ["exact", "hnsw"])
@pytest.mark.parametrize("kind", ["integer", "text"])
def test_labels_and_codes_are_never_confused(
    index: str,
    kind: Literal["integer", "text"],
    tmp_path: Path,
) -> None:
    """A model with its own index answers through an engine with true labels, or says no."""
    vectors, names = _points()
    labels = names if kind == "text" else np.array([ord(name) for name in names.tolist()])
    classifier = NEDClassifier(engine=index).fit(vectors, labels)
    expected = classifier.predict(vectors)
    classifier.save(tmp_path / "model.nearsure")
    engine = NumpyEngine(DIMENSION, labels=kind)
    engine.add(vectors, np.arange(120), labels)
    other = NumpyEngine(DIMENSION, labels="text" if kind == "integer" else "integer")
    other.add(vectors, np.arange(120), names if kind == "integer" else np.arange(120) % 6)
    with pytest.warns(EngineChangedWarning):
        loaded = NEDClassifier.load(tmp_path / "model.nearsure", engine=engine)
    assert (loaded.predict(vectors) == expected).all()
    with pytest.raises(GalleryMismatchError, match="kind"):
        NEDClassifier.load(tmp_path / "model.nearsure", engine=other)
    if index == "hnsw":
        assert classifier.engine_ is not None
        fitted_anew = NEDClassifier(engine=classifier.engine_).fit_engine()
        if kind == "integer":
            assert (fitted_anew.predict(vectors) == expected).all()
    with pytest.raises(GalleryMismatchError, match="integers"):
        NEDClassifier(engine=NumpyEngine(DIMENSION, labels="integer")).fit(vectors, names)


def test_what_is_given_beside_an_engine_is_checked() -> None:
    vectors, labels = _points()
    engine = NumpyEngine(DIMENSION, labels=None)
    engine.add(vectors, np.arange(120))
    ids = np.arange(120)
    for y, own, problem in (
        (labels, np.zeros(120, np.int64), "distinct"),
        (np.append(labels, "z"), np.append(ids, 999), "does not hold"),
        (labels[:-1], ids[:-1], "119"),
        (np.full(120, np.nan), ids, "NaN"),
        (labels[:5], ids, "one label"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            NEDClassifier(engine=engine).fit_engine(y, own)
    classifier = NEDClassifier(engine=engine).fit_engine(labels, ids)
    with pytest.raises(InvalidInputError, match="distinct"):
        classifier.relabel([5, 5], ["a", "b"])


def test_groups_must_be_given_for_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a point that no search of the fit would come across."""
    monkeypatch.setattr(NumpyEngine, "search", lambda *_: pytest.fail("it searched"))
    vectors, labels = _points()
    engine = NumpyEngine(DIMENSION, labels="text")
    engine.add(vectors, np.arange(120), labels)
    all_but_one = np.delete(np.arange(120), 17)
    with pytest.raises(InvalidInputError, match=r"for ids 17\."):
        NEDClassifier(engine=engine).fit_engine(ids=all_but_one, groups=all_but_one // 2)


def test_nothing_is_loaded_if_the_fit_cannot_succeed() -> None:
    vectors, _ = _points()
    engine = NumpyEngine(DIMENSION, labels="text")
    with pytest.raises(InvalidInputError, match="two classes"):
        NEDClassifier(engine=engine, unknown_share=0.1).fit(vectors, np.array(["a"] * 120))
    assert engine.size() == 0


def test_a_prediction_during_an_addition_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points with a new class are in the engine before the classifier has counted them."""
    for engine in (
        "hnsw",
        TunedEngine(DIMENSION, labels="text"),
        NumpyEngine(DIMENSION, labels=None),
    ):
        classifier = NEDClassifier(engine=engine).fit(*_points())
        place = np.full((4, DIMENSION), 60.0, np.float32)
        seen: list[list[str]] = []
        gallery = classifier._fit.gallery
        assert not gallery.in_memory
        add = gallery.engine.add

        def add_and_ask(
            *arguments: object,
            add: Callable[..., None] = add,
            classifier: NEDClassifier = classifier,
            seen: list[list[str]] = seen,
        ) -> None:
            add(*arguments)
            seen.append(classifier.predict(np.full((1, DIMENSION), 60.0)).tolist())

        monkeypatch.setattr(gallery.engine, "add", add_and_ask)
        classifier.add(place, ["new"] * 4)
        assert seen == [["new"]]


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


def test_auto_says_what_it_chose(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "nearsure.engines")
    assert NEDClassifier(temperature=1.0).fit(*_points()).fingerprint_["index"] == "exact"
    assert "'exact' for 120 points" in caplog.text
    monkeypatch.setattr(exact, "LARGEST_EXACT", 100)
    assert NEDClassifier(temperature=1.0).fit(*_points()).fingerprint_["index"] == "hnsw"
    assert "'hnsw' for 120 points" in caplog.text


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
    monkeypatch.setattr(rule, "LARGEST_PERMUTATION", 100)
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


# Labels in this process, and in the engines whose contract has no classifier of its own.


@pytest.mark.parametrize("index", ["exact", "hnsw", "ivf"])
def test_labels_in_an_engine_of_faiss(index: Literal["exact", "hnsw", "ivf"]) -> None:
    run_machine(lambda: LabelMachine(lambda: FaissEngine(12, index=index), Engine.close), 40)


@pytest.mark.parametrize("index", ["exact", "hnsw"])
def test_labels_in_memory(index: str) -> None:
    def fitted(vectors: AnyArray, ids: AnyArray, labels: AnyArray, _: Engine) -> NEDClassifier:
        assert ids.tolist() == list(range(len(ids)))
        return NEDClassifier(3, rule="1nn", engine=index).fit(vectors, labels)

    run_machine(lambda: OwnLabelMachine(lambda: NumpyEngine(12), Engine.close, fitted), 20)


def test_a_class_of_another_writer_is_not_taken_for_a_new_one() -> None:
    """The shortest way to a wrong label that was ever acknowledged."""
    engine = NumpyEngine(2, labels="text")
    engine.add(np.eye(2), np.arange(2), np.array(["a", "b"]))
    engine.add(np.eye(2) + 1, np.arange(2, 4), np.array(["a", "b"]))
    classifier = NEDClassifier(1, rule="1nn", engine=engine).fit_engine()
    engine.relabel(np.array([1]), np.array(["new1"]))
    classifier.remove([1], allow_empty_class=True)
    classifier.add(np.zeros((1, 2)), ["new2"], ids=[900])
    stored = engine.fetch(np.array([900])).labels
    assert stored is not None
    assert stored.tolist() == ["new2"]
