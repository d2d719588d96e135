"""A model file and a data set of queries for the tests of this folder."""

from pathlib import Path

import numpy as np
import pytest
from partitioned_data import NAMES, SIZES, all_queries, drawn, write_points
from worker_openers import gallery

from nearsure import NEDClassifier


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectors, codes = drawn(300, seed=0)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    NEDClassifier(20, unknown_share=0.1).fit(vectors, NAMES[codes]).save(path)
    return path


@pytest.fixture(scope="session")
def gallery_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the engine of `worker_openers` reads if TEST_GALLERY names it."""
    vectors, codes = drawn(300, seed=0)
    path = tmp_path_factory.mktemp("gallery") / "gallery.npz"
    np.savez(path, vectors=vectors, labels=codes)
    return path


@pytest.fixture
def engine_model(gallery_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model file without points, and the environment that says where they are."""
    monkeypatch.setenv("TEST_GALLERY", str(gallery_file))
    path = tmp_path / "engine-model.safetensors"
    NEDClassifier(20, engine=gallery()).fit_engine().save(path)
    return path


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    """Three files, one of them in a folder of its own, with ids and truth."""
    vectors, labels = all_queries()
    edges = np.cumsum([0, *SIZES])
    for name, first, last in zip(("a", "b", "deep/c"), edges, edges[1:], strict=False):
        part = slice(first, last)
        path = tmp_path / "queries" / f"{name}.parquet"
        write_points(path, vectors[part], labels[part], np.arange(first, last), row_group_size=50)
    return tmp_path / "queries"
