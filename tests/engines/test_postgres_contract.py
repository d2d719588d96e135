"""The contract, on a real server: kinds of index, ids, metrics and vectors."""

import postgres_server
from contract import EngineContract
from postgres_contract import PostgresEngines

from nearsure.engines.contract import Engine

server = postgres_server.server


class PostgresContract(PostgresEngines, EngineContract):
    pass


class TestExact(PostgresContract):
    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, refine=False)


class TestExactTextIds(PostgresContract):
    created = {"id_kind": "text", "label_kind": "text"}  # noqa: RUF012


class TestHnsw(PostgresContract):
    opened = {"index": "hnsw"}  # noqa: RUF012

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, index="hnsw", ef_search=41)


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
