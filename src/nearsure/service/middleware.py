"""Middleware: security headers, access log, limits of requests, bodies and rates."""

import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Network
from time import monotonic, perf_counter
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.auth import Tokens, is_loopback, is_open, needs_token
from nearsure.service.errors import Overloaded, ProblemError

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
# everybody may see, such as the page, say themselves how long they last.
NOT_STORED: Final = (b"cache-control", b"no-store")


class SecurityHeaders:
    """ASGI middleware that adds them to every answer, and forbids caches to keep most."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add to the head of its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                if all(name.lower() != NOT_STORED[0] for name, _ in own):
                    own.append(NOT_STORED)
                message["headers"] = [*own, *ALWAYS]
            await send(message)

        await self.app(scope, receive, with_headers)


# One line for each request: who, what, how it ended, how long it took.
#
# Query strings, bodies and headers do not appear, and so no vectors, texts or tokens.


LOGGER = logging.getLogger("nearsure.access")
LONGEST_PATH = 200
# They are asked every few seconds, and would bury the rest.
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class AccessLog:
    """ASGI middleware that writes to the logger ``nearsure.access``."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and write its line."""
        if scope["type"] != "http" or not LOGGER.isEnabledFor(logging.INFO):
            await self.app(scope, receive, send)
            return
        start = perf_counter()
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            if scope["path"] not in QUIET or status >= 400:  # noqa: PLR2004 - first error
                client = scope.get("client")
                LOGGER.info(
                    "%s %s %s %d %.1f ms",
                    client[0] if client else "-",
                    _escape(scope["method"]),
                    _escape(scope["path"]),
                    status,
                    1e3 * (perf_counter() - start),
                )


def _escape(text: str) -> str:
    r"""Text of a client in one line of printable ASCII, so that no client forges a line of the log.

    Examples
    --------
    >>> _escape("/v1/items/a\n127.0.0.1 GET / 200")
    '/v1/items/a\\x0a127.0.0.1\\x20GET\\x20/\\x20200'
    """
    if len(text) > LONGEST_PATH:
        text = text[:LONGEST_PATH] + "..."
    if text.isascii() and text.isprintable() and " " not in text and "\\" not in text:
        return text
    return "".join(
        chr(byte) if 33 <= byte <= 126 and byte != 92 else f"\\x{byte:02x}"  # noqa: PLR2004
        for byte in text.encode(errors="surrogateescape")
    )


class InFlightLimit:
    """ASGI middleware: 503 with Retry-After at once, while too many requests are under way.

    Nothing of a request that is turned away is read. What needs no token (health, readiness, the
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
        if scope["type"] != "http" or not needs_token(scope):
            await self.app(scope, receive, send)
            return
        if self.under_way >= self.largest:
            await Overloaded(
                f"{self.largest} requests are under way already. Ask again shortly."
            ).answer(send)
            return
        self.under_way += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.under_way -= 1


# A service without tokens answers this machine's programs, not pages that a browser has open.
#
# A foreign page can send requests to a loopback address, and with a name of its own that points
# there (DNS rebinding) it can read the answers as well. Browsers say in Host and Origin whom they
# ask for.


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class LocalOnly:
    """ASGI middleware for a service without tokens: 403 for what a foreign page asks.

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
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if not _is_local(f"//{headers.get(b'host', b'').decode('latin-1')}"):
                problem = "Without tokens the service is only there for localhost. Use that name."
            elif not self._may_ask(scope["method"], headers):
                problem = "Without tokens the service takes no changes from pages of other hosts."
            else:
                await self.app(scope, receive, send)
                return
            await ProblemError(403, "not_local", problem).answer(send)
            return
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


# A request that is refused while its body is read.
#
# Whatever reads the body may make an answer of its own out of the error (a web framework takes it
# for malformed input); the client must get the true reason.


class RefusableCall:
    """One call of an application, of which a refusal replaces the answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._refusal: ProblemError | None = None

    def refuse(self, problem: ProblemError) -> ProblemError:
        """Note why the request is refused; the caller raises what this returns."""
        self._refusal = problem
        return problem

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        """Call the application; if it was refused before it answered, answer for it."""
        try:
            await app(scope, receive, self._pass_on)
        except Exception:
            if self._refusal is None or self._started:
                raise
        if self._refusal is not None and not self._started:
            await self._refusal.answer(self._send)

    async def _pass_on(self, message: Message) -> None:
        if self._refusal is not None and not self._started:
            return
        self._started = True
        await self._send(message)


LARGEST_TOGETHER = 256 * 2**20
# Thousands of these fit beside the others, and need not be count_body.
SMALL = 64 * 2**10
# Of 2**64 - 1: servers read no larger number, but zeros may stand before it.
MOST_DIGITS = 20


class BodyLimit:
    """ASGI middleware: 413 for a body of more bytes, whether it says so or only turns out so.

    503 if the bodies of all requests under way come to too many. What counts is what has come, as
    a body that is only announced takes no memory.

    Parameters
    ----------
    app : ASGI application
    largest_body : int
        Bytes of one.
    largest_together : int
        Bytes of those under way; at least one of the largest may come in any case.
    """

    def __init__(
        self, app: ASGIApp, largest_body: int, largest_together: int = LARGEST_TOGETHER
    ) -> None:
        self.app = app
        self.largest_body = largest_body
        self.largest_together = max(largest_together, largest_body)
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what comes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = _declared_length(scope)
        if declared is not None and declared > self.largest_body:
            await self._too_large().answer(send)
            return
        if declared is not None and declared <= SMALL:
            # The server hands on no more than was declared.
            await self.app(scope, receive, send)
            return
        call = RefusableCall(send)
        n_bytes = 0

        async def count_body() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_new = len(message.get("body", b""))
            n_bytes += n_new
            self.under_way += n_new
            if n_bytes > self.largest_body:
                raise call.refuse(self._too_large())
            if self.under_way > self.largest_together:
                raise call.refuse(Overloaded("Too much is being sent. Ask again shortly."))
            return message

        try:
            await call.run(self.app, scope, count_body)
        finally:
            self.under_way -= n_bytes

    def _too_large(self) -> ProblemError:
        return ProblemError(
            413,
            "body_too_large",
            f"A request may have {self.largest_body} bytes. Send it in several parts.",
        )


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


# A client may spend this many seconds' worth of requests at once.
BURST_SECONDS = 10.0
# The owner of an IPv6 network has all its addresses.
IPV6_NETWORK = 64

Client: TypeAlias = bytes | str


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
