"""Threads for which only so much work may wait."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import ParamSpec, TypeVar

from nearsure.service.problems import Overloaded
from nearsure.service.work_threads import WorkThreads

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ShortQueue(WorkThreads):
    """Threads that turn work away when too much waits, which holds its input in memory.

    Parameters
    ----------
    n_threads : int
        How much is done at a time.
    largest_queue : int
        How much may wait; `submit` raises `Overloaded` for the next.
    name : str
        Of the threads.
    """

    def __init__(self, n_threads: int, largest_queue: int, name: str) -> None:
        super().__init__(n_threads, name)
        self._largest = n_threads + largest_queue
        self._under_way = 0
        self._counting = Lock()

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        """Do something when a thread is free."""
        with self._counting:
            if self._under_way >= self._largest:
                raise Overloaded(f"{self._largest} wait for this already. Ask again shortly.")
            self._under_way += 1
        try:
            future = super().submit(fn, *args, **kwargs)
        except BaseException:
            self._end(None)
            raise
        # Also of what is cancelled because nobody waits for it any longer.
        future.add_done_callback(self._end)
        return future

    def _end(self, _: object) -> None:
        with self._counting:
            self._under_way -= 1
