"""The service as a process: start, signals, kills, and how many connections it takes."""

import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from asgi_calls import read_until_closed
from served_examples import DIMENSION, sqlite_gallery
from service_processes import (
    LONGEST_WAIT,
    ServiceProcesses,
    asked,
    asked_once,
    connected,
    free_port,
    service_processes,
    wait_until_ready,
)
from threadpoolctl import threadpool_info, threadpool_limits

from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import ConfigError, NearsureError
from nearsure.service import ServiceSettings, run_service
from nearsure.service.server import raise_file_limit


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "service.log"


@pytest.fixture(scope="module")
def processes(log: Path) -> Iterator[ServiceProcesses]:
    with service_processes(log) as started:
        yield started


def said_until_refused(port: int) -> list[tuple[int, str]]:
    """What /readyz says, from one who asks all the time until nobody listens any more."""
    said, deadline = [], monotonic() + LONGEST_WAIT
    while True:
        assert monotonic() < deadline
        try:
            status, answer = asked_once(port, "GET", "/readyz")
            said.append((status, answer["status"]))
            if status == 503:
                assert asked_once(port, "GET", "/healthz") == (200, {"status": "ok"})
        except ConnectionRefusedError:
            return said
        except (ConnectionError, HTTPException):
            # Connected in the moment when it stopped listening.
            continue
        sleep(0.01)


def test_a_request_that_is_under_way_is_answered_after_sigterm(
    processes: ServiceProcesses, log: Path, tmp_path: Path
) -> None:
    path, port = sqlite_gallery(tmp_path / "birds.sqlite", n_each=8), free_port()
    process_id = processes.start(gallery=str(path), port=port, drain=0.7)
    wait_until_ready(port)
    items = [{"id": "n1", "label": "ibis", "vector": [9.0] * DIMENSION}]
    with connected(port) as connection:
        assert asked(connection, "POST", "/v1/items", {"items": items}) == (201, {"ids": ["n1"]})
    body = json.dumps({"vector": [9.0] * DIMENSION}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(
            b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body[:10])
        )
        # By the answer to a later one, the first has been seen.
        assert asked_once(port, "GET", "/readyz") == (200, {"status": "ok"})
        os.kill(process_id, signal.SIGTERM)
        said = said_until_refused(port)
        # It may be asked before the signal comes, but not after that.
        assert sorted(set(said)) in ([(503, "stopping")], [(200, "ok"), (503, "stopping")])
        assert said == sorted(said)
        slow.sendall(body[10:])
        answer = slow.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b'"label":"ibis"' in answer
    assert processes.exit_code(process_id) == 0
    with SqliteEngine(path) as engine:
        assert engine.size() == 33
    lines = log.read_text()
    assert "Authentication is off" in lines
    assert f"Serving on http://127.0.0.1:{port}" in lines
    assert "Stopped." in lines


