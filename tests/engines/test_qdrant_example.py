"""The example of an adapter keeps the contract."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contract import EngineContract
from qdrant_client import QdrantClient

from nearsure.engines.contract import Engine
from nearsure.errors import EngineUnavailableError, GalleryMismatchError

EXAMPLE = Path(__file__).parents[2] / "examples" / "qdrant_engine.py"
QdrantEngine = runpy.run_path(str(EXAMPLE))["QdrantEngine"]


@pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning")
class TestQdrant(EngineContract):
    takes_negative_ids = False

    @pytest.fixture(autouse=True)
    def local_qdrant(self) -> Iterator[None]:
        self.client = QdrantClient(":memory:")
        self.n_collections = 0
        yield
        self.client.close()

    def new_engine(self, dimension: int) -> Engine:
        self.n_collections += 1
        engine: Engine = QdrantEngine(self.client, f"gallery {self.n_collections}", dimension)
        return engine

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        reopened: Engine = QdrantEngine(self.client, "gallery 1", engine.dimension)
        return reopened

    def test_a_collection_of_other_vectors(self, engine: Engine) -> None:
        with pytest.raises(GalleryMismatchError, match="size=12"):
            QdrantEngine(self.client, "gallery 1", engine.dimension + 1)


def test_a_server_that_is_not_there() -> None:
    client = QdrantClient(url="http://127.0.0.1:9", check_compatibility=False, timeout=2)
    with pytest.raises(EngineUnavailableError, match="reached"):
        QdrantEngine(client, "gallery", 3).add(np.eye(3), np.arange(3), np.array(["a", "b", "c"]))
