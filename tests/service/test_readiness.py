"""Whether the service should be asked: not while its gallery cannot be read or reached."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from served_examples import clusters, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.engines.sqlite import engine as stored_gallery
from nearsure.errors import EngineError
from nearsure.service import service

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
def engine() -> Faulty:
    vectors, codes = clusters(8)
    return Faulty.from_points(vectors, labels=codes)


@pytest.mark.parametrize("failure", [EngineError("It is down."), OSError("It is down.")])
def test_an_engine_that_is_down_is_not_ready_until_it_is_back(
    engine: Faulty, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    caplog.set_level(logging.INFO, "nearsure.service")
    with serving(engine=engine) as client:
        assert client.get("/readyz").json() == READY
        engine.failure = failure
        for _ in range(3):
            check_unavailable(client, caplog, "It is down.")
        assert len([line for line in caplog.messages if "not ready" in line]) == 1
        engine.failure = None
        assert client.get("/readyz").json() == READY
        assert "ready again" in caplog.messages[-1]


def test_an_engine_that_knows_no_item_of_the_probe_is_ready() -> None:
    vectors, codes = clusters(8)
    engine = FaissEngine.from_points(vectors, ids=1000 + np.arange(32), labels=codes)
    with serving(engine=engine) as client:
        assert client.get("/readyz").json() == READY


def test_many_who_ask_are_one_question(engine: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FRESH_SECONDS", 1000.0)
    with serving(engine=engine) as client:
        before = engine.n_asked
        for _ in range(20):
            assert client.get("/readyz").json() == READY
        assert engine.n_asked == before + 1


def test_an_engine_that_hangs_is_asked_once(
    engine: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PROBE_SECONDS", 0.05)
    goes_on, n_asked = Event(), 0

    def hang(_: object) -> None:
        nonlocal n_asked
        n_asked += 1
        goes_on.wait(20)

    with serving(engine=engine) as client:
        monkeypatch.setattr(service, "check_engine", hang)
        for _ in range(3):
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert n_asked == 1
        goes_on.set()
        client.portal.call(asyncio.sleep, 0.05)  # type: ignore[union-attr]
        assert client.get("/readyz").json() == READY
