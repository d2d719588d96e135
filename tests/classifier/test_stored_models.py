"""Files of version 1, in which NED was all there was, and what a file of today keeps."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.errors import ModelFileError
from nearsure.index import ExactIndex, unit_vectors
from nearsure.labels import stored_classes
from nearsure.leaving_one_out import search_leaving_one_out
from nearsure.neighbors import Neighbors
from nearsure.posterior import score
from nearsure.temperature import TemperatureFit, fit_temperature

Z, Y = drawn(150)
Q = drawn(60, seed=2)[0]
NAMES = np.array(["ant", "bee", "cow"])
OLD_PARAMETERS = {
    "n_neighbors": "auto",
    "temperature": "auto",
    "metric": "euclidean",
    "rule": "ned",
    "objective": "nll",
    "max_fit_samples": 10_000,
    "random_state": 0,
}


def write_version_1(
    path: Path,
    *,
    classes: AnyArray = NAMES,
    metric: str = "euclidean",
    rule: str = "ned",
    temperature: float | None = None,
    fit: TemperatureFit | None = None,
    feature_names: tuple[str, ...] = (),
    groups: AnyArray | None = None,
) -> None:
    """The layout that version 1 wrote, by hand: nothing of today's writer is used."""
    manifest: dict[str, Any] = {
        "parameters": {**OLD_PARAMETERS, "metric": metric, "rule": rule},
        "metric": metric,
        "rule": rule,
        "n_neighbors": 50,
        "temperature": temperature,
        "temperature_fit": fit and fit.to_dict(),
        "classes_dtype": classes.dtype.str,
        "feature_names": list(feature_names),
    }
    tensors = {
        "support_vectors": unit_vectors(Z) if metric == "cosine" else Z,
        "support_codes": Y.astype(np.int64),
        "classes": stored_classes(classes),
        "fit_indices": np.arange(150),
    }
    if groups is not None:
        tensors["groups"] = groups
    digests = {}
    for name, tensor in tensors.items():
        digest = hashlib.sha256(f"{tensor.dtype.str}{tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
        digests[name] = digest.hexdigest()
    header = json.dumps({"format_version": 1, "manifest": manifest, "sha256": digests})
    checksum = hashlib.sha256(header.encode()).hexdigest()
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        path,
        metadata={"nearsure": header, "sha256": checksum},
    )


def fitted_temperature(points: AnyArray, groups: AnyArray | None = None) -> TemperatureFit:
    own = search_leaving_one_out(ExactIndex(points), points, np.arange(150), Y, k=50, groups=groups)
    return fit_temperature(own, Y)


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    fit = fitted_temperature(Z)
    write_version_1(tmp_path / "old", temperature=fit.temperature, fit=fit)
    return tmp_path / "old"


