"""How engines on Milvus are made for the contract's tests."""

from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module
from itertools import count
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from contract_base import N_POINTS, EngineTests
from contract_points import Points, points_for

from nearsure.engines.contract import Engine
from nearsure.engines.milvus import MilvusEngine
from nearsure.errors import EngineError

NOTHING: Mapping[str, Any] = MappingProxyType({})
_numbers = count()


class MilvusEngines(EngineTests):
    """A subclass stores `address`, and says how collections are made and searched."""

    secret = "root:Milvus"  # noqa: S105  # read by servers with authentication alone
    building = NOTHING
    searching = NOTHING
    other_searching: Mapping[str, Any] = MappingProxyType({"consistency": "Bounded"})

    def new_engine(self, dimension: int) -> Engine:
        return self.create(dimension, self.searching)

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, self.other_searching)

    def reopen(self, engine: Engine) -> Engine | None:
        engine.close()
        return self.open(name_of(engine), self.searching)

    def create(self, dimension: int, searching: Mapping[str, Any]) -> Engine:
        return MilvusEngine.create(
            dimension,
            self.address,
            token=self.secret,
            collection=f"gallery_{next(_numbers)}",
            **self.building,
            **searching,
        )

    def open(self, name: str, searching: Mapping[str, Any]) -> Engine:
        return MilvusEngine(
            self.address,
            token=self.secret,
            collection=name,
            label_field="label" if self.building.get("labels", "integer") else None,
            **searching,
        )


class ReusedCollections(MilvusEngines):
    """Collections are emptied and used again, for a server takes seconds to make one."""

    _emptied: ClassVar[defaultdict[str, list[str]]] = defaultdict(list)

    def create(self, dimension: int, searching: Mapping[str, Any]) -> Engine:
        names = self._emptied[self._kind(dimension)]
        return self.open(names.pop(), searching) if names else super().create(dimension, searching)

    def discard(self, engine: Engine) -> None:
        try:
            engine.size()
        except EngineError:
            engine = self.open(name_of(engine), self.searching)
        for portion in list(engine.scan()):
            engine.remove(portion.ids)
        engine.close()
        self._emptied[self._kind(engine.dimension)].append(name_of(engine))

    def _kind(self, dimension: int) -> str:
        return f"{self.address} {dimension} {sorted(self.building.items())}"


class InIndex(EngineTests):
    """Points lie in the index when they are searched, not before it."""

    @pytest.fixture
    def points(self, engine: Engine) -> Points:
        points = points_for(engine, N_POINTS)
        engine.add(points.vectors, points.ids, points.labels)
        bring_into_index(engine)
        return points


def bring_into_index(engine: Engine) -> None:
    """Until it is written to disk, milvus-lite and servers compare with every vector."""
    assert isinstance(engine, MilvusEngine)
    engine.finish_index()
    if engine._connection.is_file:
        servers = import_module("milvus_lite.server_manager").server_manager_instance._servers
        collection = servers[engine._connection._address.shown][1].get_collection(name_of(engine))
        # It builds the index in the background, and does not say when it is done.
        collection._wait_for_bg(timeout=30)
        assert all(segment.indexes for segment in collection._segment_cache.values())
    else:
        # It would take what was indexed into its memory some ten seconds later.
        engine._points.ask("release_collection")
        engine._points.ask("load_collection")


def name_of(engine: Engine) -> str:
    assert isinstance(engine, MilvusEngine)
    return engine._points.name
