"""Slow work delays only its own kind; readiness follows the engine."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import numpy as np
import pytest
from served_examples import DIMENSION, clusters, document_at, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Stored
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.engines.sqlite import engine as stored_gallery
from nearsure.errors import EngineError
from nearsure.service import service
from nearsure.service.gallery import ServedGallery

FAR = [40.0] * DIMENSION
FOR = "/v1/threshold/for?precision=0.6"
# Fetched at once by what reads the whole gallery; others look at fewer.
MANY = 20


class HeldEngine:
    """Points whose reading, or adding, waits for a sign."""

    def __init__(self) -> None:
        vectors, codes = clusters(15)
        self._engine = FaissEngine.from_points(vectors, labels=codes)
        self.reached, self.released = Event(), Event()
        self.released.set()
        self.holds_one = self.holds_adding = False
        self.n_passes = 0

    def hold(self) -> None:
        self.reached.clear()
        self.released.clear()

    def fetch(self, ids: AnyArray) -> Stored:
        if len(ids) > MANY:
            self.n_passes += 1
        if len(ids) > MANY or self.holds_one:
            self._wait()
        return self._engine.fetch(ids)

    def add(self, *points: AnyArray) -> None:
        if self.holds_adding:
            self._wait()
        self._engine.add(*points)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._engine, name)

    def _wait(self) -> None:
        self.reached.set()
        assert self.released.wait(30)


@pytest.fixture
def engine() -> Any:  # noqa: ANN401 - an engine for the service
    return HeldEngine()


@pytest.fixture
def client(engine: Any) -> Iterator[TestClient]:  # noqa: ANN401
    with serving(engine=engine) as client:
        yield client
        engine.released.set()


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def gallery_of(client: TestClient) -> ServedGallery:
    app: Any = client.app
    gallery: ServedGallery = app.state.service.gallery
    return gallery


def ids_of(first: int, end: int) -> dict[str, list[str]]:
    return {"ids": [str(i) for i in range(first, end)]}


def check_all_else_goes_on(client: TestClient) -> None:
    for address in ("/v1/model", "/metrics", "/v1/items?limit=3", "/v1/items/30", "/v1/threshold"):
        assert client.get(address).status_code == 200
    for address, body in (
        ("/v1/predict", {"vector": FAR}),
        ("/v1/predict", {"item": "30"}),
        ("/v1/predict/batch", {"vectors": [FAR]}),
        ("/v1/items", {"items": [{"label": "1", "vector": FAR}]}),
        ("/v1/items/relabel", {**ids_of(30, 33), "label": "3"}),
        ("/v1/items/remove", ids_of(5, 8)),
    ):
        assert client.post(address, json=body).is_success, address
    assert client.put("/v1/threshold", json={"threshold": 0.5}).status_code == 200


def test_many_who_ask_for_a_threshold_keep_nobody_waiting(
    engine: HeldEngine, client: TestClient, others: ThreadPoolExecutor
) -> None:
    engine.hold()
    asked = [others.submit(client.get, FOR) for _ in range(6)]
    assert engine.reached.wait(10)
    check_all_else_goes_on(client)
    engine.released.set()
    assert [answer.result().status_code for answer in asked] == [200] * 6


def test_equal_thresholds_are_worked_out_once(
    engine: HeldEngine, client: TestClient, others: ThreadPoolExecutor
) -> None:
    engine.n_passes = 0
    first = client.get(FOR).json()
    n_passes = engine.n_passes
    assert n_passes > 0
    client.delete("/v1/items/3")
    engine.hold()
    asked = [others.submit(client.get, FOR) for _ in range(6)]
    assert engine.reached.wait(10)
    engine.released.set()
    answers = [answer.result().json() for answer in asked]
    assert engine.n_passes == 2 * n_passes
    assert all(answer == answers[0] for answer in answers)
    assert (answers[0]["precision"], first["precision"]) == (0.6, 0.6)


def n_points_in(document: dict[str, Any]) -> int:
    n_points: int = document.get("about", document).get("n_gallery", document.get("n_points"))
    return n_points


@pytest.mark.parametrize("address", ["/v1/report", "/v1/audit"])
def test_a_document_is_made_beside_writers(
    engine: HeldEngine, client: TestClient, address: str
) -> None:
    engine.hold()
    assert client.get(address).status_code == 202
    assert engine.reached.wait(10)
    check_all_else_goes_on(client)
    engine.released.set()
    app: Any = client.app
    getattr(app.state.service, address.rpartition("/")[2]).wait(20)
    # Items were removed while it read: it has started over.
    assert n_points_in(client.get(address).json()) == 58
    client.delete("/v1/items/9")
    app.state.service.report._last = app.state.service.audit._last = None
    assert n_points_in(document_at(client, address)) == 57


def test_what_is_written_during_an_own_pass_counts_in_the_next(
    engine: HeldEngine, client: TestClient, others: ThreadPoolExecutor
) -> None:
    before = client.get(FOR).json()
    client.delete("/v1/items/59")
    engine.hold()
    during = others.submit(client.get, FOR)
    assert engine.reached.wait(10)
    # Some of the points that the pass is about to search.
    change = {**ids_of(0, 12), "label": "3"}
    assert client.post("/v1/items/relabel", json=change).json() == {"changed": 12}
    assert client.post("/v1/items/remove", json=ids_of(40, 44)).json() == {"changed": 4}
    engine.released.set()
    assert during.result().status_code == 200
    after = client.get(FOR).json()
    gallery = gallery_of(client)
    gallery._forget_copy()
    assert after == client.get(FOR).json()
    assert after != before
    assert gallery.fit.classifier.class_counts_.tolist() == [3, 15, 11, 26]


def test_a_threshold_is_chosen_beside_writers(
    engine: HeldEngine, client: TestClient, others: ThreadPoolExecutor
) -> None:
    engine.hold()
    put = others.submit(client.put, "/v1/threshold", json={"precision": 0.6})
    assert engine.reached.wait(10)
    check_all_else_goes_on(client)
    engine.released.set()
    assert put.result().json() == client.get("/v1/threshold").json()
    assert client.get("/v1/threshold").json()["precision"] == 0.6
    gallery = gallery_of(client)
    # Chosen on a fit that does not answer any more.
    assert not gallery.use_threshold(replace(gallery.threshold_for(0.7, 0.95), model=99))
    assert gallery.fit.threshold.precision == 0.6


def test_a_write_that_waited_too_long_is_not_made(others: ThreadPoolExecutor) -> None:
    engine: Any = HeldEngine()
    engine.holds_adding = True

    def new(own: int) -> dict[str, Any]:
        return {"items": [{"id": str(own), "label": "1", "vector": FAR}]}

    with serving(engine=engine, patience=0.3) as client:
        engine.hold()
        begun = others.submit(client.post, "/v1/items", json=new(100))
        assert engine.reached.wait(10)
        late = client.post("/v1/items", json=new(101))
        assert (late.status_code, late.json()["error"]) == (503, "overloaded")
        assert late.headers["retry-after"] == "1"
        engine.released.set()
        # What was begun is waited for.
        assert begun.result().status_code == 201
        assert client.get("/v1/items/100").status_code == 200
        assert client.get("/v1/items/101").status_code == 404


def stuck_reading(client: TestClient, engine: HeldEngine) -> None:
    engine.holds_one = True
    engine.hold()
    assert client.get("/v1/items/3").status_code == 503


def stuck_survey(client: TestClient, engine: HeldEngine) -> None:
    engine.hold()
    assert client.get(FOR).status_code == 503


@pytest.mark.parametrize("stick", [stuck_reading, stuck_survey])
def test_the_end_does_not_wait_for_readers(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stick: Callable[[TestClient, HeldEngine], None],
) -> None:
    monkeypatch.setattr(service, "LAST_WAIT", 0.2)
    engine: Any = HeldEngine()
    with serving(engine=engine, patience=0.3) as client:
        client.post("/v1/items", json={"items": [{"label": "1", "vector": FAR}]})
        stick(client, engine)
        start = monotonic()
    assert monotonic() - start < 10
    assert "still being read" in caplog.text
    engine.released.set()


READY = {"status": "ok"}
PAGE = 4096


@pytest.fixture(autouse=True)
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FRESH_SECONDS", 0.0)


def check_unavailable(client: TestClient, caplog: pytest.LogCaptureFixture, told: str) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert "log" in answer.json()["reason"]
    # Everybody may ask: what file it is, is for the log alone.
    assert "birds" not in answer.text
    assert [line for line in caplog.messages if "not ready" in line and told in line]
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("damage", ["all", "header", "middle", "cut", "emptied"])
def test_a_damaged_file_is_not_ready_until_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=300)
    with serving(path) as client:
        assert client.get("/readyz").json() == READY
        with closing(sqlite3.connect(path)) as connection:
            # What stands in the log is not read from the file.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        whole = path.read_bytes()
        noise = np.random.default_rng(0).bytes(len(whole))
        middle = len(whole) // 2 // PAGE * PAGE
        damaged = {
            "all": noise,
            "header": noise[:PAGE] + whole[PAGE:],
            "middle": whole[:middle] + noise[: 8 * PAGE] + whole[middle + 8 * PAGE :],
            "cut": whole[: len(whole) // 2],
            "emptied": b"",
        }[damage]
        overwrite(path, damaged)
        for _ in range(3):
            # It may be found when the points in question have their turn, and is not forgotten.
            if client.get("/readyz").status_code == 503:
                break
        for _ in range(2):
            check_unavailable(client, caplog, str(path))
        overwrite(path, whole)
        assert client.get("/readyz").json() == READY


def overwrite(path: Path, content: bytes) -> None:
    """In place: it stays the same file to whoever has it open."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def test_a_check_reads_little_and_comes_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_gallery, "CHECKED_AT_ONCE", 10)
    read: list[list[str]] = []
    with SqliteEngine(sqlite_gallery(tmp_path / "birds.sqlite", n_each=6)) as engine:
        fetch = engine._points.fetch

        def counted(connection: Any, ids: Any) -> Any:  # noqa: ANN401
            read.append(ids.tolist())
            return fetch(connection, ids)

        monkeypatch.setattr(engine._points, "fetch", counted)
        for _ in range(4):
            engine.check()
    ids = [f"p{i:03}" for i in range(24)]
    assert read == [ids[:10], ids[10:20], ids[20:], ids[:10]]


