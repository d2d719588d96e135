"""Loads that are watched, given up, repeated, or under way twice at once."""

import threading
from typing import Any

import numpy as np
import postgres_server
import pytest
from postgres_server import N_POINTS, Server, add_one

from nearsure.engines.postgres import PostgresEngine
from nearsure.errors import InvalidInputError

server = postgres_server.server
engine = postgres_server.engine


def test_a_load_that_is_given_up_adds_nothing(engine: PostgresEngine) -> None:
    class GivenUpError(Exception):
        pass

    def give_up(_: int) -> None:
        raise GivenUpError

    with pytest.raises(GivenUpError):
        engine.add(np.ones((9, 8)), np.arange(9) + 1000, np.zeros(9, np.int64), progress=give_up)
    assert engine.size() == N_POINTS
    add_one(engine)


def test_progress_counts_to_the_end(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsure.engines.postgres.engine._BLOCK", 4)
    sent: list[int] = []
    engine.add(np.ones((9, 8)), np.arange(9) + 1000, np.zeros(9, np.int64), progress=sent.append)
    assert sent == [4, 8, 9]


def test_ids_that_are_there_are_named(engine: PostgresEngine) -> None:
    ids = np.arange(N_POINTS - 2, N_POINTS + 8)
    with pytest.raises(InvalidInputError, match=f"{N_POINTS - 2}, {N_POINTS - 1}, which"):
        engine.add(np.ones((10, 8)), ids, np.zeros(10, np.int64))
    assert engine.size() == N_POINTS


def test_two_first_loads_at_once(server: Server) -> None:
    table = server.new_name()
    options: dict[str, Any] = {"table": table, "index": "hnsw"}
    with (
        PostgresEngine.create(server.uri, dimension=8, **options) as one,
        PostgresEngine(server.uri, **options) as other,
    ):
        vectors = np.random.default_rng(0).normal(size=(600, 8))
        barrier = threading.Barrier(2)

        def load(engine: PostgresEngine, first: int) -> None:
            barrier.wait(10)
            engine.add(vectors, np.arange(600) + first, np.zeros(600, np.int64))

        threads = [threading.Thread(target=load, args=pair) for pair in ((one, 0), (other, 600))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert one.size() == 1200
        found = other.search(vectors[:20], 2)
        np.testing.assert_array_equal(found.ids, np.arange(20)[:, None] + [0, 600])
        assert len(server.run(f"SELECT 1 FROM pg_index WHERE indrelid = '{table}'::regclass")) == 2  # noqa: S608
        postgres_server.drop(server, one)