class TestVersion1:
    def test_it_answers_as_ned(self, old_file: Path) -> None:
        loaded = NEDClassifier.load(old_file)
        temperature = fitted_temperature(Z).temperature
        sq_distances, ids = ExactIndex(Z).search(Q, 50)
        expected = score(Neighbors(sq_distances, Y[ids]), temperature=temperature, n_classes=3)
        prediction = loaded.predict_with_confidence(Q)
        np.testing.assert_array_equal(prediction.labels, NAMES[expected.labels])
        np.testing.assert_array_equal(prediction.confidence, expected.confidence)
        np.testing.assert_array_equal(prediction.neighbors.ids, ids)
        np.testing.assert_allclose(
            loaded.predict_proba(Q), expected.to_csr().toarray(), rtol=0, atol=1e-15
        )
        assert loaded.temperature_ == temperature
        assert loaded.temperature_fit_ is not None
        assert loaded.temperature_fit_.loss == fitted_temperature(Z).loss
        assert loaded.sharpened_fit_ is None
        assert prediction.p_known is None

    def test_it_is_a_fit_of_ned_by_today(self, old_file: Path) -> None:
        today = NEDClassifier(rule="ned").fit(Z, NAMES[Y])
        loaded = NEDClassifier.load(old_file)
        assert_same_answers(loaded, today, Q)
        assert loaded.get_params() == today.get_params()
        assert_same_answers(loaded.refit(), today, Q)
        assert loaded.staleness().drift == 0.0

    def test_cosine(self, tmp_path: Path) -> None:
        fit = fitted_temperature(unit_vectors(Z))
        write_version_1(tmp_path / "old", metric="cosine", temperature=fit.temperature, fit=fit)
        today = NEDClassifier(rule="ned", metric="cosine").fit(Z, NAMES[Y])
        assert_same_answers(NEDClassifier.load(tmp_path / "old"), today, 7.0 * Q)

    @pytest.mark.parametrize("rule", ["knn", "gou", "dudani", "1nn"])
    def test_rules_without_a_temperature(self, rule: str, tmp_path: Path) -> None:
        write_version_1(tmp_path / "old", rule=rule)
        today = NEDClassifier(rule=rule).fit(Z, NAMES[Y])
        assert_same_answers(NEDClassifier.load(tmp_path / "old"), today, Q)

    def test_a_temperature_that_was_given(self, tmp_path: Path) -> None:
        write_version_1(tmp_path / "old", temperature=0.7)
        loaded = NEDClassifier.load(tmp_path / "old")
        assert loaded.temperature_fit_ is None
        assert_same_answers(loaded, NEDClassifier(temperature=0.7).fit(Z, NAMES[Y]), Q)

    def test_feature_names(self, tmp_path: Path) -> None:
        write_version_1(tmp_path / "old", temperature=0.7, feature_names=("a", "b", "c", "d"))
        loaded = NEDClassifier.load(tmp_path / "old")
        assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "d"]

    @pytest.mark.parametrize("classes", [np.array([5, 7, 9]), np.array(["a", "b", "c"], object)])
    def test_classes_of_any_kind(self, classes: AnyArray, tmp_path: Path) -> None:
        write_version_1(tmp_path / "old", temperature=0.7, classes=classes)
        loaded = NEDClassifier.load(tmp_path / "old")
        assert loaded.classes_.dtype == classes.dtype
        assert set(loaded.predict(Q)) <= set(classes.tolist())

    def test_it_lives_on(self, old_file: Path, tmp_path: Path) -> None:
        loaded = NEDClassifier.load(old_file)
        assert loaded.add(Q[:3], ["bee", "dog", "ant"]).tolist() == [150, 151, 152]
        loaded.remove([0])
        loaded.relabel([1], ["dog"])
        assert loaded.classes_.tolist() == ["ant", "bee", "cow", "dog"]
        assert loaded.accept_threshold(precision=0.7).n_points == 149
        assert len(loaded.audit().suspects.ids) == 152
        loaded.save(tmp_path / "new")
        assert_same_answers(NEDClassifier.load(tmp_path / "new"), loaded, Q)

    def test_groups_are_left_out_as_they_were(self, tmp_path: Path) -> None:
        groups = np.arange(150) // 2
        fit = fitted_temperature(Z, groups)
        write_version_1(tmp_path / "old", temperature=fit.temperature, fit=fit, groups=groups)
        loaded = NEDClassifier.load(tmp_path / "old")
        today = NEDClassifier(rule="ned").fit(Z, NAMES[Y], groups=groups)
        own, expected = loaded.leave_one_out_posterior(), today.leave_one_out_posterior()
        np.testing.assert_array_equal(own.probabilities, expected.probabilities)
        assert_same_answers(loaded.refit(), today, Q)

    def test_points_may_join_old_groups(self, tmp_path: Path) -> None:
        groups = np.arange(150) // 2
        write_version_1(tmp_path / "old", temperature=0.7, groups=groups)
        loaded = NEDClassifier.load(tmp_path / "old")
        loaded.add(Q[:2], ["ant", "bee"], groups=[10, 900])
        found = loaded._support.leave_one_out([150, 151], 151)
        assert set(range(151)) - set(np.asarray(found.ids)[0].tolist()) == {20, 21, 150}
        assert np.asarray(found.counts).tolist() == [149, 151]

    def test_a_fitted_file_can_be_stale(self, old_file: Path) -> None:
        loaded = NEDClassifier.load(old_file)
        assert loaded.temperature_fit_ is not None
        assert not loaded.staleness().is_stale


class TestToday:
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"rule": "sharpened"},
            {"rule": "ned", "objective": "brier"},
            {"temperature": 0.5},
            {"metric": "cosine", "unknown_share": 0.2},
            {"n_neighbors": "all", "max_fit_samples": 60, "random_state": 4},
            {"n_neighbors": np.int64(20), "unknown_share": np.float64(0.1)},
            {"prior": {"ant": 0.1, "bee": 0.2, "cow": 0.7}, "calibration": "shrunk"},
        ],
    )
    def test_everything_comes_back(self, parameters: dict[str, Any], tmp_path: Path) -> None:
        fitted = NEDClassifier(**parameters).fit(Z.astype(np.float32), NAMES[Y])
        fitted.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        queries = Q.astype(np.float32)
        assert_same_answers(loaded, fitted, queries)
        np.testing.assert_array_equal(loaded.predict_proba(queries), fitted.predict_proba(queries))
        assert loaded.get_params() == fitted.get_params()
        assert loaded._rule.to_dict() == fitted._rule.to_dict()
        np.testing.assert_array_equal(loaded.fit_indices_, fitted.fit_indices_)
        assert_same_answers(loaded.refit(), fitted.refit(), queries)

    def test_a_file_of_a_later_version_is_refused(self, tmp_path: Path) -> None:
        header = json.dumps({"format_version": 99, "manifest": {}, "sha256": {}})
        checksum = hashlib.sha256(header.encode()).hexdigest()
        save_file(
            {"a": np.ones(1)}, tmp_path / "new", metadata={"nearsure": header, "sha256": checksum}
        )
        with pytest.raises(ModelFileError, match="format version 99"):
            NEDClassifier.load(tmp_path / "new")