def test_an_empty_gallery_is_ready(tmp_path: Path) -> None:
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", n_each=0)) as client:
        assert client.get("/readyz").json() == READY
        assert client.get("/readyz").json() == READY


class Faulty(FaissEngine):
    """Fails, or hangs, when it is told to."""

    failure: Exception | None = None
    n_asked = 0

    def fetch(self, ids: Any) -> Any:  # noqa: ANN401
        self.n_asked += 1
        if self.failure is not None:
            raise self.failure
        return super().fetch(ids)


@pytest.fixture
def faulty() -> Faulty:
    vectors, codes = clusters(8)
    return Faulty.from_points(vectors, labels=codes)


@pytest.mark.parametrize("failure", [EngineError("It is down."), OSError("It is down.")])
def test_an_engine_that_is_down_is_not_ready_until_it_is_back(
    faulty: Faulty, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    caplog.set_level(logging.INFO, "nearsure.service")
    with serving(engine=faulty) as client:
        assert client.get("/readyz").json() == READY
        faulty.failure = failure
        for _ in range(3):
            check_unavailable(client, caplog, "It is down.")
        assert len([line for line in caplog.messages if "not ready" in line]) == 1
        faulty.failure = None
        assert client.get("/readyz").json() == READY
        assert "ready again" in caplog.messages[-1]


def test_an_engine_that_knows_no_item_of_the_probe_is_ready() -> None:
    vectors, codes = clusters(8)
    engine = FaissEngine.from_points(vectors, ids=1000 + np.arange(32), labels=codes)
    with serving(engine=engine) as client:
        assert client.get("/readyz").json() == READY


def test_many_who_ask_are_one_question(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FRESH_SECONDS", 1000.0)
    with serving(engine=faulty) as client:
        before = faulty.n_asked
        for _ in range(20):
            assert client.get("/readyz").json() == READY
        assert faulty.n_asked == before + 1


def test_an_engine_that_hangs_is_asked_once(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PROBE_SECONDS", 0.05)
    goes_on, n_asked = Event(), 0

    def hang(_: object) -> None:
        nonlocal n_asked
        n_asked += 1
        goes_on.wait(20)

    with serving(engine=faulty) as client:
        monkeypatch.setattr(service, "check_engine", hang)
        for _ in range(3):
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert n_asked == 1
        goes_on.set()
        client.portal.call(asyncio.sleep, 0.05)  # type: ignore[union-attr]
        assert client.get("/readyz").json() == READY


class SlowCount(FaissEngine):
    """Counts its points only when it is allowed to."""

    allowed = Event()

    def size(self) -> int:
        self.allowed.wait(20)
        return super().size()


def test_readiness_does_not_wait_for_figures() -> None:
    vectors, codes = clusters(15)
    engine = SlowCount.from_points(vectors, labels=codes)
    engine.allowed.set()
    with serving(engine=engine) as client, ThreadPoolExecutor(4) as others:
        engine.allowed.clear()
        figures = [others.submit(client.get, path) for path in ("/v1/model", "/metrics") * 2]
        try:
            start = monotonic()
            assert client.get("/readyz").json() == READY
            assert monotonic() - start < service.PROBE_SECONDS
        finally:
            engine.allowed.set()
        assert all(figure.result().status_code in {200, 503} for figure in figures)


@pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionResetError("gone")])
def test_plain_errors_of_a_connection_are_the_engines(error: Exception) -> None:
    vectors, codes = clusters(15)
    engine = Faulty.from_points(vectors, labels=codes)
    with serving(engine=engine) as client:
        engine.failure = error
        assert client.get("/v1/items/3").status_code == 503
        engine.failure = None
        assert client.get("/v1/items/3").status_code == 200
