"""The adapters in `examples/` keep the contract."""

import sqlite3
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import duckdb
import numpy as np
import pytest
from contract import EngineContract
from contract_base import EngineTests

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import sqlite_vec_engine
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
    def _extensions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if not hasattr(sqlite3.Connection, "enable_load_extension"):
            reason = "this Python's sqlite3 loads no extensions, and pysqlite3 is not installed"
            other = pytest.importorskip("pysqlite3", reason=reason)
            monkeypatch.setattr(sqlite_vec_engine, "sqlite3", other)


class TestDuckdb(InFiles, EngineContract):
    kind = DuckdbEngine


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the vss extension, which is that of a package here and not downloaded."""
    spec = find_spec("duckdb_extension_vss")
    if spec is None or spec.origin is None:
        pytest.skip("duckdb-extension-vss is not installed")
    (extension,) = Path(spec.origin).parent.rglob("vss.duckdb_extension")
    folder = str(tmp_path_factory.mktemp("extensions"))
    try:
        duckdb.connect(config={"extension_directory": folder}).execute(f"INSTALL '{extension}'")
    except duckdb.Error as error:
        pytest.skip(f"the vss extension is of another DuckDB: {type(error).__name__}")
    return folder


class TestDuckdbVss(EngineContract):
    """Through its HNSW index, which keeps no order among equals: the ranking is SimpleEngine's."""

    @pytest.fixture(autouse=True)
    def _vss(self, extensions: str, monkeypatch: pytest.MonkeyPatch) -> None:
        connect = partial(duckdb.connect, config={"extension_directory": extensions})
        monkeypatch.setattr(duckdb, "connect", connect)

    def new_engine(self, dimension: int) -> Engine:
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
