"""A service without tokens answers this machine's programs, not pages that a browser has open.

A foreign page can send requests to a loopback address, and with a name of its own that points there
(DNS rebinding) it can read the answers as well. Browsers say in Host and Origin whom they ask for.
"""

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from nearsure.service.guards.security import is_loopback
from nearsure.service.problems import ProblemError

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
