"""The contract on Qdrant's local mode and, where NEARSURE_QDRANT_URL names one, on a server."""

import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from contract import ClassifierContract, EngineContract
from contract_base import EngineTests

from nearsure.engines.contract import Engine
from nearsure.engines.qdrant import URL_VARIABLE, QdrantEngine

NOTHING: Mapping[str, Any] = MappingProxyType({})
_numbers = count()


class LocalEngines(EngineTests):
    """Each gallery in a folder of its own, as local mode takes one client at a time."""

    takes_negative_ids = False
    building = NOTHING
    searching = NOTHING

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.address = str(tmp_path)
        self.folder_of: dict[int, str] = {}

    def new_engine(self, dimension: int) -> Engine:
        folder = str(self.folder / f"gallery {next(_numbers)}")
        engine = QdrantEngine.create(dimension, folder, **self.building, **self.searching)
        self.folder_of[id(engine)] = folder
        return engine

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return QdrantEngine(self.folder_of[id(engine)], **self.searching)


class TestLocal(LocalEngines, EngineContract):
    pass


class TestTextUnderCosine(LocalEngines, EngineContract):
    building = MappingProxyType({"ids": "text", "labels": "text", "metric": "cosine"})


class TestNamedVectors(LocalEngines, EngineContract):
    building = MappingProxyType({"labels": "text"})
    searching = MappingProxyType({"vector_name": "embedding", "label_field": "sku"})


class TestClassifier(LocalEngines, ClassifierContract):
    building = MappingProxyType({"labels": "text"})
    n_histories = 4
