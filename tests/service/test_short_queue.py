"""Threads for which little may wait: the next is turned away, and places become free again."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Literal

import numpy as np
import pytest
from served_examples import DIMENSION, serving, sqlite_gallery

from nearsure.arrays import AnyArray
from nearsure.service import service
from nearsure.service.batching import WorkThreads
from nearsure.service.errors import Overloaded


class HeldEncoder:
    """Waits for a sign before each image."""

    kind: Literal["image"] = "image"
    dimension = DIMENSION

    def __init__(self) -> None:
        self.asked, self.go = Event(), Event()

    def encode(self, inputs: object) -> AnyArray:
        del inputs
        self.asked.set()
        assert self.go.wait(10)
        return np.zeros((1, DIMENSION), np.float32)


@pytest.fixture
def queue() -> Iterator[WorkThreads]:
    threads = WorkThreads(1, "test", largest_queue=2)
    yield threads
    threads.close()
    assert threads.join(10)


def waiting_for(go: Event) -> Callable[[], bool]:
    return lambda: go.wait(10)


def test_one_is_done_two_wait_the_next_is_turned_away(queue: WorkThreads) -> None:
    go = Event()
    taken = [queue.submit(waiting_for(go)) for _ in range(3)]
    with pytest.raises(Overloaded, match="3 wait for this already"):
        queue.submit(waiting_for(go))
    go.set()
    assert [future.result() for future in taken] == [True, True, True]
    assert queue.submit(lambda: 7).result() == 7


def test_what_fails_and_what_is_given_up_leaves_its_place(queue: WorkThreads) -> None:
    async def run() -> None:
        for _ in range(5):
            with pytest.raises(ValueError, match="invalid literal"):
                await queue.run(lambda: int("x"))
        go = Event()
        running = queue.submit(waiting_for(go))
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await queue.run(waiting_for(go))
        go.set()
        assert running.result()

    asyncio.run(run())


def test_a_closed_one_counts_nothing() -> None:
    queue = WorkThreads(1, "test", largest_queue=1)
    queue.close()
    for _ in range(5):
        with pytest.raises(RuntimeError, match="after the end"):
            queue.submit(int)


def test_images_that_too_many_wait_for_are_turned_away_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WAITING_ENCODINGS", 0)
    encoder = HeldEncoder()
    headers = {"content-type": "image/png"}
    with (
        serving(sqlite_gallery(tmp_path / "a.sqlite"), encoder=encoder) as client,
        ThreadPoolExecutor(1) as another,
    ):
        first = another.submit(client.post, "/v1/predict/image", content=b"one", headers=headers)
        assert encoder.asked.wait(10)
        late = client.post("/v1/predict/image", content=b"two", headers=headers)
        assert late.status_code == 503
        assert late.headers["retry-after"] == "1"
        encoder.go.set()
        assert first.result().status_code == 200
        assert client.post("/v1/predict/image", content=b"3", headers=headers).status_code == 200
