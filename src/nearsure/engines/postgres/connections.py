"""Connections that are lent out, checked and replaced, so that work outlives a server's restart."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from nearsure.engines.postgres.address import Address
from nearsure.engines.postgres.server_errors import engine_error
from nearsure.errors import EngineError, EngineUnavailableError

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

# Seconds between the attempts of a read: at once for a connection that had gone stale, then
# long enough for a server that is about to be back.
_PAUSES = (0.0, 0.5)


class Connections:
    """A few connections for several threads, opened when needed.

    It opens a connection in the thread that needs it, so that the reason of a failure reaches the
    caller at once, and it starts no threads of its own.

    Parameters
    ----------
    address : Address
        The server.
    size : int
        How many may be open at once.
    timeout : float
        Seconds to wait for one that is free.
    """

    def __init__(self, address: Address, size: int, timeout: float) -> None:
        self._address = address
        self._size = size
        self._timeout = timeout
        self._closed = False
        self._idle: list[Connection] = []
        self._abandoned: list[Connection] = []
        self._begin()
        _EVERY.add(self)

    def reading(self, work: Callable[[Connection], Result]) -> Result:
        """What `work` returns, asked again if the connection broke: a read changes nothing."""
        with self._slot():
            for pause in _PAUSES:
                try:
                    return self._once(work, checked=False)
                except EngineUnavailableError:
                    time.sleep(pause)
            return self._once(work, checked=False)

    def writing(self, work: Callable[[Connection], Result]) -> Result:
        """What `work` returns, committed whole; never asked again, as it may have been done."""
        with self._slot():
            return self._once(work, checked=True)

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """A connection for what lasts long, beside those that may be open at once."""
        self._check_open()
        try:
            connection = self._taken(checked=True)
            try:
                yield connection
            finally:
                self._give_back(connection)
        except psycopg.Error as error:
            raise engine_error(error, self._address) from None

    def close(self) -> None:
        """Close what is idle; what is lent out is closed when it comes back."""
        self._closed = True
        self._close_idle()

    @contextmanager
    def _slot(self) -> Iterator[None]:
        self._check_open()
        slots = self._slots
        if not slots.acquire(timeout=self._timeout):
            raise EngineUnavailableError(
                f"All {self._size} connections to PostgreSQL ({self._address.shown}) were in use "
                f"for {self._timeout:g} seconds. Raise pool_size or timeout."
            )
        try:
            yield
        finally:
            slots.release()

    def _once(self, work: Callable[[Connection], Result], *, checked: bool) -> Result:
        is_committing = False
        try:
            connection = self._taken(checked=checked)
            try:
                result = work(connection)
                is_committing = True
                connection.commit()
            finally:
                self._give_back(connection)
        except psycopg.Error as error:
            failure = engine_error(error, self._address)
            if checked and isinstance(failure, EngineUnavailableError):
                failure = _of_unknown_outcome(failure) if is_committing else _of_nothing(failure)
            raise failure from None
        return result

    def _taken(self, *, checked: bool) -> Connection:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            return self._opened()
        if checked:
            try:
                connection.execute("SELECT 1")
                connection.rollback()
            except psycopg.OperationalError:
                connection.close()
                # If one broke while it lay idle, the others did, too.
                self._close_idle()
                return self._opened()
        return connection

    def _give_back(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            connection.rollback()
        if connection.closed:
            self._close_idle()
            return
        with self._lock:
            is_fit = connection.info.transaction_status == TransactionStatus.IDLE
            if is_fit and not self._closed and len(self._idle) < self._size:
                self._idle.append(connection)
                return
        connection.close()

    def _opened(self) -> Connection:
        # Statements are planned anew each time: a plan that was kept would not heed the settings
        # of later transactions, and poolers between here and the server would lose it.
        return psycopg.connect(self._address.conninfo, prepare_threshold=None)

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("The engine was closed. Make a new one.")

    def begin_after_fork(self) -> None:
        """Leave the parent its connections; closing them would end its sessions."""
        self._abandoned += self._idle
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._size)
        self._idle = []


_EVERY: weakref.WeakSet[Connections] = weakref.WeakSet()


def _begin_after_fork() -> None:
    """While the new process has one thread alone, which no other can overtake."""
    for connections in list(_EVERY):
        connections.begin_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_after_fork)


def _of_unknown_outcome(failure: EngineError) -> EngineError:
    return EngineUnavailableError(
        f"{failure} The connection broke while the change was being committed: it was made whole "
        "or not at all. Look with size() or fetch() before repeating it."
    )


def _of_nothing(failure: EngineError) -> EngineError:
    return EngineUnavailableError(f"{failure} Nothing was changed.")
