"""What a classifier says through the plainest engine, and through several of them."""

from contract import ClassifierContract
from numpy_engine import NumpyEngine

from nearsure.engines.contract import Engine
from nearsure.engines.shards import ShardedEngine


class TestClassifierOnNumbers(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension)

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, NumpyEngine)
        return NumpyEngine(engine.dimension, store=engine.store)


class TestClassifierOnText(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, ids="text", labels="text")


class TestClassifierOnCosineWithoutLabels(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return NumpyEngine(dimension, labels=None, metric="cosine")


class TestClassifierOnShards(ClassifierContract):
    def new_engine(self, dimension: int) -> Engine:
        return ShardedEngine([NumpyEngine(dimension, labels="text") for _ in range(3)])

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return ShardedEngine([NumpyEngine(dimension, labels="text") for _ in range(2)])
