"""A client of Milvus that comes back after the server did, and raises errors of nearsure alone."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from nearsure.engines.milvus import lite_files
from nearsure.engines.milvus.address import Address
from nearsure.engines.milvus.failures import (
    Failure,
    kind_of,
    nearsure_error,
    of_unknown_outcome,
    text_of,
)
from nearsure.engines.milvus.quiet import quiet, watch_loggers
from nearsure.engines.secrets import without
from nearsure.errors import (
    EngineError,
    EngineUnavailableError,
    GalleryNotFoundError,
    NearsureError,
)
from nearsure.extras import require

# A server that is there answers at once; one that is not should not be waited for.
CONNECTING_SECONDS = 5.0
WAKING_SECONDS = 0.1
# What leaves another state behind, of the requests that nearsure makes.
CHANGING = frozenset({"upsert", "delete", "create_collection", "drop_collection", "create_index"})


class Connection:
    """Requests to a file, server or cluster. Threads may share it.

    Parameters
    ----------
    address : Address
        Where, and with which token.
    timeout : float
        Seconds that a request may take.
    may_create : bool
        Whether a file of milvus-lite that is not there is made.
    """

    def __init__(self, address: Address, timeout: float, *, may_create: bool) -> None:
        self._pymilvus = require("pymilvus", extra="milvus", purpose="MilvusEngine")
        self._grpc = require("grpc", extra="milvus", purpose="MilvusEngine")
        self._address, self.timeout = address, timeout
        self.place = f"Milvus at {address.shown}"
        self._pid = os.getpid()
        self._file = None
        if address.is_file:
            if not may_create and not Path(address.shown).exists():
                raise GalleryNotFoundError(f"There is no {address.shown}.")
            self._file = lite_files.enter(address.shown)
        self._write_lock = self._file.lock if self._file else threading.RLock()
        self._client: Any = None
        self._client_lock = threading.Lock()
        self._closed = False
        try:
            self._connected()
        except NearsureError:
            self.close()
            raise

    @property
    def is_file(self) -> bool:
        """Whether it is a file of milvus-lite."""
        return self._address.is_file

    @property
    def write_lock(self) -> threading.RLock:
        """Held while something is written by this process."""
        self._check_process()
        return self._write_lock

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client.

        All that nearsure asks may be asked twice: a search changes nothing, and upserts and
        deletions of the same points come to the same. So a request is repeated once if the server
        went away, while it wakes up, and if the collection (the first argument) had to be loaded.
        """
        give_up = time.monotonic() + self.timeout
        reconnected = loaded = False
        while True:
            client = self._client_for(method, was_sent=reconnected)
            try:
                with quiet():
                    return getattr(client, method)(*arguments, timeout=self.timeout, **options)
            except (self._pymilvus.MilvusException, self._grpc.RpcError) as error:
                failure, reason = kind_of(error), self._clean(error)
            if failure is Failure.GONE:
                self._drop(client)
                again = not reconnected
                reconnected = True
            elif failure is Failure.RELEASED and method != "load_collection":
                again = not loaded
                loaded = True
                if again:
                    self.ask("load_collection", *arguments[:1])
            elif failure is Failure.SLOW:
                # What is still under way would hold up the next request.
                self._drop(client)
                again = False
            else:
                again = failure is Failure.WAKING and time.monotonic() < give_up
                if again:
                    time.sleep(WAKING_SECONDS)
            if not again:
                # Outside of the except clause, so that the original, which may quote a secret, is
                # not chained.
                raise self._error(failure, method, reason)

    def close(self) -> None:
        """Give back the connection, and the file if no other engine has it open."""
        if self._pid != os.getpid():
            # They are the parent's, which goes on with them.
            return
        with self._client_lock:
            if self._closed:
                return
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._file is not None:
            lite_files.leave(self._file)

    def __repr__(self) -> str:
        return f"<{self.place}>"

    def _check_process(self) -> None:
        """Locks, threads and sockets of gRPC do not survive a fork."""
        if self._pid != os.getpid():
            raise EngineError(
                f"The engine on {self.place} was opened before this process was forked, and works "
                "in the parent alone. Open another in this process"
                + (", once the parent has closed its own." if self.is_file else ".")
            )

    def _connected(self) -> Any:  # noqa: ANN401
        self._check_process()
        with self._client_lock:
            if self._closed:
                raise EngineError(f"The engine on {self.place} was closed. Open another.")
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _client_for(self, method: str, *, was_sent: bool) -> Any:  # noqa: ANN401
        try:
            return self._connected()
        except EngineUnavailableError as error:
            if was_sent and method in CHANGING:
                raise of_unknown_outcome(error) from None
            raise

    def _error(self, failure: Failure, method: str, reason: str) -> NearsureError:
        error = nearsure_error(failure, self.place, reason)
        if failure in {Failure.GONE, Failure.SLOW} and method in CHANGING:
            return of_unknown_outcome(error)
        return error

    def _drop(self, client: Any) -> None:  # noqa: ANN401
        with self._client_lock:
            if self._client is client:
                self._client = None
        with quiet():
            client.close()

    def _new_client(self) -> Any:  # noqa: ANN401
        watch_loggers()
        with quiet() as logged:
            try:
                return self._pymilvus.MilvusClient(
                    self._address.shown,
                    token=self._address.token,
                    timeout=min(CONNECTING_SECONDS, self.timeout),
                    # Shared ones are never closed by pymilvus.
                    dedicated=True,
                )
            except (self._pymilvus.MilvusException, self._grpc.RpcError) as error:
                failure, reason = kind_of(error), self._clean(error)
        if self._file is not None and failure is not Failure.GONE:
            raise lite_files.opening_error(self._file.path, logged)
        raise nearsure_error(failure, self.place, reason)

    def _clean(self, error: BaseException) -> str:
        reason = without(text_of(error), *self._address.secrets).rstrip(".")
        return f"{reason}."
