"""A change in several places that is taken back if it fails in one of them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import RLock
from typing import TypeVar

from nearsure.errors import NearsureError, PartialGalleryError

Result = TypeVar("Result")


@dataclass(frozen=True)
class Step:
    """What one place does, and what takes it back.

    `do` is whole or not at all. `undo` is called whether `do` succeeded, failed or was cut off, so
    it looks first; and it may be called again after a failure of its own.
    """

    do: Callable[[], None]
    undo: Callable[[], None]


class UndoableChanges:
    """Changes one after the other, each in all places or in none.

    While a change can be neither made nor taken back, `settle` raises `PartialGalleryError`; it
    tries again whenever it is called. What was underway when the process died is forgotten.

    Examples
    --------
    >>> shelf = []
    >>> def fail():
    ...     raise NearsureError("The second place is full.")
    >>> steps = [Step(lambda: shelf.append("book"), shelf.clear), Step(fail, lambda: None)]
    >>> UndoableChanges().make(steps)
    Traceback (most recent call last):
    nearsure.errors.NearsureError: The second place is full.
    >>> shelf
    []
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._to_undo: list[Callable[[], None]] = []

    def make(self, steps: Sequence[Step]) -> None:
        """Do all steps at once, in threads; if one fails, undo all and raise its error."""
        with self.lock:
            self.settle()
            if len(steps) == 1:
                return steps[0].do()
            try:
                in_parallel([step.do for step in steps])
            except BaseException:  # an interruption, too
                self._to_undo = [step.undo for step in steps]
                self.settle()
                raise

    def settle(self) -> None:
        """Take back what is left of a change that failed."""
        if not self._to_undo:
            return
        with self.lock:
            failures = []
            for undo in tuple(self._to_undo):
                try:
                    undo()
                except NearsureError as error:
                    failures.append(error)
                else:
                    self._to_undo.remove(undo)
            if failures:
                raise PartialGalleryError(
                    "A change failed in one shard and could not be taken back in another, so that "
                    "a part of it is there. Call again when the shard is back: what is left is "
                    f"taken back first. The error was: {failures[0]}"
                ) from failures[0]


def in_parallel(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of all calls, each in a thread; the first error, after all have ended."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(max(len(calls), 1)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]
