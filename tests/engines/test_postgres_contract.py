"""The contract, on a real server: kinds of index, ids, metrics and vectors."""

from typing import Any

import postgres_server
import pytest
from contract import EngineContract
from postgres_server import PASSWORD, Server

from nearsure.engines.contract import Engine
from nearsure.engines.postgres import PostgresEngine

server = postgres_server.server


class PostgresContract(EngineContract):
    secret = PASSWORD
    address = "127.0.0.1"
    opened: dict[str, Any] = {}  # noqa: RUF012 - each subclass has its own
    created: dict[str, Any] = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> None:
        self.server = server

    def new_engine(self, dimension: int) -> Engine:
        return PostgresEngine.create(
            self.server.uri,
            dimension=dimension,
            table=self.server.new_name(),
            **self.created,
            **self.opened,
        )

    def reopen(self, engine: Engine) -> Engine | None:
        assert isinstance(engine, PostgresEngine)
        engine.close()
        label = None if engine._layout.label is None else "label"
        return PostgresEngine(
            self.server.uri, table=engine._names.table, label_column=label, **self.opened
        )

    def discard(self, engine: Engine) -> None:
        assert isinstance(engine, PostgresEngine)
        postgres_server.drop(self.server, engine)


class TestExact(PostgresContract):
    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return PostgresEngine.create(
            self.server.uri, dimension=dimension, table=self.server.new_name(), refine=False
        )


class TestExactTextIds(PostgresContract):
    created = {"id_kind": "text", "label_kind": "text"}  # noqa: RUF012


class TestHnsw(PostgresContract):
    opened = {"index": "hnsw"}  # noqa: RUF012

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return PostgresEngine.create(
            self.server.uri,
            dimension=dimension,
            table=self.server.new_name(),
            index="hnsw",
            ef_search=41,
        )


class TestHnswCosineTextIds(PostgresContract):
    opened = {"index": "hnsw", "metric": "cosine"}  # noqa: RUF012
    created = {"id_kind": "text", "label_kind": "text", "m": 8}  # noqa: RUF012


class TestIvfflatInnerProductWithoutLabels(PostgresContract):
    opened = {"index": "ivfflat", "metric": "inner_product", "probes": 6}  # noqa: RUF012
    created = {"label_kind": None, "lists": 8}  # noqa: RUF012


class TestIvfflatTextIdsUnrefined(PostgresContract):
    relative_tolerance = 1e-4
    opened = {"index": "ivfflat", "probes": 6, "refine": False, "statement_timeout": 20.0}  # noqa: RUF012
    created = {"id_kind": "text", "lists": 8}  # noqa: RUF012
