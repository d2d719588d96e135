"""ASGI middleware for HTTP: security headers, errors, limits of requests, bodies and rates."""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Network
from time import monotonic
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.auth import Tokens, is_loopback, is_open, needs_token
from nearsure.service.errors import Overloaded, ProblemError, problem_of

log = logging.getLogger("nearsure.service")

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ALWAYS: Final = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"permissions-policy",
        b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-embedder-policy", b"require-corp"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# Answers may hold what only the asker may see, so that no cache on the way keeps them; those that
# everybody may see, such as the page, have a cache-control header of their own.
NOT_STORED: Final = (b"cache-control", b"no-store")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Bytes of all bodies under way.
LARGEST_TOGETHER = 256 * 2**20
# Thousands of these fit beside the others, and need not be counted.
SMALL = 64 * 2**10
# Of 2**64 - 1: servers read no larger number, but zeros may stand before it.
MOST_DIGITS = 20
# A client may spend this many seconds' worth of requests at once.
BURST_SECONDS = 10.0
# The owner of an IPv6 network has all its addresses.
IPV6_NETWORK = 64

Guard: TypeAlias = Callable[[ASGIApp], ASGIApp]
Client: TypeAlias = bytes | str


class Guarded:
    """ASGI middleware made of others, the first outermost, which see HTTP alone."""

    def __init__(self, app: ASGIApp, guards: Sequence[Guard]) -> None:
        self.app = self.guarded = app
        for guard in reversed(guards):
            self.guarded = guard(self.guarded)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass HTTP through the guards, and the rest on."""
        await (self.guarded if scope["type"] == "http" else self.app)(scope, receive, send)


class SecurityHeaders:
    """ASGI middleware that adds security headers to every answer, and forbids caching of most."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add to the head of its answer."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                if all(name.lower() != NOT_STORED[0] for name, _ in own):
                    own.append(NOT_STORED)
                message["headers"] = [*own, *ALWAYS]
            await send(message)

        await self.app(scope, receive, with_headers)


class Problems:
    """ASGI middleware that answers errors of routes and of guards behind it.

    Unexpected ones are logged, and answered with 500 and no details.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and answer for what fails."""
        started = False

        async def note_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, note_start)
        except Exception as error:
            if started:
                raise
            problem = problem_of(error)
            if problem is None:
                log.exception("A request failed.")
                message = "The service failed. Its log says why."
                problem = ProblemError(500, "internal_error", message)
            await problem.answer(send)


class InFlightLimit:
    """ASGI middleware: 503 with Retry-After at once, while too many requests are under way.

    The body of a request that is refused is not read. What needs no token (health, readiness, the
    page and its assets) takes no place and is always answered.

    Parameters
    ----------
    app : ASGI application
    largest : int
        Requests under way.
    """

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self.app = app
        self.largest = largest
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if there is room for it."""
        if not needs_token(scope):
            await self.app(scope, receive, send)
            return
        if self.under_way >= self.largest:
            raise Overloaded(f"{self.largest} requests are under way already. Try again shortly.")
        self.under_way += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.under_way -= 1


class LocalOnly:
    """ASGI middleware for a service without tokens: 403 for what a foreign page asks.

    Programs of this machine are answered, but not pages of other hosts that a browser has open.
    Such a page can send requests to a loopback address, and with a name of its own that points
    there (DNS rebinding) it can read the answers as well. Host and Origin show for whom a browser
    asks.

    Parameters
    ----------
    app : ASGI application
    origins : tuple of str
        Pages that may ask nevertheless, such as ``"https://tools.example.org"``.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...] = ()) -> None:
        self.app = app
        self.origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it is for this machine and from it."""
        headers = dict(scope["headers"])
        if not _is_local(f"//{headers.get(b'host', b'').decode('latin-1')}"):
            message = "Without tokens the service is only there for localhost. Use that name."
            raise ProblemError(403, "not_local", message)
        if not self._may_ask(scope["method"], headers):
            message = "Without tokens the service takes no changes from pages of other hosts."
            raise ProblemError(403, "not_local", message)
        await self.app(scope, receive, send)

    def _may_ask(self, method: str, headers: dict[bytes, bytes]) -> bool:
        origin = headers.get(b"origin", b"").decode("latin-1")
        # Programs send none; what a page only reads, CORS hides from it.
        if not origin or method in SAFE_METHODS or origin in self.origins:
            return True
        # Another port of this machine is another program, perhaps another person's. An origin is a
        # scheme and a host, and is compared as it is: what a client makes up need not parse.
        return origin.partition("://")[2] == headers.get(b"host", b"").decode("latin-1")


def _is_local(address: str) -> bool:
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


class BodyLimit:
    """ASGI middleware: 413 for a body of too many bytes, declared or not, 408 for a slow one.

    503 if the bodies of all requests under way come to too many. What counts is what has come, as
    a body that is only announced takes no memory.

    Parameters
    ----------
    app : ASGI application
    largest_body : int
        Bytes of one.
    patience : float
        Seconds for the whole body, from the end of the headers.
    largest_together : int
        Bytes of those under way; at least one of the largest may come in any case.
    """

    def __init__(
        self,
        app: ASGIApp,
        largest_body: int,
        patience: float,
        largest_together: int = LARGEST_TOGETHER,
    ) -> None:
        self.app = app
        self.largest_body = largest_body
        self.patience = patience
        self.largest_together = max(largest_together, largest_body)
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, count what comes and watch the clock until its body is complete."""
        declared = _declared_length(scope)
        self._check_size(declared or 0)
        # The server hands on no more than was declared.
        is_small = declared is not None and declared <= SMALL
        deadline = asyncio.get_running_loop().time() + self.patience
        complete, n_bytes = False, 0

        async def receive_within_limits() -> Message:
            nonlocal complete, n_bytes
            if complete:
                # What follows the body is the end of the connection, for which one may wait long.
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                text = f"The body of a request must arrive within {self.patience:g} s."
                raise ProblemError(408, "body_too_slow", text, {"connection": "close"}) from None
            complete = not message.get("more_body", False)
            if not is_small:
                n_new = len(message.get("body", b""))
                n_bytes += n_new
                self.under_way += n_new
                self._check_size(n_bytes)
                if self.under_way > self.largest_together:
                    raise Overloaded("Too much is being sent. Try again shortly.")
            return message

        try:
            await self.app(scope, receive_within_limits, send)
        finally:
            self.under_way -= n_bytes

    def _check_size(self, n_bytes: int) -> None:
        if n_bytes > self.largest_body:
            message = f"A request may have {self.largest_body} bytes. Send it in several parts."
            raise ProblemError(413, "body_too_large", message)


