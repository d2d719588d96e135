"""The contract's tests on the plainest engine, so that they are known to be passable."""

from contract import EngineContract
from numpy_engine import NumpyEngine

from nearsure.engines.contract import Engine


class TestNumbers(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, largest_k=100)

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, NumpyEngine)
        engine.close()
        return NumpyEngine(engine.dimension, largest_k=100, store=engine.store)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return NumpyEngine(dimension, metric="cosine")


class TestText(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, ids="text", labels="text")


class TestCosineWithoutLabels(EngineContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, labels=None, metric="cosine")
