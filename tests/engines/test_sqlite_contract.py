"""The contract's tests on galleries in an SQLite file."""

from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from contract import ClassifierContract, EngineContract
from contract_base import EngineTests
from contract_changing import ChangingTests
from contract_lifetime import LifetimeTests

from nearsure.engines.contract import Engine
from nearsure.engines.embedded import IndexSettings, hnsw
from nearsure.engines.sqlite import SqliteEngine

INTEGERS = MappingProxyType({"ids": "integer", "labels": "integer"})


class SqliteEngines(EngineTests):
    """A subclass says how galleries are made; they are reopened as they were created."""

    created: MappingProxyType[str, Any] = MappingProxyType({})
    other: MappingProxyType[str, Any] = MappingProxyType({"index": "hnsw"})

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.address = str(tmp_path)
        self._numbers = count()

    def new_engine(self, dimension: int) -> Engine:
        return self.create(dimension, self.created)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, {**self.created, **self.other})

    def create(self, dimension: int, options: Any) -> Engine:  # noqa: ANN401
        path = Path(str(self.address)) / f"gallery {next(self._numbers)}.sqlite"
        return SqliteEngine.create(path, dimension, **options)

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, SqliteEngine)
        engine.close()
        return SqliteEngine(engine._file.path)


class GraphIsSearched(SqliteEngines):
    created = MappingProxyType(
        {**INTEGERS, "index": "hnsw", "settings": IndexSettings(hnsw_ef_search=32)}
    )
    other = MappingProxyType({"settings": IndexSettings(hnsw_ef_search=32, hnsw_links=31)})

    @pytest.fixture(autouse=True)
    def _a_graph_is_searched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # So few points would all be looked at otherwise.
        monkeypatch.setattr(hnsw, "SPARE_CANDIDATES", 8)


class CellsAreOpened(SqliteEngines):
    created = MappingProxyType({"index": "ivf", "settings": IndexSettings(ivf_probes=5)})
    other = MappingProxyType({"settings": IndexSettings(ivf_probes=5, ivf_cells=4)})


class TestText(SqliteEngines, EngineContract):
    pass


class TestIntegers(SqliteEngines, EngineContract):
    created = INTEGERS


class TestHnsw(GraphIsSearched, EngineContract):
    pass


class TestIvf(CellsAreOpened, ChangingTests, LifetimeTests):
    """Without what does not depend on the index, or is the same as for a `FaissEngine`."""


class TestCosine(SqliteEngines, EngineContract):
    created = MappingProxyType({"metric": "cosine", "precision": "float64"})


class TestClassifierOnText(SqliteEngines, ClassifierContract):
    pass


class TestClassifierOnHnsw(GraphIsSearched, ClassifierContract):
    """With integers, so that these are classified, too."""
