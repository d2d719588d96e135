"""What PostgreSQL is asked in a search, and that no answer is shorter than it need be."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import postgres_server
import psycopg
import pytest
from contract_points import all_sq_distances, check_answer, clusters, points_for
from postgres_server import N_POINTS, Server, add_one

from nearsure.engines.postgres import PostgresEngine
from nearsure.engines.postgres.schema import Layout
from nearsure.errors import InvalidInputError

server = postgres_server.server


class Galleries:
    """Makes engines, and clears them away."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.made: list[PostgresEngine] = []

    def create(self, dimension: int, **options: Any) -> PostgresEngine:  # noqa: ANN401
        table = self.server.new_name()
        engine = PostgresEngine.create(self.server.uri, table=table, dimension=dimension, **options)
        self.made.append(engine)
        return engine

    def open(self, engine: PostgresEngine, **options: Any) -> PostgresEngine:  # noqa: ANN401
        self.made.append(PostgresEngine(self.server.uri, table=engine._names.table, **options))
        return self.made[-1]


@pytest.fixture
def galleries(server: Server) -> Iterator[Galleries]:
    galleries = Galleries(server)
    yield galleries
    for engine in galleries.made:
        postgres_server.drop(server, engine)


def plan_of(engine: PostgresEngine, *, by_index: bool, options: str = "") -> str:
    """What PostgreSQL says it would do."""
    statements, layout = engine._statements, engine._layout
    queries = np.ones((2, engine.dimension))
    with psycopg.connect(engine._address.conninfo, options=options) as connection:
        layout.asked.register(connection)
        if by_index:
            engine._settings.of_index_scan(connection, layout, 18)
            asked: bytes = layout.asked.as_array(queries)
            statement = statements.nearest_by_index
        else:
            asked = layout.asked.one_by_one(queries)[0]
            statement = statements.nearest_by_scan
        explained = b"EXPLAIN " + statement
        return "\n".join(row[0] for row in connection.execute(explained, [asked, 18]))


