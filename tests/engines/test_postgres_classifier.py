"""What a classifier says through PostgreSQL, and a server that is killed while it is fitted."""

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import postgres_server
import psycopg
import pytest
from classifier_contract import classified, exact, load
from contract import ClassifierContract
from contract_points import DIMENSION, clusters
from postgres_contract import PostgresEngines
from postgres_server import USER, Server, table_of, wait_until
from sklearn.exceptions import NotFittedError

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine, Found, Stored
from nearsure.engines.postgres import PostgresEngine
from nearsure.errors import EngineUnavailableError, LowRecallWarning, UnusableGalleryError

server = postgres_server.server


class TestClassifierOnExactWithTextLabels(PostgresEngines, ClassifierContract):
    created = {"label_kind": "text"}  # noqa: RUF012

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, label_kind="text", refine=False)


class TestClassifierOnHnsw(PostgresEngines, ClassifierContract):
    opened = {"index": "hnsw"}  # noqa: RUF012

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        return self.create(dimension, index="hnsw", m=15)


# Rows that somebody changes from outside


def test_a_table_that_is_truncated_gives_no_answer(server: Server, held: PostgresEngine) -> None:
    classifier = NEDClassifier(engine=held).fit_engine()
    queries = clusters(3, seed=5)[0]
    classifier.predict(queries)
    server.run(f"TRUNCATE {table_of(held)}")
    with pytest.raises(UnusableGalleryError, match="must hold points to be answered from"):
        classifier.predict(queries)


def test_a_label_that_goes_missing_names_its_column(server: Server, held: PostgresEngine) -> None:
    classifier = NEDClassifier(engine=held).fit_engine()
    table = table_of(held)
    server.run(
        f"ALTER TABLE {table} ALTER COLUMN label DROP NOT NULL",
        f"UPDATE {table} SET label = NULL",  # noqa: S608
    )
    queries = clusters(3, seed=5)[0]
    for call in (lambda: classifier.predict(queries), classifier.refit):
        with pytest.raises(UnusableGalleryError, match=r"value in the column 'label'.* Fill them"):
            call()


# A server that is killed during a fit


@pytest.fixture
def held(server: Server) -> Iterator[PostgresEngine]:
    """A gallery that was loaded before, on a server that runs before and after."""
    table = server.new_name()
    engine = PostgresEngine.create(server.uri, dimension=DIMENSION, table=table, timeout=5)
    load(engine, classified(engine))
    yield engine
    if not server.is_running:
        server.start()
    postgres_server.drop(server, engine)


def killed_in_a_search(
    server: Server, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next search waits for a table that is locked, and the server is killed meanwhile."""
    search = engine.search
    waiting = f"""SELECT 1 FROM pg_stat_activity
        WHERE usename = '{USER}' AND wait_event_type = 'Lock' AND query LIKE '%nearest%'"""  # noqa: S608

    def lock_and_search(queries: AnyArray, k: int) -> Found:
        monkeypatch.undo()
        other = psycopg.connect(server.admin_uri)
        other.execute(f"LOCK TABLE {table_of(engine)} IN ACCESS EXCLUSIVE MODE".encode())

        def kill_when_it_waits() -> None:
            try:
                wait_until(lambda: bool(server.run(waiting)), "a search that waits")
            finally:
                server.kill()

        killer = threading.Thread(target=kill_when_it_waits)
        killer.start()
        try:
            return search(queries, k)
        finally:
            killer.join(30)
            other.close()

    monkeypatch.setattr(engine, "search", lock_and_search)


def killed_in_the_scan(
    server: Server, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next scan reads a portion, and the server is killed before the second."""
    monkeypatch.setattr("nearsure.engines.postgres.engine._PORTION", 10)
    scan = engine.scan

    def scan_and_kill() -> Iterator[Stored]:
        portions = scan()
        yield next(portions)
        monkeypatch.undo()
        server.kill()
        yield from portions

    monkeypatch.setattr(engine, "scan", scan_and_kill)


@pytest.mark.parametrize("killed", [killed_in_a_search, killed_in_the_scan])
@pytest.mark.parametrize("was_fitted", [False, True])
def test_killed_during_a_fit(
    server: Server,
    held: PostgresEngine,
    monkeypatch: pytest.MonkeyPatch,
    killed: Callable[[Server, PostgresEngine, pytest.MonkeyPatch], None],
    *,
    was_fitted: bool,
) -> None:
    queries = clusters(40, seed=47)[0]
    classifier = NEDClassifier(engine=held)
    if was_fitted:
        classifier.fit_engine()
        old = classifier.predict_with_confidence(queries)
    # What is fitted now differs from what was fitted before.
    classifier.set_params(rule="ned")
    state = dict(vars(classifier))
    killed(server, held, monkeypatch)
    with pytest.raises(EngineUnavailableError):
        classifier.fit_engine()
    assert not server.is_running
    assert vars(classifier).keys() == state.keys()
    assert all(vars(classifier)[name] is value for name, value in state.items())
    server.start()
    if was_fitted:
        still = classifier.predict_with_confidence(queries)
        np.testing.assert_array_equal(still.labels, old.labels)
        np.testing.assert_array_equal(still.confidence, old.confidence)
    else:
        with pytest.raises(NotFittedError):
            classifier.predict(queries)
    classifier.fit_engine()
    ours = classifier.predict_with_confidence(queries)
    theirs = exact(held, classified(held), settings={"rule": "ned"}).predict_with_confidence(
        queries
    )
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    np.testing.assert_allclose(ours.confidence, theirs.confidence, atol=1e-6)


@pytest.mark.parametrize(
    ("built", "name"),
    [
        ({"index": "ivfflat", "lists": 20, "probes": 1}, "probes"),
        ({"index": "hnsw", "m": 2, "ef_construction": 4, "ef_search": 1}, "ef_search"),
    ],
)
def test_a_fit_raises_the_effort_of_an_index(
    server: Server, built: dict[str, Any], name: str
) -> None:
    rng = np.random.default_rng(0)
    server.run("DROP TABLE IF EXISTS effort")
    with PostgresEngine.create(server.uri, dimension=8, table="effort", **built) as engine:
        engine.add(rng.normal(size=(1500, 8)), np.arange(1500), np.arange(1500) % 3)
        settings: dict[str, Any] = {"n_neighbors": 3, "rule": "ned", "temperature": 1.0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LowRecallWarning)
            as_set = NEDClassifier(engine=engine, max_effort=1, **settings).fit_engine().recall_
            chosen = NEDClassifier(engine=engine, max_effort=500, **settings).fit_engine().recall_
        assert as_set is not None
        assert chosen is not None
        assert (as_set.effort_name, as_set.effort) == (name, 1)
        assert not as_set.is_enough
        assert chosen.effort is not None
        assert chosen.effort > 1
        assert float(chosen.share or 0) > float(as_set.share or 0) + 0.05
    server.run("DROP TABLE effort")
