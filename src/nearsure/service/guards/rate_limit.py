"""How often one client may ask."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Network
from time import monotonic
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from nearsure.service.guards.security import Tokens, is_open
from nearsure.service.problems import ProblemError

# A client may spend this many seconds' worth of requests at once.
BURST_SECONDS = 10.0
# Someone with a network of his own has all its addresses.
IPV6_NETWORK = 64

Client: TypeAlias = bytes | str


@dataclass(slots=True)
class _Bucket:
    level: float
    since: float


class RateLimit:
    """ASGI middleware: 429 with Retry-After for a client that asks too often.

    A client is a token that is known, or else an address: whoever makes up tokens stays one client.
    Each has a bucket of requests that fills again steadily. Health, readiness and the page with its
    assets are free.

    Parameters
    ----------
    app : ASGI application
    requests_per_second : float
        How fast a bucket fills. It holds ten seconds' worth, and at least one request.
    tokens : Tokens, optional
        Those of the service.
    largest_table : int
        Clients to remember; the one that was silent longest is forgotten first.
    clock : callable
        Seconds that never go back.
    """

    def __init__(
        self,
        app: ASGIApp,
        requests_per_second: float,
        tokens: Tokens | None = None,
        *,
        largest_table: int = 10_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.app = app
        self.rate = requests_per_second
        self.burst = max(1.0, BURST_SECONDS * requests_per_second)
        self.tokens = tokens or Tokens()
        self.largest_table = largest_table
        self.clock = clock
        self._buckets: OrderedDict[Client, _Bucket] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its client may ask now."""
        if scope["type"] == "http" and not is_open(scope["path"]):
            wait = self._seconds_to_wait(self._client_of(scope))
            if wait > 0:
                await self._too_often(wait).answer(send)
                return
        await self.app(scope, receive, send)

    def _client_of(self, scope: Scope) -> Client:
        digest = self.tokens.known_digest(scope["headers"])
        if digest is not None:
            return digest
        peer = scope.get("client")
        return _network_of(peer[0]) if peer else ""

    def _seconds_to_wait(self, client: Client) -> float:
        """Take one request out of a client's bucket; if there is none, say when there will be."""
        now = self.clock()
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = _Bucket(self.burst, now)
            if len(self._buckets) > self.largest_table:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(client)
            bucket.level = min(self.burst, bucket.level + self.rate * (now - bucket.since))
            bucket.since = now
        if bucket.level < 1:
            return (1 - bucket.level) / self.rate
        bucket.level -= 1
        return 0.0

    def _too_often(self, wait: float) -> ProblemError:
        return ProblemError(
            429,
            "too_many_requests",
            f"A client may ask {self.rate:g} times a second on average. Ask again later.",
            {"retry-after": str(math.ceil(wait))},
        )


def _network_of(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address.partition("%")[0], IPV6_NETWORK), strict=False))
    except (AddressValueError, ValueError):
        return address
