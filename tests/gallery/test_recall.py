"""What an approximate engine finds, and the effort that a fit chooses for it."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import AdjustableEngine, Engine, Found, Stored
from nearsure.engines.embedded import FaissEngine, IndexSettings
from nearsure.engines.shards import ShardedEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineChangedWarning, InvalidInputError, LowRecallWarning
from nearsure.gallery import recall as recalls
from nearsure.gallery.opening import open_gallery
from nearsure.gallery.recall import Recall, measure_recall

N_POINTS, N_FEATURES, K = 3000, 12, 5
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(N_POINTS, N_FEATURES)).astype(np.float32)
LABELS = RNG.integers(10, size=N_POINTS)
QUERIES = RNG.normal(size=(200, N_FEATURES)).astype(np.float32)
# So few links, candidates and probes that many neighbours are missed.
POOR = IndexSettings(hnsw_links=6, hnsw_ef_construction=20, hnsw_ef_search=4, ivf_probes=1)
SETTINGS: dict[str, Any] = {"n_neighbors": K, "rule": "ned", "temperature": 1.0}


def faiss(index: str = "hnsw", settings: IndexSettings = POOR, metric: str = "euclidean") -> Engine:
    engine = FaissEngine(N_FEATURES, index, metric, settings)  # type: ignore[arg-type]
    engine.add(VECTORS, np.arange(N_POINTS), LABELS)
    return engine


def true_ids(queries: AnyArray, n: int) -> IntArray:
    distances = ((queries[:, None].astype(np.float64) - VECTORS[None]) ** 2).sum(axis=2)
    return np.argsort(distances, axis=1)[:, :n]


def share_of(found: AnyArray, true: IntArray) -> float:
    return float(np.mean([np.isin(own, ids).mean() for own, ids in zip(true, found, strict=True)]))


@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_recall_is_that_of_naive_search(index: str) -> None:
    engine = faiss(index)
    found = measure_recall(open_gallery(engine), K, max_effort=1)
    assert found is not None
    assert found.share is not None
    drawn = np.sort(np.random.default_rng(recalls.SEED).choice(N_POINTS, 300, replace=False))
    true = true_ids(VECTORS[drawn], K + 1)[:, 1:]
    answers = engine.search(VECTORS[drawn], K + 1).ids
    others = [[own for own in ids if own != i][:K] for ids, i in zip(answers, drawn, strict=True)]
    assert found.share == pytest.approx(share_of(np.array(others), true), abs=1e-9)
    assert found.share < 1.0  # or the comparison would say nothing
    assert (found.n_points, found.k) == (300, K)


@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_a_fit_raises_the_effort_and_answers_with_it(index: str) -> None:
    engine = faiss(index)
    classifier = NEDClassifier(engine=engine, max_effort=2000, **SETTINGS).fit_engine()
    recall = classifier.recall_
    assert isinstance(engine, AdjustableEngine)
    assert recall is not None
    assert recall.share is not None
    assert recall.effort is not None
    assert recall.share >= recalls.TARGET
    assert recall.effort > engine.effort.value  # type: ignore[union-attr]
    true = true_ids(QUERIES, K)
    assert share_of(engine.search(QUERIES, K).ids, true) < 0.95
    assert share_of(np.asarray(classifier.kneighbors(QUERIES).ids), true) >= 0.98
    # Half of it would not have been enough.
    less = NEDClassifier(engine=engine, max_effort=recall.effort // 2, **SETTINGS)
    with pytest.warns(LowRecallWarning, match="misses: allow a larger max_effort"):
        less.fit_engine()
    assert less.recall_ is not None
    assert less.recall_.effort == recall.effort // 2


def test_fingerprint_and_log_say_what_was_measured(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nearsure.engines"):
        classifier = NEDClassifier(engine=faiss("ivf"), max_effort=64, **SETTINGS).fit_engine()
    recall = classifier.recall_
    assert recall is not None
    assert recall.share is not None
    assert classifier.fingerprint_["probes"] == recall.effort
    assert classifier.fingerprint_["recall"] == round(recall.share, 4)
    assert f"with probes {recall.effort}, measured on 300 points" in caplog.text


def test_enough_stays_as_it_is() -> None:
    engine = faiss(settings=IndexSettings())
    recall = NEDClassifier(engine=engine, **SETTINGS).fit_engine().recall_
    assert recall is not None
    assert (recall.effort_name, recall.effort) == ("ef_search", 128)


def test_by_default_the_limit_is_a_multiple_of_what_was_set() -> None:
    one = IndexSettings(hnsw_links=6, hnsw_ef_construction=20, hnsw_ef_search=1)
    with pytest.warns(LowRecallWarning, match=r"ef_search 32"):
        NEDClassifier(engine=faiss(settings=one), **SETTINGS).fit_engine()


def test_nothing_is_measured_if_it_shall_not_be() -> None:
    engine = faiss()
    classifier = NEDClassifier(engine=engine, max_effort=0, **SETTINGS).fit_engine()
    assert classifier.recall_ is None
    assert classifier.fingerprint_ == engine.fingerprint()
    np.testing.assert_array_equal(classifier.kneighbors(QUERIES).ids, engine.search(QUERIES, K).ids)


@pytest.mark.parametrize("wrong", [-1, 1.5, "auto"])
def test_what_a_limit_may_be(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match="max_effort"):
        NEDClassifier(max_effort=wrong).fit(VECTORS[:50], LABELS[:50])  # type: ignore[arg-type]


def test_exact_search_needs_no_effort() -> None:
    assert NEDClassifier(**SETTINGS).fit(VECTORS, LABELS).recall_ is None
    with pytest.raises(InvalidInputError, match="no effort"):
        FaissEngine(2, "exact").search_with_effort(np.zeros((1, 2)), 1, 5)


def test_a_saved_model_keeps_the_effort(tmp_path: Path) -> None:
    classifier = NEDClassifier(engine=faiss("ivf"), max_effort=64, **SETTINGS).fit_engine()
    classifier.save(tmp_path / "model")
    again = NEDClassifier.load(tmp_path / "model")
    assert again.recall_ == classifier.recall_
    before, after = (one.predict_with_confidence(QUERIES) for one in (classifier, again))
    np.testing.assert_array_equal(after.neighbors.ids, before.neighbors.ids)
    np.testing.assert_array_equal(after.confidence, before.confidence)


def test_loading_sets_the_effort_of_an_engine(tmp_path: Path) -> None:
    """Whatever it is opened with; but another index is another one."""
    made = SqliteEngine.create(
        tmp_path / "gallery.sqlite",
        N_FEATURES,
        ids="integer",
        labels="integer",
        index="ivf",
        settings=POOR,
    )
    made.add(VECTORS, np.arange(N_POINTS), LABELS)
    classifier = NEDClassifier(engine=made, max_effort=64, **SETTINGS).fit_engine()
    stored, true = classifier.to_bytes(), true_ids(QUERIES, K)
    made.close()
    other = IndexSettings(hnsw_links=6, hnsw_ef_construction=20, hnsw_ef_search=4, ivf_probes=2)
    with SqliteEngine(tmp_path / "gallery.sqlite", settings=other) as engine:
        again = NEDClassifier.from_bytes(stored, engine)
        assert again.recall_ == classifier.recall_
        assert share_of(np.asarray(again.kneighbors(QUERIES).ids), true) >= 0.97
        assert again.use_engine(engine).recall_ == classifier.recall_
    with (
        SqliteEngine(tmp_path / "gallery.sqlite", index="hnsw") as engine,
        pytest.warns(EngineChangedWarning, match="recall"),
    ):
        assert NEDClassifier.from_bytes(stored, engine).recall_ is None


def test_a_refit_measures_again() -> None:
    classifier = NEDClassifier(engine=faiss("ivf"), max_effort=64, **SETTINGS).fit_engine()
    first = classifier.recall_
    classifier.set_params(max_effort=0).refit()
    assert classifier.recall_ is None
    assert classifier.set_params(max_effort=64).refit().recall_ == first


def test_cosine() -> None:
    recall = measure_recall(open_gallery(faiss("ivf", metric="cosine")), K, max_effort=10_000)
    assert recall is not None
    assert recall.share == 1.0 or recall.is_enough


def test_shards_are_raised_together() -> None:
    shards = ShardedEngine([FaissEngine(N_FEATURES, "ivf", settings=POOR) for _ in range(2)])
    shards.add(VECTORS, np.arange(N_POINTS), LABELS)
    recall = measure_recall(open_gallery(shards), K, max_effort=64)
    assert recall is not None
    assert recall.effort_name == "probes"
    assert recall.is_enough
    found = shards.search_with_effort(QUERIES, K, 10_000)
    np.testing.assert_array_equal(found.ids, true_ids(QUERIES, K))
    mixed = ShardedEngine([FaissEngine(N_FEATURES, index) for index in ("ivf", "exact")])
    assert mixed.effort is None


class Forgetful(FaissEngine):
    """Finds every second neighbour, and has no effort to choose."""

    @property
    def effort(self) -> None:
        """None."""

    def search(self, queries: AnyArray, k: int) -> Found:
        found = super().search(queries, 2 * k)
        assert found.labels is not None
        few = (part[:, ::2] for part in (found.sq_distances, found.ids, found.labels))
        sq_distances, ids, labels = few
        return Found(sq_distances, ids, np.minimum(found.counts, k), labels)


def test_an_engine_without_effort_is_measured() -> None:
    engine = Forgetful(N_FEATURES, "hnsw", settings=IndexSettings())
    engine.add(VECTORS, np.arange(N_POINTS), LABELS)
    classifier = NEDClassifier(engine=engine, **SETTINGS)
    with pytest.warns(LowRecallWarning, match="misses: build"):
        classifier.fit_engine()
    recall = classifier.recall_
    assert recall is not None
    # Of 5 true neighbours it finds the second and the fourth: the point itself is the first.
    assert recall.share == pytest.approx(0.4, abs=0.02)
    assert (recall.effort_name, recall.effort) == (None, None)


class SinglePrecision(Forgetful):
    """Finds all neighbours, and says how far they are as |q|^2 + |z|^2 - 2 q z in float32."""

    def search(self, queries: AnyArray, k: int) -> Found:
        asked = queries.astype(np.float32)
        products = asked @ VECTORS.T
        sq_norms = (VECTORS**2).sum(axis=1)
        rounded = (asked**2).sum(axis=1)[:, None] + sq_norms - 2 * products
        ids = np.argsort(rounded, axis=1, kind="stable")[:, :k]
        sq_distances = np.maximum(np.take_along_axis(rounded, ids, axis=1), 0).astype(np.float64)
        return Found(sq_distances, ids, np.full(len(queries), k), LABELS[ids])


def test_distances_that_are_rounded_are_no_lack_of_recall() -> None:
    engine = SinglePrecision(N_FEATURES, "hnsw", settings=IndexSettings())
    engine.add(VECTORS, np.arange(N_POINTS), LABELS)
    recall = measure_recall(open_gallery(engine), K)
    assert recall is not None
    assert recall.share == 1.0


def test_too_many_vectors_elsewhere_are_not_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recalls, "MOST_NUMBERS", 100)
    shards = ShardedEngine([faiss("ivf")])
    classifier = NEDClassifier(engine=shards, **SETTINGS).fit_engine()
    assert classifier.recall_ == Recall(None, 0, K)
    assert classifier.fingerprint_["recall"] is None
    assert "Recall was not measured" in caplog.text
    assert "not measured" in str(classifier.recall_)


def test_points_that_others_remove_meanwhile_are_passed_over() -> None:
    class Shrinking(FaissEngine):
        def fetch(self, ids: AnyArray) -> Stored:
            if len(ids) > 300 and 7 in ids:
                raise InvalidInputError("7 is gone")
            return super().fetch(ids)

    engine = Shrinking(N_FEATURES, "hnsw", settings=IndexSettings())
    engine.add(VECTORS, np.arange(N_POINTS), LABELS)
    recall = measure_recall(open_gallery(engine), K)
    assert recall is not None
    assert recall.is_enough


def test_copies_of_a_point_are_neighbours_like_others() -> None:
    engine = FaissEngine(N_FEATURES, "ivf", settings=IndexSettings(ivf_probes=1))
    engine.add(np.repeat(VECTORS[:100], 20, axis=0), np.arange(2000), np.repeat(LABELS[:100], 20))
    recall = measure_recall(open_gallery(engine), 10)
    assert recall is not None
    assert recall.share == 1.0


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_recall_does_not_depend_on_the_scale(factor: float) -> None:
    engine = FaissEngine(N_FEATURES, "hnsw", "euclidean", POOR)
    engine.add(factor * VECTORS, np.arange(N_POINTS), LABELS)
    found = measure_recall(open_gallery(engine), K, max_effort=np.int64(1))  # type: ignore[arg-type]
    plain = measure_recall(open_gallery(faiss()), K, max_effort=1)
    assert found is not None
    assert plain is not None
    assert type(found.effort) is int
    assert (found.share or 0) == pytest.approx(plain.share, abs=0.02)
    assert (found.share or 0) < 0.99


def test_an_effort_of_another_index_is_not_used() -> None:
    gallery = open_gallery(faiss("hnsw"))
    gallery.recall = Recall(0.5, 300, K, "probes", 512)
    own = gallery.engine.search(QUERIES, K)
    assert (np.asarray(gallery.search(QUERIES, K).ids) == own.ids).all()
    gallery.recall = Recall(0.5, 300, K, "ef_search", 512)
    assert (np.asarray(gallery.search(QUERIES, K).ids) != own.ids).any()
