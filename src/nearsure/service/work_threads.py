"""Threads that work off what they are given, and keep nobody from stopping."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class WorkThreads(Executor):
    """Some threads that take work in the order in which it comes.

    Python waits at its end for the threads of its own pools, however long; not for these.

    Parameters
    ----------
    n_threads : int
        How much is done at a time.
    name : str
        Of the threads.

    Examples
    --------
    >>> threads = WorkThreads(2, "adds")
    >>> threads.submit(sum, [1, 1]).result()
    2
    >>> threads.shutdown(wait=False)
    >>> threads.join(5.0)
    True
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self._n_threads, self._name = n_threads, name
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._is_shut_down = False

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        """Have something done; as long as nobody has begun with it, it can be cancelled."""
        future: Future[Result] = Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("Nothing can be submitted after shutdown.")
            self._work.put((future, partial(fn, *args, **kwargs)))
            if len(self._threads) < self._n_threads:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - Python's
        """Take nothing new; do what waits still, or cancel it."""
        with self._lock:
            while cancel_futures and (waiting := self._next_waiting()) is not None:
                waiting.cancel()
            if not self._is_shut_down:
                self._is_shut_down = True
                for _ in self._threads:
                    self._work.put(None)
        if wait:
            self.join()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the threads after `shutdown`; whether all have ended in time."""
        deadline = None if timeout is None else monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _next_waiting(self) -> Future[Any] | None:
        try:
            waiting = self._work.get_nowait()
        except Empty:
            return None
        return None if waiting is None else waiting[0]

    def _run(self) -> None:
        while (taken := self._work.get()) is not None:
            _do(*taken)
            # What was worked on must not live on until there is more to do.
            del taken


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is handed to whoever asked
        future.set_exception(error)
