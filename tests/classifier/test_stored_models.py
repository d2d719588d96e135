"""What a model file keeps, and which versions are read."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier
from nearsure.errors import ModelFileError

Z, Y = drawn(150)
Q = drawn(60, seed=2)[0]
NAMES = np.array(["ant", "bee", "cow"])


class TestRoundTrip:
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
        assert loaded.rule_.to_dict() == fitted.rule_.to_dict()
        np.testing.assert_array_equal(loaded.fit_indices_, fitted.fit_indices_)
        assert_same_answers(loaded.refit(), fitted.refit(), queries)

    @pytest.mark.parametrize(
        ("version", "remedy"), [(99, "Upgrade"), (2, "Fit and save"), (1, "Fit")]
    )
    def test_a_file_of_another_version_is_refused(
        self, tmp_path: Path, version: int, remedy: str
    ) -> None:
        header = json.dumps({"format_version": version, "manifest": {}, "sha256": {}})
        checksum = hashlib.sha256(header.encode()).hexdigest()
        save_file(
            {"a": np.ones(1)}, tmp_path / "new", metadata={"nearsure": header, "sha256": checksum}
        )
        with pytest.raises(ModelFileError, match=f"format version {version}, .* {remedy}"):
            NEDClassifier.load(tmp_path / "new")
