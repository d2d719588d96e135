"""The contract on Chroma's embedded engine."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings
from contract import ClassifierContract, EngineContract
from contract_base import EngineTests
from contract_points import DIMENSION, points_for

from nearsure.engines.chroma import PATH_VARIABLE, ChromaEngine
from nearsure.engines.contract import Engine
from nearsure.errors import (
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    PartialGalleryError,
)

NOTHING: Mapping[str, Any] = MappingProxyType({})
_numbers = count()


class ChromaEngines(EngineTests):
    building = NOTHING

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.address = str(tmp_path)
        self.n_collections = 0

    def new_engine(self, dimension: int) -> Engine:
        return self.create(dimension, self.building)

    def create(self, dimension: int, building: Mapping[str, Any]) -> Engine:
        self.n_collections += 1
        name = f"gallery_{self.n_collections}"
        return ChromaEngine.create(dimension, self.address, collection=name, **building)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, {**self.building, "ef": 129})

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return ChromaEngine(self.address, collection="gallery_1")


class TestGraph(ChromaEngines, EngineContract):
    pass


class TestTextUnderCosine(ChromaEngines, EngineContract):
    building = MappingProxyType({"ids": "text", "labels": "text", "metric": "cosine"})


class TestClassifier(ChromaEngines, ClassifierContract):
    building = MappingProxyType({"labels": "text"})
    n_histories = 4
