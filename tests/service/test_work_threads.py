"""Threads that nobody has to wait for."""

from functools import partial
from threading import Event, current_thread
from time import monotonic

import pytest

from nearsure.service.batching import WorkThreads


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
