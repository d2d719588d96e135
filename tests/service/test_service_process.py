"""A real process: it starts, says so, and stops without cutting anybody off."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep

import pytest
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

from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import ConfigError, NearsureError
from nearsure.service import ServiceSettings, run_service


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
    process_id = processes.start(gallery=str(path), port=port, drain=1.5)
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
