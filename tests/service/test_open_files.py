"""Connections: no more than the system has room for, so that the next is told so."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from asgi_calls import read_until_closed
from served_examples import sqlite_gallery
from service_processes import asked_once, free_port, service_processes, wait_until_ready

from nearsure.service.server import raise_file_limit

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


def test_a_real_service_with_few_files_turns_the_next_away(tmp_path: Path) -> None:
    gallery = sqlite_gallery(tmp_path / "a.sqlite")
    log, port = tmp_path / "log", free_port()
    with service_processes(log) as processes, ExitStack() as held:
        resource.prlimit(processes.id, resource.RLIMIT_NOFILE, (100, 160))
        process_id = processes.start(gallery=str(gallery), port=port)
        wait_until_ready(port)
        for _ in range(80):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as late:
                assert read_until_closed(late).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        held.close()
        assert asked_once(port, "GET", "/healthz")[0] == 200
        processes.kill(process_id)
    assert log.read_text().count("80 connections are open") == 1
