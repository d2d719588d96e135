"""Threads for slow work; single queries that come at the same time are answered together."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Generic, TypeVar

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.service.errors import Overloaded

Result = TypeVar("Result")


class WorkThreads:
    """Some threads that take work in the order in which it comes.

    Python waits at its end for the threads of its own pools, however long; not for these.

    Parameters
    ----------
    n_threads : int
        How much is done at a time.
    name : str
        Of the threads.
    patience : float, optional
        Seconds that `run` waits.
    largest_queue : int, optional
        How much may wait, as it holds its input in memory; `submit` raises `Overloaded` for more.

    Examples
    --------
    >>> threads = WorkThreads(2, "adds")
    >>> threads.submit(lambda: 1 + 1).result()
    2
    >>> threads.close()
    >>> threads.join(5.0)
    True
    """

    def __init__(
        self,
        n_threads: int,
        name: str,
        *,
        patience: float | None = None,
        largest_queue: int | None = None,
    ) -> None:
        self._patience = patience
        self._largest = None if largest_queue is None else n_threads + largest_queue
        self._lock, self._is_closed = Lock(), False
        self._under_way: set[Future[Any]] = set()
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._take_work, name=f"nearsure-{name}-{i}", daemon=True)
            for i in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Have something done; it can be cancelled until it is begun."""
        future: Future[Result] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("Nothing can be submitted after the end.")
            if self._largest is not None and len(self._under_way) >= self._largest:
                raise Overloaded(f"{self._largest} wait for this already. Try again shortly.")
            self._under_way.add(future)
            self._work.put((future, work))
        # Also called for what is cancelled.
        future.add_done_callback(self._under_way.discard)
        return future

    async def run(self, work: Callable[[], Result]) -> Result:
        """What something returns, if that does not take too long."""
        return await _within(self._patience, asyncio.wrap_future(self.submit(work)))

    def close(self, *, cancel: bool = False) -> None:
        """Take nothing new; do what waits still, or cancel it."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for _ in self._threads:
                    self._work.put(None)
        if cancel:
            for future in self._under_way.copy():
                future.cancel()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the threads after `close`; whether all have ended in time."""
        deadline = None if timeout is None else monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _take_work(self) -> None:
        while (taken := self._work.get()) is not None:
            _do(*taken)
            # What was worked on must not live on until there is more to do.
            del taken


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is raised where it was asked
        future.set_exception(error)


async def _within(patience: float | None, answer: Awaitable[Result]) -> Result:
    limit = asyncio.timeout(patience)
    try:
        async with limit:
            return await answer
    except TimeoutError:
        if not limit.expired():
            raise  # The answer's own.
        raise Overloaded(f"There was no answer within {patience:g} s. Try again shortly.") from None


Answered = TypeVar("Answered")


@dataclass(eq=False, slots=True)
class _Question(Generic[Answered]):
    vector: AnyArray
    future: asyncio.Future[Answered]


class MicroBatcher(Generic[Answered]):
    """Gathers questions of coroutines into batches for one function in a thread.

    Parameters
    ----------
    answer : callable
        Takes an array of shape (m, d) and returns m answers in the order of its rows. It runs in a
        thread, one call at a time. If it raises, each row is tried alone, so that a bad row fails
        no other; an OSError is raised for all rows.
    largest_batch : int
        Rows of one call.
    largest_queue : int
        Questions that may wait; the next raises `Overloaded` at once.
    patience : float, optional
        Seconds to wait for an answer, whether the question is in the queue or with a function
        that hangs.
    on_batch : callable, optional
        Is called with the number of rows of each batch before it is answered, in the event loop.

    Examples
    --------
    >>> import asyncio
    >>> async def ask_three() -> list[float]:
    ...     batcher = MicroBatcher(lambda rows: rows.sum(axis=1).tolist(), largest_queue=10)
    ...     answers = await asyncio.gather(*(batcher.ask(np.full(2, i)) for i in range(3)))
    ...     await batcher.close()
    ...     return answers
    >>> asyncio.run(ask_three())
    [0, 2, 4]
    """

    def __init__(
        self,
        answer: Callable[[AnyArray], Sequence[Answered]],
        *,
        largest_batch: int = 256,
        largest_queue: int,
        patience: float | None = None,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self._answer = answer
        self._largest_batch = largest_batch
        self._largest_queue = largest_queue
        self._patience = patience
        self._on_batch = on_batch
        self._waiting: deque[_Question[Answered]] = deque()
        self._thread = WorkThreads(1, "answers")
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def queue_length(self) -> int:
        """How many questions wait, without those that are being answered."""
        return len(self._waiting)

    async def ask(self, vector: AnyArray) -> Answered:
        """Wait for the answer to one row, of shape (d,).

        Raises
        ------
        Overloaded
            If the queue is full, no answer came in time, or the service is stopping.
        """
        if self._closing:
            raise Overloaded("The service is stopping. Try again shortly.")
        if len(self._waiting) >= self._largest_queue:
            raise Overloaded(
                f"{self._largest_queue} queries wait already. Try again shortly, or less often."
            )
        loop = asyncio.get_running_loop()
        question: _Question[Answered] = _Question(vector, loop.create_future())
        self._waiting.append(question)
        if self._idle.is_set():
            self._idle.clear()
            # Not at once: requests that came in the same turn of the loop still join the batch.
            loop.call_soon(self._start_batch)
        return await _within(self._patience, question.future)

    async def close(self) -> None:
        """Answer what waits, take nothing new, and end the thread, if it does not hang."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._idle.wait()
        self._thread.close()
        if self._idle.is_set():
            self._thread.join()

    def _start_batch(self) -> None:
        """Hand the next questions to the thread, or rest."""
        batch = self._next_batch()
        if not batch:
            self._idle.set()
            return
        if self._on_batch is not None:
            self._on_batch(len(batch))
        loop = asyncio.get_running_loop()
        vectors = [question.vector for question in batch]
        outcome = self._thread.submit(lambda: self._answer_all(vectors))
        outcome.add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._end_batch, batch, done)
        )

    def _next_batch(self) -> list[_Question[Answered]]:
        batch: list[_Question[Answered]] = []
        while self._waiting and len(batch) < self._largest_batch:
            question = self._waiting.popleft()
            # Otherwise the client has gone, or its time is over.
            if not question.future.done():
                batch.append(question)
        return batch

    def _end_batch(
        self,
        batch: list[_Question[Answered]],
        outcome: Future[Sequence[Answered | Exception]],
    ) -> None:
        # The thread goes on with the next batch while the answers of this one are sent.
        self._start_batch()
        failure = outcome.exception()
        answers = [failure] * len(batch) if failure is not None else outcome.result()
        for question, answer in zip(batch, answers, strict=True):
            if question.future.done():
                continue
            if isinstance(answer, BaseException):
                question.future.set_exception(answer)
            else:
                question.future.set_result(answer)

    def _answer_all(self, vectors: list[AnyArray]) -> Sequence[Answered | Exception]:
        """Answers in the thread, or the errors of rows that cannot be answered."""
        try:
            return self._answer_checked(vectors)
        except OSError as error:
            # An engine that cannot be reached is no row's fault, and would be waited for each time.
            return [error] * len(vectors)
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked
            if len(vectors) == 1:
                return [error]
        return [self._answer_all([vector])[0] for vector in vectors]

    def _answer_checked(self, vectors: list[AnyArray]) -> Sequence[Answered]:
        answers = self._answer(np.stack(vectors))
        if len(answers) != len(vectors):
            raise RuntimeError(f"{len(vectors)} rows were sent, {len(answers)} answers came.")
        return answers
