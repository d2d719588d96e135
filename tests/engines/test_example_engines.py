"""The adapters in `examples/` keep the contract."""

import sqlite3
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest
from contract import EngineContract
from contract_base import EngineTests

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from duckdb_engine import DuckdbEngine
from sqlite_vec_engine import SqliteVecEngine
from usearch_engine import UsearchEngine

from nearsure.engines import SimpleEngine
from nearsure.engines.contract import Engine
from nearsure.errors import EngineUnavailableError

MOST_LINES = 60
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*_engine.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_adapter_is_short(path: Path) -> None:
    lines = [line.strip() for line in path.read_text().splitlines()]
    code = [line for line in lines if line and not line.startswith(("#", '"""'))]
    assert len(code) <= MOST_LINES


class InFiles(EngineTests):
    kind: type[SimpleEngine]

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.address = str(tmp_path)
        self.n_files = 0

    def open(self, number: int, dimension: int) -> Engine:
        return self.kind(f"{self.address}/{number}", dimension)  # type: ignore[call-arg]

    def new_engine(self, dimension: int) -> Engine:
        self.n_files += 1
        return self.open(self.n_files, dimension)

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return self.open(1, engine.dimension)


class TestUsearch(EngineContract):
    takes_negative_ids = False

    def new_engine(self, dimension: int) -> Engine:
        return UsearchEngine(dimension)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return UsearchEngine(dimension, ef=129)


class TestSqliteVec(InFiles, EngineContract):
    kind = SqliteVecEngine

    @pytest.fixture(autouse=True)
    def _extensions(self) -> None:
        if not hasattr(sqlite3.Connection, "enable_load_extension"):
            pytest.skip("this Python's sqlite3 loads no extensions")


class TestDuckdb(InFiles, EngineContract):
    kind = DuckdbEngine


class TestDuckdbVss(EngineContract):
    """Through its HNSW index, which keeps no order among equals: the ranking is SimpleEngine's."""

    def new_engine(self, dimension: int) -> Engine:
        try:
            duckdb.connect().execute("LOAD vss")
        except duckdb.Error as error:
            pytest.skip(f"DuckDB's vss extension is not installed: {type(error).__name__}")
        return DuckdbEngine(":memory:", dimension, vss=True)


class GoneError(Exception):
    """What a client might raise."""


def test_a_store_that_is_gone() -> None:
    engine = UsearchEngine(3)
    engine.unreachable = (GoneError,)

    def count() -> int:
        raise GoneError("password")

    engine.count = count  # type: ignore[method-assign]
    with pytest.raises(EngineUnavailableError, match="usearch cannot be reached") as caught:
        engine.add(np.eye(3), np.arange(3), np.arange(3))
    assert "password" not in str(caught.value)