def test_sigint_ends_it_as_well(processes: ServiceProcesses, log: Path, tmp_path: Path) -> None:
    path, port = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3), free_port()
    token = "a-token-that-nobody-knows"  # noqa: S105
    process_id = processes.start(gallery=str(path), port=port, write_tokens=[token])
    wait_until_ready(port)
    with connected(port) as connection:
        connection.request("GET", "/v1/items?label=x", headers={"authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
    os.kill(process_id, signal.SIGINT)
    assert processes.exit_code(process_id) == 0
    lines = log.read_text()
    assert "GET /v1/items 200" in lines
    assert token not in lines
    assert "Traceback" not in lines


def test_what_cannot_be_served_is_an_error_at_once(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)
    with pytest.raises(ConfigError, match="Without tokens"):
        run_service(ServiceSettings(str(path), host="0.0.0.0"))  # noqa: S104
    with pytest.raises(NearsureError):
        run_service(ServiceSettings(str(tmp_path / "nowhere.sqlite"), port=free_port()))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot listen"):
            run_service(ServiceSettings(str(path), port=taken.getsockname()[1]))


def test_libraries_get_no_more_threads_than_they_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The user's own limit stands, on a machine of many cores, too."""
    pools: list[dict[str, Any]] = []
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(
        "nearsure.service.server._Server.run", lambda *_, **__: pools.extend(threadpool_info())
    )
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)
    with threadpool_limits(1):
        run_service(ServiceSettings(str(path), port=free_port()))
    assert {pool["num_threads"] for pool in pools} == {1}


ENDLESS = resource.RLIM_INFINITY


class Limits:
    """Stands in for the system's."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        self.now = limits


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Limits]:
    stand_in = Limits(*request.param)
    monkeypatch.setattr(resource, "getrlimit", stand_in.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", stand_in.setrlimit)
    yield stand_in
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("limits", "n_connections", "after"),
    [
        ((1024, 2**20), 10_000, (10_200, 2**20)),
        ((1024, 4096), 3896, (4096, 4096)),
        ((1024, ENDLESS), 10_000, (10_200, ENDLESS)),
        ((50_000, 2**20), 10_000, (50_000, 2**20)),
        ((ENDLESS, ENDLESS), 10_000, (ENDLESS, ENDLESS)),
        ((100, 256), 128, (256, 256)),
    ],
    indirect=["limits"],
)
def test_the_limit_is_raised_as_far_as_needed(
    limits: Limits, n_connections: int, after: tuple[int, int]
) -> None:
    assert raise_file_limit() == n_connections
    assert limits.now == after


def test_a_real_service_with_few_files_turns_the_next_away(
    processes: ServiceProcesses, log: Path, tmp_path: Path
) -> None:
    gallery, port = sqlite_gallery(tmp_path / "a.sqlite"), free_port()
    process_id = processes.start(gallery=str(gallery), port=port, files=(100, 160))
    wait_until_ready(port)
    with ExitStack() as held:
        for _ in range(80):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as late:
                assert read_until_closed(late).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        held.close()
        assert asked_once(port, "GET", "/healthz")[0] == 200
    processes.kill(process_id)
    assert log.read_text().count("80 connections are open") == 1


N_KILLS = 20
N_WRITERS, N_READERS = 3, 2
BATCH = 3
LABELS = ("ibis", "swan", "rail")
ABSENT = "absent"
# Thresholds are counted on, as parts of this number.
MANY = 1_000_000


class Writer:
    """Adds, relabels and removes batches of its own, and knows what was acknowledged.

    `known` holds the state of each batch, a label or ABSENT; `pending` the one change that was
    asked for and not acknowledged: it may have been made or not, but not by half.
    """

    def __init__(self, number: int, port: int) -> None:
        self.number, self.port = number, port
        self.rng = np.random.default_rng(number)
        self.known: dict[str, str] = {}
        self.pending: tuple[str, str] | None = None
        self.n_acknowledged = self.n_cut_off = 0
        self.problems: list[object] = []

    def run(self) -> None:
        with connected(self.port) as connection, suppress(OSError, HTTPException):
            while True:
                self._change_something(connection)

    def _change_something(self, connection: HTTPConnection) -> None:
        there = [batch for batch, state in self.known.items() if state != ABSENT]
        label = str(self.rng.choice(LABELS))
        body: dict[str, object]
        choice = self.rng.random()
        if choice < 0.5 or not there:
            batch, state = f"w{self.number}b{len(self.known)}", label
            vectors = self.rng.normal(size=(BATCH, DIMENSION)).round(3).tolist()
            items = [
                {"id": own, "label": label, "vector": vector}
                for own, vector in zip(names(batch), vectors, strict=True)
            ]
            address, body = "/v1/items", {"items": items}
            self.known[batch] = ABSENT
        elif choice < 0.8:
            batch, state = str(self.rng.choice(there)), label
            address, body = "/v1/items/relabel", {"ids": names(batch), "label": label}
        else:
            batch, state = str(self.rng.choice(there)), ABSENT
            address, body = "/v1/items/remove", {"ids": names(batch)}
        self.pending = batch, state
        status, answer = asked(connection, "POST", address, body)
        if status >= 300:
            self.problems.append((status, answer))
        else:
            self.known[batch] = state
            self.n_acknowledged += 1
        self.pending = None

    def compare(self, labels: dict[str, str]) -> None:
        """Check what is there against what was acknowledged, and take the truth over."""
        for batch, state in self.known.items():
            found = {labels.get(own, ABSENT) for own in names(batch)}
            assert len(found) == 1, f"{batch} is half there: {found}"
            allowed = {state}
            if self.pending is not None and self.pending[0] == batch:
                allowed.add(self.pending[1])
                self.n_cut_off += 1
            (now,) = found
            assert now in allowed, f"{batch} should be {allowed}, and is {now}"
            self.known[batch] = now
        self.pending = None


class Reader:
    """Asks all the time; the first one for a new fit now and then, the others set thresholds.

    What a model says of itself may only grow from one answer to the next, also over a kill: its
    number, and the changes since, as long as the fit is the same.
    """

    def __init__(self, number: int, port: int) -> None:
        self.number, self.port = number, port
        self.n_answers = 0
        self.problems: list[object] = []
        self.seen = 0, 0
        self.thresholds = 0, 0

    def run(self) -> None:
        with connected(self.port) as connection, suppress(OSError, HTTPException):
            for turn in range(100_000):
                if turn % 10 != 5:
                    query = {"vector": [0.01 * turn] * DIMENSION}
                    status, answer = asked(connection, "POST", "/v1/predict", query)
                elif turn % 20 == 5 and self.number == 0:
                    status, answer = asked(connection, "POST", "/v1/refit")
                elif turn % 20 == 5:
                    acknowledged, _ = self.thresholds
                    self.thresholds = acknowledged, acknowledged + 1
                    new = {"threshold": (acknowledged + 1) / MANY}
                    status, answer = asked(connection, "PUT", "/v1/threshold", new)
                    self.thresholds = acknowledged + 1, acknowledged + 1
                else:
                    status, answer = asked(connection, "GET", "/v1/model")
                    self.compare(answer)
                self.n_answers += 1
                if status >= 300:
                    self.problems.append((status, answer))

    def compare(self, model: dict[str, Any]) -> None:
        """Check what a model says against what it said before."""
        now = model["model"], round(model["share_changed"] * model["size"])
        # Of a write that is under way, the size may know, and the share not yet.
        if (now[0], now[1] + BATCH) < self.seen and model["share_changed"] < 1:
            self.problems.append(f"{now} after {self.seen}")
        self.seen = now

    def compare_threshold(self, threshold: float | None) -> None:
        """Check the threshold in use against what was acknowledged, and take the truth over."""
        now = 0 if threshold is None else round(threshold * MANY)
        assert now in self.thresholds
        self.thresholds = now, now


def names(batch: str) -> list[str]:
    return [f"{batch}i{i}" for i in range(BATCH)]


def all_labels(connection: HTTPConnection) -> dict[str, str]:
    found: dict[str, str] = {}
    after = ""
    while True:
        status, page = asked(connection, "GET", f"/v1/items?limit=1000{after}")
        assert status == 200
        found |= {item["id"]: item["label"] for item in page["items"]}
        if page["next"] is None:
            assert page["total"] == len(found)
            return found
        after = f"&after={page['next']}"


def wait_for_changes(writers: list[Writer], n_more: int) -> None:
    """Wait until so many further changes were acknowledged."""
    wanted = sum(writer.n_acknowledged for writer in writers) + n_more
    deadline = monotonic() + LONGEST_WAIT
    while sum(writer.n_acknowledged for writer in writers) < wanted:
        assert monotonic() < deadline
        sleep(0.001)


def wait_for_a_fit(readers: list[Reader]) -> None:
    """Wait until the first reader has seen a new fit, and the second has set thresholds."""
    deadline = monotonic() + LONGEST_WAIT
    while readers[0].seen[0] < 2 or readers[1].thresholds[0] < 2:
        assert monotonic() < deadline
        sleep(0.001)


def test_nothing_acknowledged_is_lost_and_nothing_is_half_there(
    processes: ServiceProcesses, tmp_path: Path
) -> None:
    path, port = sqlite_gallery(tmp_path / "birds.sqlite", n_each=10), free_port()
    writers = [Writer(number, port) for number in range(N_WRITERS)]
    readers = [Reader(number, port) for number in range(N_READERS)]
    clients: list[Writer | Reader] = [*writers, *readers]
    rng = np.random.default_rng(0)
    for n_kills in range(N_KILLS + 1):
        process_id = processes.start(gallery=str(path), port=port)
        wait_until_ready(port)
        with connected(port) as connection:
            labels = all_labels(connection)
            status, answer = asked(connection, "POST", "/v1/predict", {"item": "p000"})
            assert (status, set(answer) >= {"label", "confidence"}) == (200, True)
            _, model = asked(connection, "GET", "/v1/model")
        assert (model["size"], model["n_classes"]) == (len(labels), len(set(labels.values())))
        assert sum(name.startswith("p") for name in labels) == 40
        for writer in writers:
            writer.compare(labels)
        for reader in readers:
            reader.compare(model)
        readers[1].compare_threshold(model["threshold"])
        if n_kills < N_KILLS:
            threads = [Thread(target=client.run) for client in clients]
            for thread in threads:
                thread.start()
            if n_kills == 0:
                # Later rounds may be too short for a fit; there is one to lose from now on.
                wait_for_a_fit(readers)
            wait_for_changes(writers, int(rng.integers(1, 12)))
            # At any moment of the next change.
            sleep(float(rng.uniform(0, 0.02)))
        processes.kill(process_id)
        for thread in threads:
            thread.join()
    assert [problem for client in clients for problem in client.problems] == []
    assert sum(writer.n_cut_off for writer in writers) >= N_KILLS
    assert sum(reader.n_answers for reader in readers) >= N_KILLS
    n_fits, n_changed = readers[0].seen
    assert n_fits > 1
    assert n_changed > 0
    assert readers[1].thresholds[0] > 1