@pytest.mark.parametrize("index", ["hnsw", "ivfflat"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
@pytest.mark.parametrize("refine", [True, False])
def test_an_index_is_used_where_it_is_asked_for(
    galleries: Galleries, index: str, metric: str, *, refine: bool
) -> None:
    engine = galleries.create(
        8, index=index, metric=metric, lists=3 if index == "ivfflat" else None
    )
    points = points_for(engine, 40)
    engine.add(points.vectors, points.ids, points.labels)
    approximate = galleries.open(engine, index=index, metric=metric, refine=refine)
    assert "Index Scan" in (plan := plan_of(approximate, by_index=True))
    assert "Sort" not in plan
    exact = galleries.open(engine, metric=metric, refine=refine)
    assert "Index Scan" not in (plan := plan_of(exact, by_index=False))
    assert "Seq Scan" in plan


def test_exact_is_exact_beside_a_poor_index(galleries: Galleries) -> None:
    poor = galleries.create(12, index="ivfflat", lists=60, probes=1)
    points = points_for(poor, 300)
    poor.add(points.vectors, points.ids, points.labels)
    exact = galleries.open(poor)
    queries = clusters(30, seed=1)[0]
    assert check_answer(exact, exact.search(queries, 10), points, queries) == 1
    assert check_answer(poor, poor.search(queries, 10), points, queries) < 1


@pytest.mark.parametrize("can_continue", [True, False])
@pytest.mark.parametrize("refine", [True, False])
def test_more_than_the_largest_ef_search(
    galleries: Galleries, monkeypatch: pytest.MonkeyPatch, *, can_continue: bool, refine: bool
) -> None:
    engine = galleries.create(3, index="hnsw", m=4, ef_construction=8, refine=refine)
    points = points_for(engine, 1300)
    engine.add(points.vectors, points.ids, points.labels)
    monkeypatch.setattr(Layout, "can_continue", can_continue)
    queries = clusters(3, seed=1, dimension=3)[0]
    found = engine.search(queries, 1200)
    assert found.counts.tolist() == [1200] * 3
    assert check_answer(engine, found, points, queries, relative=1e-4) > 0.95


@pytest.mark.parametrize("can_continue", [True, False])
@pytest.mark.parametrize("refine", [True, False])
def test_lists_that_hold_too_few(
    galleries: Galleries, monkeypatch: pytest.MonkeyPatch, *, can_continue: bool, refine: bool
) -> None:
    engine = galleries.create(
        12, id_kind="text", index="ivfflat", lists=40, probes=1, refine=refine
    )
    points = points_for(engine, 200)
    engine.add(points.vectors, points.ids, points.labels)
    monkeypatch.setattr(Layout, "can_continue", can_continue)
    queries = clusters(20, seed=1)[0]
    for k in (60, 200, 230):
        found = engine.search(queries, k)
        assert found.counts.tolist() == [min(k, 200)] * 20
        check_answer(engine, found, points, queries, relative=1e-4)


def test_dead_rows_leave_no_gap(galleries: Galleries) -> None:
    engine = galleries.create(12, index="hnsw", ef_search=1)
    points = points_for(engine, 300)
    engine.add(points.vectors, points.ids, points.labels)
    # The nearest 200 of the query are removed; the index still leads to them.
    query = points.vectors[:1]
    nearest = np.argsort(all_sq_distances(engine, query, points.vectors)[0])
    engine.remove(points.ids[nearest[:200]])
    found = engine.search(query, 20)
    assert found.counts.tolist() == [20]
    left = points.take(nearest[200:])
    assert check_answer(engine, found, left, query) > 0.8


@pytest.mark.parametrize("index", ["exact", "hnsw"])
@pytest.mark.parametrize("refine", [True, False])
def test_zero_vectors_have_no_cosine(galleries: Galleries, index: str, *, refine: bool) -> None:
    engine = galleries.create(2, index=index, metric="cosine", refine=refine)
    engine.add(np.array([[2.0, 0.0], [0.0, 3.0]]), np.array([1, 2]), np.array([1, 1]))
    table = engine._names.table
    galleries.server.run(f"""INSERT INTO "{table}" VALUES (3, 1, '[0,0]')""")  # noqa: S608
    found = engine.search(np.array([[5.0, 0.0]]), 3)
    assert found.ids.tolist() == [[1, 2, -1]]
    np.testing.assert_allclose(found.sq_distances, [[0, 2, np.inf]], atol=1e-12)
    zero = np.zeros((1, 2))
    with pytest.raises(InvalidInputError, match="zero vector"):
        engine.search(zero, 1)
    with pytest.raises(InvalidInputError, match="zero vector"):
        engine.add(zero, np.array([4]), np.array([1]))
    with pytest.raises(InvalidInputError, match="zero vector"):
        # Single precision makes it zero.
        engine.add(zero + 1e-60, np.array([4]), np.array([1]))


def test_beyond_single_precision(galleries: Galleries) -> None:
    engine = galleries.create(2)
    with pytest.raises(InvalidInputError, match=r"3\.4"):
        engine.add(np.array([[1e39, 0.0]]), np.array([1]), np.array([1]))
    with pytest.raises(InvalidInputError, match=r"3\.4"):
        engine.search(np.array([[1e39, 0.0]]), 1)
    assert engine.size() == 0


def test_a_batch_is_divided_by_what_its_answer_takes(
    galleries: Galleries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsure.engines.postgres.engine._ANSWER_BYTES", 5_000)
    for index in ("exact", "hnsw"):
        engine = galleries.create(12, id_kind="text", label_kind="text", index=index)
        points = points_for(engine, 50)
        engine.add(points.vectors, points.ids, points.labels)
        queries = clusters(20, seed=1)[0]
        assert len(list(engine._parts(20, 18))) == 5
        found = engine.search(queries, 10)
        assert check_answer(engine, found, points, queries) > 0.9
        assert len(list(engine._parts(20, 10**6))) == 20


def test_ranked_in_double_precision(galleries: Galleries) -> None:
    """Squares of these differ from each other by less than single precision can tell."""
    engine = galleries.create(2)
    steps = np.arange(12)
    vectors = np.stack([np.full(12, 4096.0), steps * 2.0**-8], axis=1)
    engine.add(vectors, steps[::-1], steps)
    found = engine.search(np.zeros((1, 2)), 6)
    assert found.ids[0].tolist() == [11, 10, 9, 8, 7, 6]
    np.testing.assert_array_equal(found.sq_distances[0], (vectors[:6] ** 2).sum(axis=1))


@pytest.mark.parametrize(("n_asked", "expected"), [(18, "100"), (300, "300"), (5000, "1000")])
def test_settings_hold_for_one_transaction(
    galleries: Galleries, n_asked: int, expected: str
) -> None:
    engine = galleries.create(3, index="hnsw")
    names = ("hnsw.ef_search", "hnsw.iterative_scan", "enable_sort")
    with psycopg.connect(engine._address.conninfo) as connection:

        def shown() -> list[str]:
            rows = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
            return [row[0] for row in rows if row is not None]

        # The library that knows the settings is loaded with the first vector.
        connection.execute("SELECT '[1]'::vector")
        connection.commit()
        engine._settings.of_index_scan(connection, engine._layout, n_asked)
        assert shown() == [expected, "relaxed_order", "off"]
        connection.commit()
        assert shown() == ["40", "off", "on"]


def test_a_large_table_is_scanned_by_several_processes(galleries: Galleries) -> None:
    engine = galleries.create(3)
    points = points_for(engine, 40)
    engine.add(points.vectors, points.ids, points.labels)
    table = engine._names.table
    galleries.server.run(f'ALTER TABLE "{table}" SET (parallel_workers = 2)', f'ANALYZE "{table}"')
    eager = "-c parallel_setup_cost=0 -c parallel_tuple_cost=0 -c min_parallel_table_scan_size=0"
    plan = plan_of(galleries.open(engine), by_index=False, options=eager)
    assert "Parallel Seq Scan" in plan


# Loads that are watched, given up, repeated, or under way twice at once.


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
