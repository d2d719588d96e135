"""How far long work has come, told part by part to whoever watches.

Loops that may take minutes go through `tracked`. Nobody watches by default, and then it costs
nothing; the command line draws bars with an estimate of the time left.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

Part = TypeVar("Part")
Watcher: TypeAlias = Callable[[str, int, int], None]
_watcher: ContextVar[Watcher | None] = ContextVar("nearsure_watcher", default=None)


@contextmanager
def watching(watcher: Watcher | None) -> Iterator[None]:
    """Have work inside, in this thread, tell how far it has come.

    Parameters
    ----------
    watcher : callable or None
        Called with the name of the work, how much is done, and how much there is in all: first
        with nothing done, then after each part. It must be quick, and raise nothing.

    Examples
    --------
    >>> with watching(lambda work, done, total: print(f"{work}: {done} of {total}")):
    ...     for part in tracked("counting", ["a", "bc"], total=3, size=len):
    ...         print(part)
    counting: 0 of 3
    a
    counting: 1 of 3
    bc
    counting: 3 of 3
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tracked(
    work: str, parts: Iterable[Part], total: int, size: Callable[[Part], int] | None = None
) -> Iterator[Part]:
    """The parts, one by one; who watches is told of each that is done.

    Parameters
    ----------
    work : str
        What is being done, for people: ``"searching"``.
    parts : iterable
        What it is done to.
    total : int
        The sizes of all parts together.
    size : callable, optional
        How much a part is; by default each is 1.
    """
    done = 0
    _tell(work, done, total)
    for part in parts:
        yield part
        done += 1 if size is None else size(part)
        _tell(work, done, total)


def _tell(work: str, done: int, total: int) -> None:
    # Whoever watches now: work that is done bit by bit may outlast a watcher.
    watcher = _watcher.get()
    if watcher is not None:
        watcher(work, done, total)
