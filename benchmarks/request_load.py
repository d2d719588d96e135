"""Clients that ask one service at the same time, lean enough not to be what is measured.

Each keeps its connection, sends bytes that were made before, and reads no more of an answer than
its status and length.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, process_time
from typing import cast

import numpy as np
import uvloop

# A client that was turned away comes back after so many seconds, far sooner than it is told to.
PAUSE = 0.05


@dataclass
class Load:
    """What clients saw: the time of each answer by its status, and how busy they were."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    durations: dict[int, list[float]] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Answers with status 200 in a second."""
        return self.count(200) / self.seconds

    def count(self, status: int) -> int:
        """Answers with a status."""
        return len(self.durations.get(status, ()))

    def times(self, status: int) -> list[float]:
        """Seconds of the answers with a status; not a number if there are none."""
        return self.durations.get(status, [float("nan")])

    def quantile(self, share: float, status: int = 200) -> float:
        """Seconds within which this share of the answers with a status came."""
        return float(np.quantile(self.times(status), share))


def ask_together(port: int, requests: Sequence[bytes], n_clients: int, duration: float) -> Load:
    """Let clients ask for some seconds, each its next question when it has the answer.

    Raises
    ------
    ConnectionError
        If the service closes a connection.
    """
    return uvloop.run(_ask_together(port, requests, n_clients, duration))


async def _ask_together(
    port: int, requests: Sequence[bytes], n_clients: int, duration: float
) -> Load:
    loop = asyncio.get_running_loop()
    load = Load()
    ended: asyncio.Future[None] = loop.create_future()
    clients: list[_Client] = []
    for number in range(n_clients):
        rotated = [*requests[number % len(requests) :], *requests[: number % len(requests)]]
        clients.append(_Client(rotated, load, ended))
        await loop.create_connection(partial(clients.__getitem__, -1), "127.0.0.1", port)
    start, cpu_start = perf_counter(), process_time()
    for client in clients:
        client.ask()
    end = loop.call_later(duration, ended.set_result, None)
    try:
        await ended
    finally:
        end.cancel()
        load.seconds, load.cpu_seconds = perf_counter() - start, process_time() - cpu_start
        for client in clients:
            client.stop()
    return load


class _Client(asyncio.Protocol):
    def __init__(
        self, requests: Sequence[bytes], load: Load, ended: "asyncio.Future[None]"
    ) -> None:
        self._requests, self._load, self._ended = requests, load, ended
        self._place, self._since = 0, 0.0
        self._received = b""
        self._stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._stopped and not self._ended.done():
            self._ended.set_exception(ConnectionError(f"A connection was lost: {exc}"))

    def ask(self) -> None:
        if self._stopped:
            return
        request = self._requests[self._place]
        self._place = (self._place + 1) % len(self._requests)
        self._since = perf_counter()
        self._transport.write(request)

    def stop(self) -> None:
        self._stopped = True
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        at = self._received.find(b"content-length: ", 0, head_end) + len(b"content-length: ")
        length = int(self._received[at : self._received.find(b"\r", at)])
        if len(self._received) < head_end + 4 + length:
            return
        status = int(self._received[9:12])
        self._received = b""
        self._load.durations.setdefault(status, []).append(perf_counter() - self._since)
        if status == 200:  # noqa: PLR2004 - fine
            self.ask()
        else:
            asyncio.get_running_loop().call_later(PAUSE, self.ask)
