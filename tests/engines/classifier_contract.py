"""What a classifier answers through an engine: what it answers without, if the engine is exact."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from contract_base import EngineTests, scanned
from contract_points import DIMENSION, Points, clusters, ids_for, labels_for, points_for
from label_machine import LabelMachine, OwnLabelMachine, fit_beside, run_machine

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine
from nearsure.errors import EngineChangedWarning, InvalidInputError, UnusableGalleryError
from nearsure.metrics import expected_calibration_error

N_POINTS = 300
N_QUERIES = 120
# Classes overlap, so that confidence takes all values.
SPREAD = 1.3
Settings: TypeAlias = dict[str, Any]
SETTINGS: dict[str, Settings] = {
    "default": {},
    "no head": {"head": None},
    "class means": {"head": "means"},
    "logistic regression": {"head": "logistic"},
    "ned": {"rule": "ned"},
    "uniform prior": {"prior": "uniform"},
    "unknowns": {"unknown_share": 0.1},
    "cosine": {"metric": "cosine"},
    "sample": {"max_fit_samples": 120},
}


class ClassifierContract(EngineTests):
    """Tests of `NEDClassifier` through an engine; a subclass makes engines as for the contract."""

    largest_accuracy_difference = 0.05
    """How far accuracy may be off where the engine is not exact."""
    largest_calibration_difference = 0.05
    """How far the expected calibration error may be off where the engine is not exact."""

    n_histories = 12
    """How many histories of writers are tried; fewer where a gallery takes long to make."""

    def test_every_label_stays_true(self) -> None:
        """Whoever writes, fits and restarts in between."""

        def make() -> Engine:
            return self.new_engine(DIMENSION)

        if holds_labels(self):
            run_machine(lambda: LabelMachine(make, self.discard), self.n_histories)
        else:
            run_machine(lambda: OwnLabelMachine(make, self.discard, fit_beside), self.n_histories)

    @pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
    def test_fitted_through_an_engine(
        self,
        engine: Engine,
        settings: Settings,
        record_property: Callable[[str, object], None],
    ) -> None:
        points = classified(engine)
        ours = self.filled(engine, points, settings=settings)
        accuracy, calibration = self.check_same(
            ours, exact(engine, points, settings=settings), engine
        )
        record_property("accuracy difference", accuracy)
        record_property("calibration error difference", calibration)

    def test_groups(self, engine: Engine) -> None:
        points = classified(engine)
        groups = np.arange(N_POINTS) // 3
        ours = self.filled(engine, points, groups)
        self.check_same(ours, exact(engine, points, groups), engine)

    def test_fitted_on_what_the_engine_holds(self, engine: Engine) -> None:
        """Ids are scattered; labels come from the engine if it has them."""
        points = classified(engine)
        some = np.random.default_rng(4).permutation(5 * N_POINTS)[:N_POINTS]
        points = Points(np.sort(ids_for(engine, some.tolist())), points.vectors, points.labels)
        load(engine, points)
        classifier = fit_held(engine, points)
        assert classifier.engine_ is engine
        recall = classifier.recall_
        assert (recall is None) == engine.capabilities.exact
        if recall is None:
            assert classifier.fingerprint_ == engine.fingerprint()
        else:
            assert recall.share is not None
            assert recall.share >= self.least_recall
            assert classifier.fingerprint_ == recall.mark(engine.fingerprint())
        assert classifier.support_ids_.tolist() == points.ids.tolist()
        self.check_same(classifier, exact(engine, points), engine)

    @pytest.mark.parametrize("head", ["means", "logistic"])
    def test_the_gallery_lives(self, engine: Engine, head: str) -> None:
        """Added, removed, relabelled and fitted again, as without the engine."""
        points, settings = classified(engine), {"head": head}
        more, codes = clusters(10, seed=41, spread=SPREAD)
        y, new_class = names(engine, codes), names(engine, np.array([77]))
        # As text, too, these are the last: folds of points go by the order of their ids.
        ids = ids_for(engine, range(9990, 10_000))
        ours = self.filled(engine, points, settings=settings)
        theirs = exact(engine, points, settings=settings)
        numbers = np.arange(N_POINTS)
        for classifier, own_ids, new_ids in (
            (ours, points.ids, ids),
            (theirs, numbers, np.arange(9990, 10_000)),
        ):
            assert classifier.add(more, y, ids=new_ids).tolist() == new_ids.tolist()
            classifier.remove(own_ids[5:10])
            classifier.relabel(own_ids[30:35], y[:5])
            classifier.relabel(new_ids[:1], new_class)
        assert engine.size() == N_POINTS + 5
        if engine.capabilities.holds_labels:
            labels = engine.fetch(ids[:2]).labels
            assert labels is not None
            assert labels.tolist() == [new_class[0], y[1]]
        assert ours.classes_.tolist() == theirs.classes_.tolist()
        self.check_same(ours, theirs, engine)
        self.check_same(ours.refit(), theirs.refit(), engine)

    def test_saved_without_the_points(self, engine: Engine, tmp_path: Path) -> None:
        points = classified(engine)
        settings = {"unknown_share": 0.1, "head": "means"}
        classifier = self.filled(engine, points, settings=settings)
        queries = clusters(N_QUERIES, seed=42, spread=SPREAD)[0]
        before = classifier.predict_with_confidence(queries)
        classifier.save(tmp_path / "model.nearsure")
        stored = (tmp_path / "model.nearsure").read_bytes()
        for hidden in (self.secret, self.address):
            assert hidden is None or hidden.encode() not in stored
        again = NEDClassifier.load(tmp_path / "model.nearsure", engine=engine)
        after = again.predict_with_confidence(queries)
        np.testing.assert_array_equal(after.labels, before.labels)
        np.testing.assert_array_equal(after.confidence, before.confidence)

    def test_loaded_after_a_restart(self, engine: Engine, tmp_path: Path) -> None:
        classifier = self.filled(engine, classified(engine))
        queries = clusters(N_QUERIES, seed=43, spread=SPREAD)[0]
        before = classifier.predict_with_confidence(queries)
        classifier.save(tmp_path / "model.nearsure")
        reopened = self.reopen(engine)
        if reopened is None:
            pytest.skip("the engine keeps nothing")
        try:
            again = NEDClassifier.load(tmp_path / "model.nearsure", engine=reopened)
            after = again.predict_with_confidence(queries)
        finally:
            reopened.close()
        if engine.capabilities.exact:
            np.testing.assert_array_equal(after.labels, before.labels)
            np.testing.assert_allclose(after.confidence, before.confidence, atol=1e-12)
        else:
            assert np.mean(after.labels == before.labels) >= self.least_recall

    def test_an_engine_of_other_settings_is_noticed(self, engine: Engine, tmp_path: Path) -> None:
        points = classified(engine)
        self.filled(engine, points).save(tmp_path / "model.nearsure")
        other = self.engine_of_other_settings(DIMENSION)
        if other is None or other.metric != engine.metric:
            pytest.skip("there is nothing to set")
        try:
            load(other, points)
            with pytest.warns(EngineChangedWarning, match="refit"):
                NEDClassifier.load(tmp_path / "model.nearsure", engine=other)
        finally:
            self.discard(other)

    def test_a_gallery_that_is_emptied_gives_no_answer(self, engine: Engine) -> None:
        points = classified(engine)
        ours = self.filled(engine, points, settings={"temperature": 1.0})
        engine.remove(np.concatenate([portion.ids for portion in engine.scan()]))
        for ask in (ours.predict, ours.predict_proba, ours.predict_with_confidence):
            with pytest.raises(UnusableGalleryError, match="must hold points"):
                ask(points.vectors[:2])

    def test_fit_fills_only_an_empty_engine(self, engine: Engine) -> None:
        points = points_for(engine, 20)
        load(engine, points)
        vectors, codes = clusters(50, seed=44)
        with pytest.raises(InvalidInputError):
            NEDClassifier(engine=engine, metric=engine.metric).fit(vectors, names(engine, codes))
        assert self.is_unchanged(engine, points)

    def test_a_fit_that_cannot_be_loads_nothing(self, engine: Engine) -> None:
        vectors, codes = clusters(50, seed=45)
        y = names(engine, codes)
        impossible: list[Settings] = [
            {"rule": "none such"},
            {"prior": {"none such": 1.0}},
            {"n_neighbors": 0},
        ]
        for settings in impossible:
            classifier = NEDClassifier(engine=engine, metric=engine.metric).set_params(**settings)
            with pytest.raises(InvalidInputError):
                classifier.fit(vectors, y)
            assert scanned(engine) == []

    def filled(
        self,
        engine: Engine,
        points: Points,
        groups: AnyArray | None = None,
        settings: Settings | None = None,
    ) -> NEDClassifier:
        """Fitted by filling the engine, or after filling it where fit has no ids to give."""
        if engine.capabilities.ids == "integer":
            y = names_of(engine, points)
            return unfitted(engine, settings).fit(points.vectors, y, groups)
        load(engine, points, unit=unfitted(engine, settings).metric == "cosine")
        return fit_held(engine, points, groups, settings)

    def check_same(
        self, ours: NEDClassifier, theirs: NEDClassifier, engine: Engine
    ) -> tuple[float, float]:
        """Assert that two classifiers say the same; nearly, if the engine finds not all.

        How far accuracy and expected calibration error are apart.
        """
        queries, codes = clusters(N_QUERIES, seed=46, spread=SPREAD)
        truth = names(engine, codes)
        one, other = (each.predict_with_confidence(queries) for each in (ours, theirs))
        if engine.capabilities.exact:
            np.testing.assert_array_equal(one.labels, other.labels)
            # Unit vectors in single precision are rounded twice on their way into an engine, by
            # 1e-7 in all; a head's weights are some ten times as long as they.
            atol = 1e-6 if ours.metric_ == "euclidean" else 5e-6
            np.testing.assert_allclose(one.confidence, other.confidence, atol=atol, rtol=0)
        right, right_there = one.labels == truth, other.labels == truth
        accuracy = float(right.mean() - right_there.mean())
        calibration = expected_calibration_error(
            one.confidence, right
        ) - expected_calibration_error(other.confidence, right_there)
        assert abs(accuracy) <= self.largest_accuracy_difference
        assert abs(calibration) <= self.largest_calibration_difference
        return accuracy, calibration


def classified(engine: Engine) -> Points:
    """Points of overlapping classes, whose ids ascend from 0 on."""
    vectors, codes = clusters(N_POINTS, seed=40, spread=SPREAD)
    ids = np.sort(ids_for(engine, range(N_POINTS)))
    return Points(ids, vectors, labels_for(engine, codes.tolist()))


def names(engine: Engine, codes: AnyArray) -> AnyArray:
    """Labels of the engine's kind; strings if it holds none."""
    labels = labels_for(engine, codes.tolist())
    return np.array([f"class {code}" for code in codes]) if labels is None else labels


