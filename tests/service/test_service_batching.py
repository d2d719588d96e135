"""Threads for slow work, and queries that are answered together."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, current_thread, get_ident
from time import monotonic
from typing import Literal

import numpy as np
import pytest
from served_examples import DIMENSION, serving, sqlite_gallery

from nearsure.arrays import AnyArray
from nearsure.service import service
from nearsure.service.batching import MicroBatcher, WorkThreads
from nearsure.service.errors import Overloaded


class Worker:
    """Sums rows; waits for a sign before each batch, and refuses negative rows."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[AnyArray] = []
        self.threads: set[int] = set()
        self.go = Event()
        if not held:
            self.go.set()

    def __call__(self, rows: AnyArray) -> Sequence[float]:
        assert self.go.wait(10)
        self.threads.add(get_ident())
        self.batches.append(rows)
        if (rows < 0).any():
            raise ValueError(f"negative: {rows.min():g}")
        return [float(total) for total in rows.sum(axis=1)]


def row(value: float) -> AnyArray:
    return np.array([value, 2 * value], np.float32)


async def settle() -> None:
    """Let whatever is ready in the loop run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def started(batcher: MicroBatcher[float], *values: float) -> list[asyncio.Task[float]]:
    """Ask and wait until the questions are with the thread or in the queue."""
    tasks = [asyncio.create_task(batcher.ask(row(value))) for value in values]
    await settle()
    return tasks


def test_each_gets_the_answer_to_its_own_row() -> None:
    async def run() -> None:
        batcher = MicroBatcher(Worker(), largest_queue=1000)
        answers = await asyncio.gather(*(batcher.ask(row(i)) for i in range(500)))
        assert answers == [3.0 * i for i in range(500)]
        await batcher.close()

    asyncio.run(run())


def test_whatever_waits_when_the_thread_is_free_is_one_batch() -> None:
    async def run() -> None:
        worker, sizes = Worker(held=True), list[int]()
        batcher = MicroBatcher(worker, largest_batch=4, largest_queue=100, on_batch=sizes.append)
        first = await started(batcher, 0)
        rest = await started(batcher, *range(1, 11))
        assert batcher.queue_length == 10
        worker.go.set()
        assert await asyncio.gather(*first, *rest) == [3.0 * i for i in range(11)]
        assert [len(batch) for batch in worker.batches] == [1, 4, 4, 2]
        assert sizes == [1, 4, 4, 2]
        assert len(worker.threads) == 1
        assert get_ident() not in worker.threads
        assert batcher.queue_length == 0
        await batcher.close()

    asyncio.run(run())


def test_what_comes_in_one_turn_of_the_loop_is_one_batch() -> None:
    async def run() -> None:
        worker = Worker()
        batcher = MicroBatcher(worker, largest_queue=100)
        await asyncio.gather(*(batcher.ask(row(i)) for i in range(64)))
        assert [len(batch) for batch in worker.batches] == [64]
        await batcher.close()

    asyncio.run(run())


def test_a_bad_row_fails_nobody_else() -> None:
    async def run() -> None:
        batcher = MicroBatcher(Worker(), largest_queue=100)
        asked = (batcher.ask(row(value)) for value in (1, -2, 3, -4))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert answers[0] == 3.0
        assert answers[2] == 9.0
        assert str(answers[1]) == "negative: -4"
        assert str(answers[3]) == "negative: -8"
        assert await batcher.ask(row(5)) == 15.0
        await batcher.close()

    asyncio.run(run())


def test_an_engine_that_is_gone_is_not_asked_for_each_row() -> None:
    calls: list[int] = []

    def gone(rows: AnyArray) -> Sequence[float]:
        calls.append(len(rows))
        raise ConnectionError("gone")

    async def run() -> None:
        batcher = MicroBatcher(gone, largest_queue=100)
        asked = (batcher.ask(row(i)) for i in range(8))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(answer, ConnectionError) for answer in answers)
        assert calls == [8]
        await batcher.close()

    asyncio.run(run())


def test_an_answer_too_few_is_nobodys_answer() -> None:
    async def run() -> None:
        batcher = MicroBatcher(lambda rows: rows[1:].tolist(), largest_queue=100)
        with pytest.raises(RuntimeError, match="1 rows were sent, 0 answers came"):
            await batcher.ask(row(1))
        await batcher.close()

    asyncio.run(run())


def test_a_full_queue_refuses_at_once_and_recovers() -> None:
    async def run() -> None:
        worker = Worker(held=True)
        batcher = MicroBatcher(worker, largest_queue=3)
        taken = [*await started(batcher, 0), *await started(batcher, 1, 2, 3)]
        with pytest.raises(Overloaded, match="3 queries wait already") as raised:
            await batcher.ask(row(4))
        assert raised.value.status == 503
        assert raised.value.headers == {"retry-after": "1"}
        worker.go.set()
        assert await asyncio.gather(*taken) == [0.0, 3.0, 6.0, 9.0]
        assert await batcher.ask(row(4)) == 12.0
        await batcher.close()

    asyncio.run(run())


def test_who_has_gone_is_not_answered_and_disturbs_nobody() -> None:
    async def run() -> None:
        worker = Worker(held=True)
        batcher = MicroBatcher(worker, largest_queue=100)
        running = await started(batcher, 1)
        waiting = await started(batcher, 2, 3)
        running[0].cancel()
        waiting[0].cancel()
        worker.go.set()
        assert await waiting[1] == 9.0
        assert [batch[:, 0].tolist() for batch in worker.batches] == [[1.0], [3.0]]
        await batcher.close()
        assert running[0].cancelled()
        assert waiting[0].cancelled()

    asyncio.run(run())


def test_nobody_waits_longer_than_patience_for_a_batch_that_hangs() -> None:
    async def run() -> None:
        worker = Worker(held=True)
        batcher = MicroBatcher(worker, largest_queue=100, patience=0.3)
        running = await started(batcher, 1)
        waiting = await started(batcher, 2)
        for task in (*running, *waiting):
            async with asyncio.timeout(5):
                with pytest.raises(Overloaded, match=r"no answer within 0\.3 s"):
                    await task
        fresh = await started(batcher, 3)
        worker.go.set()
        assert await fresh[0] == 9.0
        # What nobody waits for any longer is not asked at all.
        assert [batch[:, 0].tolist() for batch in worker.batches] == [[1.0], [3.0]]
        await batcher.close()

    asyncio.run(run())


def test_a_timeout_of_the_function_is_its_own() -> None:
    def slow(_: AnyArray) -> Sequence[float]:
        raise TimeoutError("the engine's")

    async def run() -> None:
        batcher = MicroBatcher(slow, largest_queue=100, patience=5)
        with pytest.raises(TimeoutError, match="the engine's"):
            await batcher.ask(row(1))
        await batcher.close()

    asyncio.run(run())


def test_closing_answers_what_waits_and_takes_nothing_new() -> None:
    async def run() -> None:
        worker = Worker(held=True)
        batcher = MicroBatcher(worker, largest_queue=100)
        asked = [*await started(batcher, 1), *await started(batcher, 2)]
        closing = asyncio.create_task(batcher.close())
        await settle()
        with pytest.raises(Overloaded, match="stopping"):
            await batcher.ask(row(3))
        assert not closing.done()
        worker.go.set()
        assert await asyncio.gather(*asked) == [3.0, 6.0]
        await closing

    asyncio.run(run())


def test_closing_does_not_wait_for_ever_for_a_batch_that_hangs() -> None:
    async def run() -> None:
        worker = Worker(held=True)
        batcher = MicroBatcher(worker, largest_queue=100, patience=0.2)
        asked = await started(batcher, 1)
        async with asyncio.timeout(5):
            await batcher.close()
        with pytest.raises(Overloaded, match="no answer within"):
            await asked[0]
        worker.go.set()

    asyncio.run(run())


def test_work_is_done_in_its_order_and_failures_are_handed_on() -> None:
    threads, done = WorkThreads(1, "test"), list[int]()
    futures = [threads.submit(partial(done.append, number)) for number in range(50)]
    failing = threads.submit(partial(int, "x"))
    threads.close()
    assert threads.join(10)
    assert [future.result() for future in futures] == [None] * 50
    assert done == list(range(50))
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result()
    with pytest.raises(RuntimeError, match="after the end"):
        threads.submit(int)


def test_several_work_at_once() -> None:
    threads, here = WorkThreads(2, "test"), [Event(), Event()]

    def meet(own: int) -> bool:
        here[own].set()
        return here[1 - own].wait(10)

    met = [threads.submit(partial(meet, own)) for own in (0, 1)]
    assert all(future.result(10) for future in met)
    threads.close()


def test_what_waits_can_be_cancelled_and_what_is_begun_not() -> None:
    threads, begun, go = WorkThreads(1, "test"), Event(), Event()

    def hold() -> bool:
        begun.set()
        return go.wait(10)

    held, given_up, waiting = (threads.submit(hold) for _ in range(3))
    assert begun.wait(10)
    assert (held.cancel(), given_up.cancel()) == (False, True)
    threads.close(cancel=True)
    assert waiting.cancelled()
    start = monotonic()
    assert not threads.join(0.05)
    assert monotonic() - start < 5
    go.set()
    assert threads.join(10)
    assert held.result()
    threads.close()


def test_python_does_not_wait_for_them_at_its_end() -> None:
    threads = WorkThreads(2, "test")
    own = [threads.submit(current_thread).result() for _ in range(2)]
    threads.close()
    assert all(thread.daemon for thread in own)


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
