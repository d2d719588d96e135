"""A client of Milvus that comes back after the server did, and raises errors of nearsure alone."""

import base64
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from nearsure.engines.milvus import lite_files
from nearsure.engines.milvus.failures import Failure, kind_of, nearsure_error, text_of
from nearsure.engines.milvus.quiet import quiet, watch_loggers
from nearsure.engines.secrets import without
from nearsure.errors import EngineError, GalleryNotFoundError, NearsureError
from nearsure.extras import require

# A server that is there answers at once; one that is not should not be waited for.
CONNECTING_SECONDS = 5.0
WAKING_SECONDS = 0.1


class Connection:
    """Requests to a file, server or cluster. Threads may share it.

    Parameters
    ----------
    uri : str
        ``http(s)://[user:password@]host:port[/database]``, or a path that ends in ``.db``.
    token : str or None
        ``user:password`` or an API key.
    timeout : float
        Seconds that a request may take.
    may_create : bool
        Whether a file of milvus-lite that is not there is made.
    """

    def __init__(self, uri: str, token: str | None, timeout: float, *, may_create: bool) -> None:
        self._pymilvus = require("pymilvus", extra="milvus", purpose="MilvusEngine")
        self._grpc = require("grpc", extra="milvus", purpose="MilvusEngine")
        self._uri, self._token, self.timeout = uri, token, timeout
        self._secrets = _secrets_of(uri, token)
        self.place = f"Milvus at {address_of(uri)}"
        self._file = None
        if lite_files.is_lite(uri):
            if not may_create and not Path(uri).exists():
                raise GalleryNotFoundError(f"There is no {address_of(uri)}.")
            self._file = lite_files.enter(uri)
        self.write_lock = self._file.lock if self._file else threading.RLock()
        self._client: Any = None
        self._client_lock = threading.Lock()
        self._closed = False
        try:
            self._connected()
        except NearsureError:
            self.close()
            raise

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client.

        All that nearsure asks may be asked twice: a search changes nothing, and upserts and
        deletions of the same points come to the same. So a request is repeated once if the server
        went away, while it wakes up, and if the collection (the first argument) had to be loaded.
        """
        give_up = time.monotonic() + self.timeout
        reconnected = loaded = False
        while True:
            client = self._connected()
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
                raise nearsure_error(failure, self.place, reason)

    def close(self) -> None:
        """Give back the connection, and the file if no other engine has it open."""
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

    def _connected(self) -> Any:  # noqa: ANN401
        with self._client_lock:
            if self._closed:
                raise EngineError(f"The engine on {self.place} was closed. Open another.")
            if self._client is None:
                self._client = self._new_client()
            return self._client

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
                    self._uri,
                    token=self._token or "",
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
        reason = without(text_of(error), *self._secrets).rstrip(".")
        return f"{reason}."


def address_of(uri: str) -> str:
    """A URI without user and password.

    Examples
    --------
    >>> address_of("https://ann:s3cret@db:19530/shop?token=abc")
    'https://db:19530/shop'
    """
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _secrets_of(uri: str, token: str | None) -> list[str]:
    """All that must not be shown: tokens, their passwords, and how they travel."""
    secrets = []
    user_info = urlsplit(uri).netloc.rpartition("@")[0] if "://" in uri else ""
    for secret in (token, user_info):
        if secret:
            secrets += [secret, base64.b64encode(secret.encode()).decode()]
            password = secret.partition(":")[2]
            if password:
                secrets.append(password)
    return secrets
