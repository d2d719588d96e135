"""The contract's tests on galleries in this process."""

import pytest
from contract import EngineContract

from nearsure.engines.contract import Engine
from nearsure.engines.embedded import FaissEngine, IndexSettings, hnsw


class TestExact(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "exact")

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, FaissEngine)
        engine.close()
        return FaissEngine.from_state(*engine.to_state())

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return FaissEngine(dimension, "exact", metric="cosine")


class TestHnsw(TestExact):
    @pytest.fixture(autouse=True)
    def _a_graph_is_searched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # So few points would all be looked at otherwise.
        monkeypatch.setattr(hnsw, "SPARE_CANDIDATES", 8)

    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "hnsw", settings=IndexSettings(hnsw_ef_search=32))

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return FaissEngine(dimension, "hnsw", settings=IndexSettings(hnsw_ef_search=33))


class TestIvf(TestExact):
    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "ivf", settings=IndexSettings(ivf_probes=5))

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return FaissEngine(dimension, "ivf", settings=IndexSettings(ivf_probes=6))


class TestCosine(TestExact):
    def new_engine(self, dimension: int) -> Engine:
        return FaissEngine(dimension, "hnsw", metric="cosine")