def _declared_length(scope: Scope) -> int | None:
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    # Beside a transfer coding a length counts for nothing. Digits only: int() takes "1_0", too.
    if b"transfer-encoding" in headers or not length.isdigit():
        return None
    if len(length) > MOST_DIGITS:
        raise ProblemError(
            400,
            "bad_request",
            f"Content-Length may have {MOST_DIGITS} digits. Got {len(length)} instead.",
        )
    return int(length)


@dataclass(slots=True)
class _Bucket:
    level: float
    since: float


class RateLimit:
    """ASGI middleware: 429 with Retry-After for a client that asks too often.

    A client is a token that is known, or else an address: made-up tokens make no new client.
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
        if not is_open(scope["path"]):
            wait = self._seconds_to_wait(self._client_of(scope))
            if wait > 0:
                raise ProblemError(
                    429,
                    "too_many_requests",
                    f"A client may send {self.rate:g} requests a second on average. Try later.",
                    {"retry-after": str(math.ceil(wait))},
                )
        await self.app(scope, receive, send)

    def _client_of(self, scope: Scope) -> Client:
        digest = self.tokens.known_digest(scope["headers"])
        if digest is not None:
            return digest
        peer = scope.get("client")
        return _network_of(peer[0]) if peer else ""

    def _seconds_to_wait(self, client: Client) -> float:
        """Take one request out of a client's bucket; otherwise the seconds until there is one."""
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


def _network_of(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address.partition("%")[0], IPV6_NETWORK), strict=False))
    except (AddressValueError, ValueError):
        return address


class DirectRoute:
    """ASGI middleware next to the routes, behind all guards, that answers for one of them.

    Parameters
    ----------
    app : ASGI application
        Answers everything else.
    path : str
        The address.
    answer : callable
        The route's function, for POST.
    """

    def __init__(
        self, app: ASGIApp, path: str, answer: Callable[[Request], Awaitable[Response]]
    ) -> None:
        self.app = app
        self.path = path
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass a request on."""
        if scope["path"] != self.path or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        # Under this name requests are counted, as the router would have it.
        scope["route"] = self
        response = await self.answer(Request(scope, receive, send))
        await response(scope, receive, send)


class HeadAsGet:
    """ASGI middleware next to the routes: HEAD is answered as GET is, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and drop the body of its answer."""
        if scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        asked = {**scope, "method": "GET"}
        try:
            await self.app(asked, receive, without_body)
        finally:
            # Under this name requests are counted.
            if "route" in asked:
                scope["route"] = asked["route"]