def names_of(engine: Engine, points: Points) -> AnyArray:
    if points.labels is not None:
        return points.labels
    return names(engine, clusters(N_POINTS, seed=40, spread=SPREAD)[1])


def load(engine: Engine, points: Points, *, unit: bool = False) -> None:
    vectors = points.vectors
    if unit:
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    engine.add(vectors, points.ids, points.labels)


def unfitted(engine: Engine, settings: Settings | None) -> NEDClassifier:
    return NEDClassifier(engine=engine, **{"metric": engine.metric, **(settings or {})})


def fit_held(
    engine: Engine,
    points: Points,
    groups: AnyArray | None = None,
    settings: Settings | None = None,
) -> NEDClassifier:
    """Fitted on points that the engine holds, with labels beside it if it has none."""
    y = None if engine.capabilities.holds_labels else names_of(engine, points)
    ids = None if y is None and groups is None else points.ids
    return unfitted(engine, settings).fit_engine(y, ids, groups)


def exact(
    engine: Engine,
    points: Points,
    groups: AnyArray | None = None,
    settings: Settings | None = None,
) -> NEDClassifier:
    """Fitted in memory on the same points."""
    y = names_of(engine, points)
    classifier = unfitted(engine, settings)
    classifier.engine = "exact"
    return classifier.fit(points.vectors, y, groups)


def holds_labels(tests: EngineTests) -> bool:
    """Whether the engines of these tests hold labels."""
    engine = tests.new_engine(DIMENSION)
    try:
        return engine.capabilities.holds_labels
    finally:
        tests.discard(engine)
