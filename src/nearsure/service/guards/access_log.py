"""One line for each request: who, what, how it ended, how long it took.

Query strings, bodies and headers do not appear, and so no vectors, texts or tokens.
"""

import logging
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

        async def noticing(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noticing)
        finally:
            if scope["path"] not in QUIET or status >= 400:  # noqa: PLR2004 - first error
                client = scope.get("client")
                LOGGER.info(
                    "%s %s %s %d %.1f ms",
                    client[0] if client else "-",
                    _shown(scope["method"]),
                    _shown(scope["path"]),
                    status,
                    1e3 * (perf_counter() - start),
                )


def _shown(text: str) -> str:
    r"""Text of a client in one line of printable ASCII, so that nobody forges a line of the log.

    Examples
    --------
    >>> _shown("/v1/items/a\n127.0.0.1 GET / 200")
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
