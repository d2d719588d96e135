"""Points streamed into an engine; what is cut off leaves nothing behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import nearsure, points, refused, succeeded, write_npz

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.cli import load
from nearsure.engines.embedded import FaissEngine
from nearsure.errors import GalleryNotFoundError


class Server:
    """Galleries by name, as a database has them; stands where an engine's class does."""

    def __init__(self) -> None:
        self.galleries: dict[str, FaissEngine] = {}
        self.made: dict[str, Any] = {}
        self.fails_at: int | None = None

    def __call__(
        self, uri: str | None, *, table: str = "gallery", metric: str = "x"
    ) -> FaissEngine:
        del uri, metric
        if table not in self.galleries:
            raise GalleryNotFoundError(f"There is no table {table}.")
        return self.galleries[table]

    def create(
        self, uri: str | None = None, *, dimension: int, table: str = "gallery", **options: str
    ) -> FaissEngine:
        self.made = {"uri": uri, "dimension": dimension, "table": table, **options}
        engine = _Told(dimension)
        engine.server = self
        self.galleries[table] = engine
        return engine


class _Told(FaissEngine):
    """Is interrupted when its server says so, and stays open for the test."""

    server: Server
    n_adds = 0

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        self.n_adds += 1
        if self.server.fails_at == self.n_adds:
            raise KeyboardInterrupt
        super().add(vectors, ids, labels)

    def close(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(load, "_class_at", lambda _: server)
    monkeypatch.setattr("nearsure.cli.load.ROWS_AT_A_TIME", 20)
    return server


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    return write_npz(tmp_path / "g.npz", points()[0], np.arange(90) % 3)


def test_points_are_loaded_in_chunks_and_fitted_there(
    tmp_path: Path, server: Server, gallery: Path
) -> None:
    model = tmp_path / "m.safetensors"
    words = ["--into", "postgresql://host/db", "--table", "birds", "-o", model]
    succeeded("fit", gallery, *words)
    kinds = {"ids": "integer", "labels": "integer", "metric": "euclidean"}
    assert server.made == {
        "uri": "postgresql://host/db",
        "dimension": 4,
        "table": "birds",
        **kinds,
    }
    engine = server.galleries["birds"]
    assert (engine.size(), getattr(engine, "n_adds", 0)) == (90, 5)
    queries, _ = points(40, seed=1)
    expected = NEDClassifier().fit(points()[0], np.arange(90) % 3)
    np.testing.assert_allclose(
        NEDClassifier.load(model, engine).predict_with_confidence(queries).confidence,
        expected.predict_with_confidence(queries).confidence,
        rtol=1e-6,
    )


def test_an_interrupted_load_is_taken_back(tmp_path: Path, server: Server, gallery: Path) -> None:
    server.fails_at = 4
    run = nearsure("fit", gallery, "--into", "postgres", "-o", tmp_path / "m.safetensors")
    assert run.code == 130
    assert run.err.endswith("nearsure: Interrupted; no partial files were left.\n")
    assert server.galleries["gallery"].size() == 0
    assert not (tmp_path / "m.safetensors").exists()
    # The empty table that is left is filled by the same command.
    server.fails_at = None
    succeeded("fit", gallery, "--into", "postgres", "-o", tmp_path / "m.safetensors")
    assert server.galleries["gallery"].size() == 90


def test_a_fit_that_fails_takes_the_points_back_too(
    tmp_path: Path, server: Server, gallery: Path
) -> None:
    run = nearsure("fit", gallery, "--into", "postgres", "-k", 91, "-o", tmp_path / "m.safetensors")
    assert run.code == 2
    assert server.galleries["gallery"].size() == 0


def test_points_that_are_there_are_never_mixed_with_others(
    tmp_path: Path, server: Server, gallery: Path
) -> None:
    words = ["fit", gallery, "--into", "postgres", "-o", tmp_path / "m.safetensors"]
    succeeded(*words)
    assert "holds 90 points already" in refused(*words)
    assert server.galleries["gallery"].size() == 90
