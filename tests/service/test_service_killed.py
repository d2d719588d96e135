"""Killed under load, again and again: nothing acknowledged is lost, nothing is half there."""

from http.client import HTTPException
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
from served_examples import DIMENSION, sqlite_gallery
from service_processes import (
    ServiceProcesses,
    asked,
    connected,
    free_port,
    service_processes,
    wait_until_ready,
)

N_KILLS = 20
N_WRITERS = 3
BATCH = 3
LABELS = ("ibis", "swan", "rail")
ABSENT = "absent"


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
        self.n_acknowledged = 0
        self.problems: list[object] = []

    def run(self) -> None:
        connection = connected(self.port)
        try:
            while True:
                self._change_something(connection)
        except (OSError, HTTPException):
            return
        finally:
            connection.close()

    def _change_something(self, connection: Any) -> None:
        there = [batch for batch, state in self.known.items() if state != ABSENT]
        label = str(self.rng.choice(LABELS))
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
            (now,) = found
            assert now in allowed, f"{batch} should be {allowed}, and is {now}"
            self.known[batch] = now
        self.pending = None


class Reader:
    """Asks all the time, and for a new fit now and then."""

    def __init__(self, number: int, port: int) -> None:
        self.number, self.port = number, port
        self.n_answers = 0
        self.problems: list[object] = []

    def run(self) -> None:
        connection = connected(self.port)
        try:
            for turn in range(100_000):
                if self.number == 0 and turn % 20 == 5:
                    status, answer = asked(connection, "POST", "/v1/refit")
                else:
                    query = {"vector": [0.01 * turn] * DIMENSION}
                    status, answer = asked(connection, "POST", "/v1/predict", query)
                self.n_answers += 1
                if status >= 300:
                    self.problems.append((status, answer))
        except (OSError, HTTPException):
            return
        finally:
            connection.close()


def names(batch: str) -> list[str]:
    return [f"{batch}i{i}" for i in range(BATCH)]


def all_labels(port: int) -> dict[str, str]:
    connection, found, after = connected(port), {}, ""
    while True:
        status, page = asked(connection, "GET", f"/v1/items?limit=1000{after}")
        assert status == 200
        found |= {item["id"]: item["label"] for item in page["items"]}
        if page["next"] is None:
            assert page["total"] == len(found)
            return found
        after = f"&after={page['next']}"


def killed_under_load(
    processes: ServiceProcesses,
    path: Path,
    port: int,
    seconds: float,
    clients: list[Writer | Reader],
) -> None:
    process_id = processes.start(gallery=str(path), port=port)
    wait_until_ready(port)
    labels = all_labels(port)
    for client in clients:
        if isinstance(client, Writer):
            client.compare(labels)
    own = {name for name in labels if name.startswith("p")}
    assert len(own) == 40
    threads = [Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    sleep(seconds)
    processes.kill(process_id)
    for thread in threads:
        thread.join()


def test_nothing_acknowledged_is_lost_and_nothing_is_half_there(tmp_path: Path) -> None:
    path, port = sqlite_gallery(tmp_path / "birds.sqlite", n_each=10), free_port()
    writers = [Writer(number, port) for number in range(N_WRITERS)]
    readers = [Reader(number, port) for number in range(2)]
    rng = np.random.default_rng(0)
    with service_processes(tmp_path / "service.log") as processes:
        for _ in range(N_KILLS):
            seconds = float(rng.uniform(0.02, 0.35))
            killed_under_load(processes, path, port, seconds, [*writers, *readers])
        # It starts once more, and answers.
        process_id = processes.start(gallery=str(path), port=port)
        wait_until_ready(port)
        labels = all_labels(port)
        for writer in writers:
            writer.compare(labels)
        connection = connected(port)
        status, answer = asked(connection, "POST", "/v1/predict", {"item": "p000"})
        assert (status, set(answer) >= {"label", "confidence"}) == (200, True)
        _, model = asked(connection, "GET", "/v1/model")
        assert model["size"] == len(labels)
        assert model["n_classes"] == len(set(labels.values()))
        processes.kill(process_id)
    assert [problem for client in (*writers, *readers) for problem in client.problems] == []
    # The load was one: many changes and answers were cut off or acknowledged.
    assert sum(writer.n_acknowledged for writer in writers) > 5 * N_KILLS
    assert sum(reader.n_answers for reader in readers) > 5 * N_KILLS
