"""save and load: the same to the last bit, or refused with a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from nearsure import NEDClassifier, model_file
from nearsure.arrays import AnyArray, FloatArray
from nearsure.errors import DegenerateTemperatureWarning, InvalidInputError, ModelFileError


def gallery(dtype: type = np.float64) -> tuple[AnyArray, AnyArray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    points = rng.normal(size=(3, 4))[labels] + rng.normal(size=(90, 4))
    return points.astype(dtype), labels


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    NEDClassifier().fit(*gallery()).save(tmp_path / "model.nearsure")
    return tmp_path / "model.nearsure"


class TestRoundTrip:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"rule": "gou"},
            {"metric": "cosine"},
            {"temperature": 0.1},
            {"max_fit_samples": 30},
            {"n_neighbors": "all", "objective": "brier"},
        ],
        ids=str,
    )
    def test_is_bit_exact(self, tmp_path: Path, parameters: dict[str, Any], dtype: type) -> None:
        Z, y = gallery(dtype)
        fitted = NEDClassifier(**parameters).fit(Z, y, groups=np.arange(90) // 2)
        fitted.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        assert loaded.get_params() == fitted.get_params()
        assert loaded.temperature_ == fitted.temperature_
        queries = Z + dtype(0.1)
        for before, after in (
            (fitted.predict_posterior(queries), loaded.predict_posterior(queries)),
            (fitted.leave_one_out_posterior(), loaded.leave_one_out_posterior()),
        ):
            np.testing.assert_array_equal(after.codes, before.codes)
            np.testing.assert_array_equal(after.probabilities, before.probabilities)
        if fitted.temperature_fit_ is not None and loaded.temperature_fit_ is not None:
            assert json.dumps(loaded.temperature_fit_.to_dict()) == json.dumps(
                fitted.temperature_fit_.to_dict()
            )

    @pytest.mark.parametrize(
        "names",
        [
            np.array(["Königsfischer", "雀", ""]),
            np.array(["a", "b", "c"], object),
            np.array([3, 5, 2**40]),
            np.array([1.0, 2.0, 3.0]),
            np.array([1, 2, 3], np.uint8),
            np.array([1, 2, 3], object),
            np.array([1, 2, 3], ">i8"),
        ],
        ids=["unicode", "object strings", "integers", "floats", "bytes", "objects", "big endian"],
    )
    def test_keeps_labels_and_their_type(self, tmp_path: Path, names: AnyArray) -> None:
        Z, y = gallery()
        NEDClassifier().fit(Z, names[y]).save(tmp_path / "model")
        classes = NEDClassifier.load(tmp_path / "model").classes_
        assert classes.dtype == names.dtype
        np.testing.assert_array_equal(classes, np.sort(names))

    def test_numbers_of_numpy_as_parameters(self, tmp_path: Path) -> None:
        numbers: dict[str, Any] = {
            "n_neighbors": np.int64(5),
            "temperature": np.float32(2),
            "max_fit_samples": np.int64(50),
            "random_state": np.int64(3),
        }
        classifier = NEDClassifier(**numbers)
        classifier.fit(*gallery()).save(tmp_path / "model")
        assert NEDClassifier.load(tmp_path / "model").get_params() == classifier.get_params()

    def test_a_fit_without_standard_error(self, tmp_path: Path) -> None:
        Z, y = gallery()
        with pytest.warns(DegenerateTemperatureWarning):
            NEDClassifier().fit(Z + 100 * y[:, None], y).save(tmp_path / "model")
        fit = NEDClassifier.load(tmp_path / "model").temperature_fit_
        assert fit is not None
        assert np.isnan(fit.standard_error)

    def test_what_was_fitted_not_what_was_set_since(self, tmp_path: Path) -> None:
        Z, y = gallery()
        fitted = NEDClassifier().fit(Z, y)
        before = fitted.predict_proba(Z)
        fitted.set_params(metric="cosine", rule="knn").save(tmp_path / "model")
        np.testing.assert_array_equal(
            NEDClassifier.load(tmp_path / "model").predict_proba(Z), before
        )

    def test_keeps_feature_names(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        Z, y = gallery()
        frame = pandas.DataFrame(Z, columns=["a", "b", "c", "d"])
        NEDClassifier().fit(frame, y).save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "d"]
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            loaded.predict(Z)

    def test_is_an_ordinary_safetensors_file(self, saved: Path) -> None:
        with safe_open(saved, framework="numpy") as file:
            np.testing.assert_array_equal(file.get_tensor("support_vectors"), gallery()[0])


class TestWriting:
    def test_a_crash_while_writing_leaves_the_old_file(
        self, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = saved.read_bytes()

        def crash(tensors: dict[str, FloatArray], filename: Path, metadata: object) -> None:
            del tensors, metadata
            Path(filename).write_bytes(b"half a fi")
            raise OSError("no space left on device")

        monkeypatch.setattr(model_file, "save_file", crash)
        with pytest.raises(OSError, match="no space"):
            NEDClassifier(temperature=9.0).fit(*gallery()).save(saved)
        assert saved.read_bytes() == before
        assert list(saved.parent.iterdir()) == [saved]

    def test_replaces_an_existing_model(self, saved: Path) -> None:
        NEDClassifier(temperature=9.0).fit(*gallery()).save(saved)
        assert NEDClassifier.load(saved).temperature_ == 9.0

    def test_a_folder_that_is_not_there_is_made(self, tmp_path: Path) -> None:
        path = tmp_path / "no" / "where" / "model"
        NEDClassifier(temperature=9.0).fit(*gallery()).save(path)
        assert NEDClassifier.load(path).temperature_ == 9.0

    def test_labels_that_no_file_can_hold(self, tmp_path: Path) -> None:
        Z, y = gallery()
        dates = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]").astype(object)
        fitted = NEDClassifier().fit(Z, dates[y])
        with pytest.raises(InvalidInputError, match=r"numbers or strings .* Got date"):
            fitted.save(tmp_path / "model")

    def test_a_random_state_that_no_file_can_hold(self, tmp_path: Path) -> None:
        fitted = NEDClassifier(random_state=np.random.RandomState(0)).fit(*gallery())
        with pytest.raises(InvalidInputError, match="random_state must be an integer or None"):
            fitted.save(tmp_path / "model")


class TestRefusal:
    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="no model file at"):
            NEDClassifier.load(tmp_path / "nowhere")

    @pytest.mark.parametrize("kept", [0, 1, 7, 100, -1000, -1])
    def test_cut_off(self, saved: Path, kept: int) -> None:
        saved.write_bytes(saved.read_bytes()[:kept])
        with pytest.raises(ModelFileError, match="cut off"):
            NEDClassifier.load(saved)

    def test_every_altered_byte(self, saved: Path) -> None:
        """Header, manifest and arrays alike: a flipped bit never goes unnoticed."""
        whole = saved.read_bytes()
        for position in range(0, len(whole), max(1, len(whole) // 300)):
            altered = bytearray(whole)
            altered[position] ^= 0x04
            saved.write_bytes(altered)
            with pytest.raises(ModelFileError):
                NEDClassifier.load(saved)

    def test_newer_format(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model_file, "FORMAT_VERSION", 2)
        NEDClassifier().fit(*gallery()).save(saved)
        monkeypatch.setattr(model_file, "FORMAT_VERSION", 1)
        with pytest.raises(ModelFileError, match=r"version 2, .* reads 1\. Upgrade"):
            NEDClassifier.load(saved)

    def test_someone_elses_safetensors(self, tmp_path: Path) -> None:
        save_file({"weights": np.zeros(3)}, tmp_path / "other")
        with pytest.raises(ModelFileError, match="not a nearsure model"):
            NEDClassifier.load(tmp_path / "other")

    def test_a_pickle_is_not_even_opened(self, tmp_path: Path) -> None:
        (tmp_path / "model").write_bytes(b"\x80\x04\x95")
        with pytest.raises(ModelFileError, match="not a nearsure model"):
            NEDClassifier.load(tmp_path / "model")


def test_bytes_are_as_good_as_a_file() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 20)
    points = rng.normal(size=(40, 3)) + (labels == "b")[:, None]
    classifier = NEDClassifier().fit(points, labels)
    kept = classifier.to_bytes()
    again = NEDClassifier.from_bytes(kept)
    queries = rng.normal(size=(9, 3))
    np.testing.assert_array_equal(again.predict_proba(queries), classifier.predict_proba(queries))
    for broken in (b"", kept[:7], kept[: len(kept) // 2], kept[:-1], b"x" * 100):
        with pytest.raises(ModelFileError, match="The model that was kept"):
            NEDClassifier.from_bytes(broken)
    altered = bytearray(kept)
    altered[-1] ^= 1
    with pytest.raises(ModelFileError, match="altered"):
        NEDClassifier.from_bytes(bytes(altered))


def test_a_file_may_be_read_by_whoever_may_read_new_files(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    NEDClassifier(temperature=1.0).fit([[0.0], [1.0]], [0, 1]).save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == other.stat().st_mode
