"""The contract on files of milvus-lite."""

from pathlib import Path
from types import MappingProxyType

import pytest
from contract import ClassifierContract, EngineContract
from contract_lifetime import LifetimeTests
from contract_names import NamesTests
from contract_searching import SearchingTests
from milvus_contract import InIndex, MilvusEngines


class LiteEngines(MilvusEngines):
    @pytest.fixture(autouse=True)
    def _address(self, tmp_path: Path) -> None:
        self.address = str(tmp_path / "gallery.db")


class TestFlat(LiteEngines, EngineContract):
    pass


class TestClassifier(LiteEngines, ClassifierContract):
    building = MappingProxyType({"labels": "text"})


class TestLists(InIndex, LiteEngines, SearchingTests):
    building = MappingProxyType({"index": "ivf", "nlist": 8})
    searching = MappingProxyType({"nprobe": 5})


class TestTextUnderCosine(InIndex, LiteEngines, NamesTests, LifetimeTests):
    building = MappingProxyType(
        {"ids": "text", "labels": "text", "metric": "cosine", "index": "hnsw"}
    )
    other_searching = MappingProxyType({"ef": 99})
