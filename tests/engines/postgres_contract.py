"""How engines on PostgreSQL are made for the contract's tests."""

from typing import Any

import postgres_server
import pytest
from contract_base import EngineTests
from postgres_server import PASSWORD, Server

from nearsure.engines.contract import Engine
from nearsure.engines.postgres import PostgresEngine


class PostgresEngines(EngineTests):
    """A subclass says how tables are made and opened."""

    secret = PASSWORD
    address = "127.0.0.1"
    opened: dict[str, Any] = {}  # noqa: RUF012 - each subclass has its own
    created: dict[str, Any] = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> None:
        self.server = server

    def new_engine(self, dimension: int) -> Engine:
        return self.create(dimension, **self.created, **self.opened)

    def create(self, dimension: int, **options: Any) -> Engine:  # noqa: ANN401
        table = self.server.new_name()
        return PostgresEngine.create(self.server.uri, dimension=dimension, table=table, **options)

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
