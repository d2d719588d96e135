"""Killed under load, again and again: nothing acknowledged is lost, nothing is half there."""

from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import numpy as np
from served_examples import DIMENSION, sqlite_gallery
from service_processes import (
    LONGEST_WAIT,
    asked,
    connected,
    free_port,
    service_processes,
    wait_until_ready,
)

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


def test_nothing_acknowledged_is_lost_and_nothing_is_half_there(tmp_path: Path) -> None:
    path, port = sqlite_gallery(tmp_path / "birds.sqlite", n_each=10), free_port()
    writers = [Writer(number, port) for number in range(N_WRITERS)]
    readers = [Reader(number, port) for number in range(N_READERS)]
    clients: list[Writer | Reader] = [*writers, *readers]
    rng = np.random.default_rng(0)
    with service_processes(tmp_path / "service.log") as processes:
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
                wait_for_changes(writers, int(rng.integers(1, 25)))
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
